"""How far one partition of the source was published: in the marker's topic, and as a consumer group's offset too.

The sink's tasks share the marker's topic, and its reader waits for every transaction that is open there: for that of a
task that died with its marker sent, too. The task that would end it begins with a row of its own. That may come in the
next epoch only, and the epoch waits for whoever waits: until the dead one's timeout. A group belongs to one source
partition, and what is open in it is ended by the epoch that its task has just been granted.

Kafka forgets a group's offset when nothing was committed for a week (`offsets.retention.minutes`), and a topic does
not. So the group is asked first, and the topic where it has no answer; both are written in one transaction. The topic
is waited for only if something of this source partition lies behind the first open transaction: it may be committed.
"""

from __future__ import annotations

import contextlib
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from exactly_once_kafka.batch import Marker
from exactly_once_kafka.cause import true_cause
from exactly_once_kafka.marker import LONG_SLICE, READER, MarkerStore, Unreadable, parsed, value_of
from exactly_once_kafka.marker_topic import NO_ANSWER_YET
from exactly_once_kafka.patience import SLICE, Patience


class SourceMarker(MarkerStore):
    """The marker of one source partition, whose key is the `name`. To be read when its producer has a new epoch.

    Raises what MarkerStore does.
    """

    def read(self, patience: Patience, undecided: bool = False) -> Marker | None:
        """Return the committed marker, or None if there is none."""
        if found := self._of_group(patience):
            return found
        decided = super().read(patience.anew(), undecided=True)
        return super().read(patience.anew()) if not undecided and self._sent_later(patience.anew()) else decided

    def send(self, marker: Marker, producer: Producer, patience: Patience) -> None:
        """Make the marker part of the producer's open transaction, twice."""
        super().send(marker, producer, patience)
        place = TopicPartition(self.topic.name, 0, marker.batch_id, metadata=value_of(marker))
        group = self._reader().consumer_group_metadata()
        with true_cause(producer, self.topic.name):
            producer.send_offsets_to_transaction([place], group, patience.seconds)  # not in slices: cut short, it fails

    def _of_group(self, patience: Patience) -> Marker | None:
        while True:
            try:
                [found] = self._reader().committed([TopicPartition(self.topic.name, 0)], timeout=LONG_SLICE)
                if found.error:
                    raise KafkaException(found.error)
                return self._noted(found.metadata) if found.offset >= 0 and found.metadata else None
            except KafkaException as error:
                self._hear(self._reader().poll(0))  # tells error_cb too
                if self._refusal.error or error.args[0].code() not in NO_ANSWER_YET or not patience.lasts():
                    raise KafkaException(self._refusal.error or self._allowed(error.args[0])) from error
                time.sleep(SLICE)

    def _noted(self, metadata: str) -> Marker:
        try:
            return parsed(metadata)
        except ValueError as error:
            raise Unreadable(
                f"the offset of group {self.name!r} in topic {self.topic.name!r} has no marker with it: {error}; "
                "delete the group, and the marker's topic decides"
            ) from error

    def _sent_later(self, patience: Patience) -> bool:
        """Tell whether the topic has anything of this source partition that is not known to be decided."""
        consumer = Consumer(
            {**self._connection, **READER, "group.id": self.name, "isolation.level": "read_uncommitted"}
        )
        with contextlib.closing(consumer):
            consumer.assign([TopicPartition(self.topic.name, 0, self._position)])
            while patience.lasts():
                message = consumer.poll(SLICE)
                if message is None:
                    continue
                if (error := message.error()) is None:
                    if message.key() == self.name.encode():
                        return True
                elif error.code() == KafkaError._PARTITION_EOF:
                    return False
                elif error.code() not in NO_ANSWER_YET:
                    raise KafkaException(error)
        raise TimeoutError(f"the marker in topic {self.topic.name!r} could not be read: Kafka does not answer")

    def _allowed(self, error: KafkaError) -> KafkaError:
        if error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
            return error
        return KafkaError(error.code(), f"not allowed to READ group {self.name!r}")
