"""A producer that got no epoch is gone: one that lived on would get its epoch later, and fence its successor."""

from __future__ import annotations

import gc

import pytest
from confluent_kafka import KafkaException, Producer

from exactly_once_kafka.deadline import Deadline
from exactly_once_kafka.producer import PendingProducer
from exactly_once_kafka.producer_options import producer_settings
from labs.equipment.ports import free_ports
from labs.equipment.waiting import eventually


def producers() -> list[Producer]:
    # By type, because a weak proxy of what is gone cannot be asked for its class.
    return [each for each in gc.get_objects() if issubclass(type(each), Producer)]


class Newcomers:
    """The producers that came since; those of other tests are kept, so that none takes another's place."""

    def __init__(self):
        self._others = producers()

    def all_gone(self) -> bool:
        known = {id(each) for each in self._others}
        return not [each for each in producers() if id(each) not in known]


@pytest.fixture
def nobody(request):
    """The settings of a producer whose Kafka is down."""
    [port] = free_ports(1)
    return producer_settings("sink", f"127.0.0.1:{port}", {"transaction_timeout_ms": request.param})


@pytest.fixture
def no_collection():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("nobody", [1000], indirect=True)
def test_preparation_that_failed_leaves_no_producer_behind(nobody, no_collection):
    newcomers, pending = Newcomers(), PendingProducer(nobody)
    eventually(lambda: not pending.is_usable, timeout=60)
    eventually(newcomers.all_gone, timeout=30)


@pytest.mark.parametrize("nobody", [60_000], indirect=True)
def test_preparation_that_nobody_waits_for_any_longer_leaves_none_either(nobody, no_collection):
    newcomers, pending = Newcomers(), PendingProducer(nobody)
    with pytest.raises(TimeoutError, match=r"no epoch was granted within 0\.2 s"):
        pending.take(Deadline(0.2))
    eventually(newcomers.all_gone, timeout=30)


@pytest.mark.parametrize("nobody", [60_000], indirect=True)
def test_preparation_that_is_given_up_leaves_none_either(nobody, no_collection):
    newcomers, pending = Newcomers(), PendingProducer(nobody)
    pending.stop_asking()
    eventually(newcomers.all_gone, timeout=30)


@pytest.mark.parametrize("nobody", [1000], indirect=True)
def test_failure_is_raised_to_who_waits(nobody):
    with pytest.raises(KafkaException):
        PendingProducer(nobody).take(Deadline(30))


@pytest.mark.parametrize("nobody", [2000], indirect=True)
def test_what_hinders_what_comes_before_is_raised_when_the_time_is_up(nobody):
    def first(deadline: Deadline) -> None:
        eventually(lambda: not deadline.has_time(), timeout=60)
        raise TimeoutError("no leader for results-0")

    with pytest.raises(TimeoutError, match="no leader for"):
        PendingProducer(nobody, first=first).take(Deadline(2))
