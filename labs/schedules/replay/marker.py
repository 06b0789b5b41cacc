"""The marker that a replay has left in Kafka, read past the proxy by who takes no part in it."""

from __future__ import annotations

import json

from confluent_kafka import KafkaError, KafkaException

from labs.evidence.readers.results import read_to_end


def last_marker(bootstrap_servers: str, topic: str) -> tuple[int, int] | None:
    """Return the marker that was committed last, as the model has it: the batch, and where that was planned to end.

    None where there is none, or no such topic yet. A replay's own program writes the two; the real sink its batch and
    its plan, of which a replay's says the end alone. Raises KafkaException, TimeoutError.
    """
    try:
        values = [message.value() or b"" for message in read_to_end(bootstrap_servers, topic, "read_committed")]
    except KafkaException as error:
        if error.args[0].code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            return None
        raise
    if not values:
        return None
    said = json.loads(values[-1])
    batch, end = (said["batch_id"], said["plan"]["end"]) if isinstance(said, dict) else said
    return batch, end
