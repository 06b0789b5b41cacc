"""The pipeline under study, in data order: access log, source topic, IP count, sinks."""

from labs.pipeline.access_log import parse_line, read_access_log
from labs.pipeline.at_least_once import SINK_TOPIC, AtLeastOnceKafkaSink
from labs.pipeline.exactly_once import ExactlyOnceKafkaSink
from labs.pipeline.fault_points import FAULT_POINTS
from labs.pipeline.ip_count import ip_count as count_ips
from labs.pipeline.ip_count import read_source
from labs.pipeline.ip_count import start as start_query
from labs.pipeline.log_report import LogReport
from labs.pipeline.sink_errors import BatchFailed, SinkRefused
from labs.pipeline.source import SOURCE_TOPIC, close_windows, replay

__all__ = [
    "FAULT_POINTS",
    "SINK_TOPIC",
    "SOURCE_TOPIC",
    "AtLeastOnceKafkaSink",
    "BatchFailed",
    "ExactlyOnceKafkaSink",
    "LogReport",
    "SinkRefused",
    "close_windows",
    "count_ips",
    "parse_line",
    "read_access_log",
    "read_source",
    "replay",
    "start_query",
]
