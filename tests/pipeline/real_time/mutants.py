"""Rules by which a real-time sink goes wrong, which the tests must find."""

from __future__ import annotations

from labs.pipeline.sinks.real_time_sink import Place


def no_marker(row: Place, marker: Place | None) -> bool:
    """Know of no row that was published before."""
    return False


def by_epochs(row: Place, marker: Place | None) -> bool:
    """Take an epoch that has a marker for one that is done, as it is where an epoch has a plan."""
    return marker is not None and row.epoch <= marker.epoch


def by_offsets(row: Place, marker: Place | None) -> bool:
    """Take a record of which one row was published for one of which all were."""
    return marker is not None and row.offset <= marker.offset
