"""What is new in a partition, as it lies in Kafka: raw record batches, also of open and aborted transactions.

Each question goes straight to the leader's own port, past the proxy: what cuts the pipeline off does not blind the
room. Where it stops: one partition, of brokers on this machine. Whatever keeps a broker from answering raises OSError,
and the next question begins where the last answer ended.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kafka.errors import NotLeaderForPartitionError, UnknownTopicOrPartitionError, for_code
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatch

from labs.pipeline.two_phase.kafka_request import BrokerConnection

FETCH_VERSION, METADATA_VERSION = 11, 8  # the last that name topics by their names, without varints
AT_MOST = 1 << 20  # bytes in one answer
PATIENCE = 0.5  # seconds for an answer


@dataclass
class News:
    """What came: batches in order, the high watermark, the last stable offset, and whether it is all there is."""

    end: int
    stable: int
    batches: list[DefaultRecordBatch] = field(default_factory=list)
    complete: bool = True


class PartitionTail:
    """Reads partition 0 of a topic from its beginning on; `ports` tells those of the nodes, by their numbers."""

    def __init__(self, topic: str, ports: Callable[[], Sequence[int]]):
        self.topic, self.position = topic, 0
        self._ports = ports
        self._connection: BrokerConnection | None = None

    def read(self) -> News | None:
        """Return what is new, or None if there is no such topic yet. Raises OSError."""
        try:
            return self._fetch()
        except UnknownTopicOrPartitionError:
            return None
        except OSError:
            self.close()
            raise
        except NotLeaderForPartitionError as error:
            self.close()
            raise ConnectionError(f"the leader of {self.topic} is elsewhere by now") from error

    def close(self) -> None:
        """Hang up."""
        if self._connection:
            with contextlib.suppress(OSError):
                self._connection.close()
            self._connection = None

    def _fetch(self) -> News | None:
        self._connection = self._connection or self._leader()
        answer = self._connection.ask(self._request(), FetchResponse, FETCH_VERSION)
        [partition] = answer.responses[0].partitions
        if partition.error_code:
            raise for_code(partition.error_code)(self.topic)
        news = News(partition.high_watermark, partition.last_stable_offset)
        for batch in MemoryRecords(bytes(partition.records or b"")):
            if batch.last_offset >= self.position:
                news.batches.append(batch)
                self.position = batch.last_offset + 1
        news.complete = self.position >= news.end
        return news

    def _request(self) -> FetchRequest:
        topic = FetchRequest.FetchTopic
        wanted = topic.FetchPartition(
            partition=0,
            current_leader_epoch=-1,
            fetch_offset=self.position,
            log_start_offset=-1,
            partition_max_bytes=AT_MOST,
        )
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=AT_MOST,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[topic(topic=self.topic, partitions=[wanted])],
            forgotten_topics_data=[],
            rack_id="",
        )

    def _leader(self) -> BrokerConnection:
        ports = self._ports()
        if len(ports) == 1:
            return BrokerConnection(f"127.0.0.1:{ports[0]}", PATIENCE)
        last: OSError = ConnectionError("no broker answers")
        for port in ports:
            try:
                with BrokerConnection(f"127.0.0.1:{port}", PATIENCE) as broker:
                    return self._connect(broker, ports)
            except OSError as error:
                last = error
        raise last

    def _connect(self, broker: BrokerConnection, ports: Sequence[int]) -> BrokerConnection:
        asked = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=self.topic)],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        [topic] = broker.ask(asked, MetadataResponse, METADATA_VERSION).topics
        if topic.error_code:
            raise for_code(topic.error_code)(self.topic)
        leader = topic.partitions[0].leader_id
        if leader < 0:
            raise ConnectionError(f"{self.topic} has no leader")
        return BrokerConnection(f"127.0.0.1:{ports[leader]}", PATIENCE)
