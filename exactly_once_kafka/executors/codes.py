"""What an error of kafka-python's is by its number: Kafka's own, or librdkafka's for what a client itself meets."""

from __future__ import annotations

from confluent_kafka import KafkaError
from kafka import errors


class NoSuchPartition(errors.KafkaError):  # type: ignore[misc]  # kafka-python comes without types
    """A row names a partition that its topic does not have."""


# The others of those that have no number pass.
CODES = {
    NoSuchPartition: KafkaError._UNKNOWN_PARTITION,
    errors.IllegalArgumentError: KafkaError._INVALID_ARG,
    errors.KafkaConfigurationError: KafkaError._INVALID_ARG,
    errors.UnrecognizedBrokerVersion: KafkaError._UNSUPPORTED_FEATURE,
    errors.UnsupportedCodecError: KafkaError._NOT_IMPLEMENTED,
}


def code_of(error: Exception) -> int:
    """Return the number of an error."""
    if isinstance(error, errors.BrokerResponseError) and error.errno is not None:
        return int(error.errno)
    return int(CODES.get(type(error), KafkaError._FAIL))
