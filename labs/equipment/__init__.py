"""What stands on the bench: Java and jars, the Kafka broker, the Spark session."""

from labs.equipment.broker import Broker, BrokerError, ExternalBroker, open_broker
from labs.equipment.eventually import eventually
from labs.equipment.spark import spark_session
from labs.equipment.topics import admin, create_topic, end_offsets

__all__ = [
    "Broker",
    "BrokerError",
    "ExternalBroker",
    "admin",
    "create_topic",
    "end_offsets",
    "eventually",
    "open_broker",
    "spark_session",
]
