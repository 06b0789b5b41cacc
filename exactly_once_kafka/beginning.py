"""Before the first batch of a run: the marker's topic is there, and "no marker" means that nothing was ever published.

Without a marker only batch 0 may be written, and only if it never was. A compacted topic that has no record of the
sink says so, if it is the topic that was there from the beginning. Its id is noted in a second place, the checkpoint,
before anything is published.
"""

from __future__ import annotations

from collections.abc import Callable

from exactly_once_kafka.batch import Batch, Marker, Unfit
from exactly_once_kafka.marker import MarkerStore
from exactly_once_kafka.patience import Patience
from exactly_once_kafka.query import WITNESSES, Witness


def begin(store: MarkerStore, batch: Batch, witness_of: Callable[[], Witness], patience: Patience) -> Marker | None:
    """Return what was committed last, without an epoch; make the topic if there is none and all else fits.

    Raises Unfit if there is no marker because its topic was deleted, and what `store` raises.
    """
    topic = store.topic.id(patience)
    marker = store.read(patience, undecided=True) if topic else store.read_old(patience)
    if marker is None and batch.batch_id > 0:
        return None  # not to be written, and no reason for a topic
    if marker is not None:
        if topic is None:
            store.topic.create(patience)
        return marker
    witness = witness_of()
    began_with = witness.read()
    if began_with not in (None, topic):
        raise Unfit(
            f"the marker's topic {store.topic.name!r} is not there any more, or is another one of that name; batch 0 "
            "may have been published before it was deleted. If it was not, delete "
            f"{WITNESSES}/{witness.name} in the checkpoint"
        )
    if topic is None:
        topic = store.topic.create(patience)
    if began_with is None:
        witness.write(topic)
    return None
