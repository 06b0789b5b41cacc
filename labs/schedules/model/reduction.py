"""States that differ in nothing that can still matter are made one, so that there are fewer of them to look at."""

from __future__ import annotations

from labs.schedules.model.state import NEVER, State


def without_what_makes_no_difference(before: State, state: State) -> State:
    """Forget what was aborted, the order of partitions, and the numbers and requests of older epochs.

    A request is kept as long as its sender may hear the answer, or Kafka may carry it out; an abort is remembered as
    long as there is a driver that may ask for it once more.
    """
    if state.epoch != before.epoch:
        state = state._replace(remembered=frozenset())
    if state.aborted != NEVER and state.aborted not in [driver.epoch for driver in state.drivers if driver.alive]:
        state = state._replace(aborted=NEVER)
    # What is as it was before was looked at then: that is most of it.
    log, tasks, net = state.log, state.tasks, state.net
    if log is not before.log:
        log = tuple(sorted(record for record in log if record[2] != "aborted"))
    if state.drivers is before.drivers and state.epoch == before.epoch and tasks is before.tasks and net is before.net:
        return state._replace(log=log)
    alive = [driver.alive for driver in state.drivers]
    tasks = tuple(task for task in tasks if alive[task.driver] or task.epoch == state.epoch)
    net = frozenset(
        request
        for request in net
        if (alive[request.driver] and not request.copy)
        or request.what == "fence"
        or (request.what != "read marker" and request.epoch == state.epoch)
    )
    return state._replace(log=log, tasks=tasks, net=net)
