"""What stands on the bench: Java and jars, the Kafka broker, the Spark session and cluster."""

from labs.equipment.broker import Broker, BrokerError, ExternalBroker, open_broker
from labs.equipment.eventually import eventually
from labs.equipment.spark import spark_session
from labs.equipment.spark_cluster import SparkCluster
from labs.equipment.spark_daemon import ClusterError
from labs.equipment.topics import admin, create_topic, end_offsets

__all__ = [
    "Broker",
    "BrokerError",
    "ClusterError",
    "ExternalBroker",
    "SparkCluster",
    "admin",
    "create_topic",
    "end_offsets",
    "eventually",
    "open_broker",
    "spark_session",
]
