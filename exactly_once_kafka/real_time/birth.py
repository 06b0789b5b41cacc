"""Whose name it is: noted in the marker's topic in epoch 0, before anything can be published.

Without it, "no marker" would mean two things: that nothing of this source partition was published yet, as of one that
had no records so far, or that the marker's topic was deleted and made anew.
"""

from __future__ import annotations

from exactly_once_kafka.batch import REAL_TIME, Marker
from exactly_once_kafka.patience import Patience
from exactly_once_kafka.real_time.clients import Clients
from exactly_once_kafka.real_time.task import Task


class Birth:
    """The record that says which query began under this name.

    Raises KafkaException, TimeoutError, Forgetful, SinkRefused, Undecidable.
    """

    def __init__(self, task: Task, clients: Clients):
        self._task, self._clients, self._store = task, clients, clients.births()
        self.patience = Patience(clients.timeout)

    def note(self) -> None:
        """See to it that the topic is there, and that the name is this query's."""
        self.patience = self.patience.anew()
        if self._store.topic.id(self.patience) is None:
            self._store.topic.create(self.patience)
        if self._is_noted(undecided=True):
            return
        name = self._clients.name
        producer = self._clients.new_epoch(name).take(self.patience)
        self.patience = self.patience.anew()
        if not self._is_noted():  # nobody else can note it from here on
            self._store.overwrite(Marker(0, self._task.query_id, REAL_TIME), producer, self.patience)
            self._clients.settle(name, self.patience.anew(), abort=False)  # or else nobody would, once epoch 0 is over

    def check(self) -> None:
        """Refuse unless the name is this query's, or nobody's yet in epoch 0."""
        self.patience = self.patience.anew()
        topic = self._store.topic.id(self.patience)
        if topic is None and self._task.epoch == 0:
            self._store.topic.create(self.patience)
        elif topic is None or not (self._is_noted(undecided=True) or self._task.epoch == 0 or self._is_noted()):
            raise self._task.refusal(
                f"the marker's topic {self._store.topic.name!r} does not say which query began under this name: it was "
                "deleted, or the name is new to this checkpoint"
            )

    def _is_noted(self, undecided: bool = False) -> bool:
        noted = self._store.read(self.patience, undecided)
        if noted is not None and noted.query_id != self._task.query_id:
            raise self._task.refusal(f"the name is that of query {noted.query_id}")
        if noted is not None and noted.plan not in (REAL_TIME, None):  # its last batch may be in Kafka alone
            raise self._task.refusal("the name is that of a sink for micro-batches, whose markers say nothing here")
        return noted is not None
