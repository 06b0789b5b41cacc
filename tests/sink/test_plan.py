"""What tells one batch from another: the plans in Spark's offset log; and what a marker's value must be."""

from __future__ import annotations

import json

import pytest

from exactly_once_kafka.marker_store import parsed, value_of
from exactly_once_kafka.plan import goes_back, plan_of
from exactly_once_kafka.protocol import ADOPTED, Batch, Marker, MarkerMismatch, is_published

QUERY = "the-query"
MANY = {f"{n}": 1_000_000 for n in range(1000)}


def entry(*offsets, planned=1_000, watermark=5, version="v1", partitions="200"):
    """Return the text of `offsets/N`: that of version 2 has each source's name in front of its offset."""
    conf = {"spark.sql.shuffle.partitions": partitions}
    metadata = {"batchWatermarkMs": watermark, "batchTimestampMs": planned, "conf": conf}
    lines = [offset if isinstance(offset, str) else json.dumps(offset) for offset in offsets]
    if version == "v2":
        lines = [f"{number}:{line}" for number, line in enumerate(lines)]
    return "\n".join([version, json.dumps(metadata), *lines])


def plan(*offsets, **more):
    return plan_of(entry(*offsets, **more))


OFFSETS = [{"t": {"0": 7}}, {"logOffset": 1}, 12, {"t": MANY}, "-"]


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("offset", OFFSETS, ids=lambda offset: str(offset)[:20])
def test_batch_that_is_planned_anew_is_another_one_whatever_its_source(offset, version):
    first = plan(offset, version=version)
    again, later = plan(offset, version=version), plan(offset, version=version, planned=1_001)
    assert is_published(Marker(1, QUERY, first), Batch(QUERY, 1, again, "before"))
    with pytest.raises(MarkerMismatch, match=r"(?s)another batch 1 was committed.*1000.*1001"):
        is_published(Marker(1, QUERY, first), Batch(QUERY, 1, later, "before"))
    with pytest.raises(MarkerMismatch, match=r"(?s)another batch 1 was committed.*1000.*1001"):
        is_published(Marker(1, QUERY, first), Batch(QUERY, 2, "next", later))


def test_configuration_that_an_operator_changes_makes_no_other_batch():
    assert plan({"t": {"0": 7}}, partitions="8") == plan({"t": {"0": 7}})


def test_plan_of_a_thousand_partitions_stays_short_and_tells_its_time():
    long = plan({"t": MANY})
    assert len(value_of(Marker(1, QUERY, long))) < 4_000
    assert plan({"t": MANY | {"999": 1}}) != long != plan({"t": MANY}, planned=1_001)
    assert parsed(value_of(Marker(1, QUERY, long))).plan == long


def test_batches_that_spark_adds_when_it_repartitions_the_state_leave_no_gap():
    """Spark copies the entry of the last batch that is noted, but for the number of partitions."""
    last, copy = plan({"t": {"0": 7}}), plan({"t": {"0": 7}}, partitions="4")
    for batch in (3, 4):  # repartitioned once, or twice; or once, with a batch before it that was abandoned
        assert not is_published(Marker(1, QUERY, last), Batch(QUERY, batch, "next", copy))


@pytest.mark.parametrize("adopted", [ADOPTED, plan({"t": {"0": 6}})])
def test_gap_that_is_not_proved_to_be_empty_is_refused(adopted):
    with pytest.raises(MarkerMismatch, match="batch 2 of the checkpoint did not reach the sink"):
        is_published(Marker(1, QUERY, adopted), Batch(QUERY, 3, "next", plan({"t": {"0": 7}}, planned=2_000)))


def test_batch_without_rows_is_not_taken_for_one_that_spark_added():
    """Its offsets are those of the batch before, but timeouts may be due: it was planned later."""
    last, without_rows = plan({"t": {"0": 7}}), plan({"t": {"0": 7}}, planned=1_001)
    with pytest.raises(MarkerMismatch, match="batch 2 of the checkpoint did not reach the sink"):
        is_published(Marker(1, QUERY, last), Batch(QUERY, 3, "next", without_rows))


def test_state_repartitioned_without_the_last_batch_that_was_published_is_refused_by_name():
    """`repartition(…, enforce_exactly_once_sink=False)` goes back to the batch before: its rows would come again."""
    published, copy_of_the_one_before = plan({"t": {"0": 20}}, planned=2_000), plan({"t": {"0": 10}})
    with pytest.raises(MarkerMismatch, match=r"(?s)repartitions the state.*rows of batch 1 would come again"):
        is_published(Marker(1, QUERY, published), Batch(QUERY, 3, "next", copy_of_the_one_before))


@pytest.mark.parametrize(
    ("offset", "planned", "back"),
    [
        ({"t": {"0": 20, "1": 5}}, 2_000, False),
        ({"t": {"0": 20, "1": 5}}, 999, True),
        ({"t": {"0": 19, "1": 6}}, 2_000, True),
        ({"t": {"0": 20, "1": 6, "2": 1}}, 2_000, False),
        ({"t": {"0": 20}}, 2_000, True),
        ({"u": {"0": 0}}, 2_000, True),
        ({"t": MANY}, 2_000, True),  # shortened: nobody can tell
    ],
)
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_plan_that_reads_again_what_was_read_goes_back(offset, planned, back, version):
    committed = plan({"t": {"0": 20, "1": 5}}, version=version)
    assert goes_back(plan(offset, planned=planned, version=version), committed) is back


def test_another_query_goes_back_if_it_reads_the_same_source_again():
    committed = plan({"t": {"0": 20}})
    assert goes_back(plan({"t": {"0": 10}}, planned=2_000), committed, same_query=False)
    assert not goes_back(plan({"t": {"0": 20}}, planned=999), committed, same_query=False)
    assert not goes_back(plan({"u": {"0": 1}}, planned=999), committed, same_query=False)
    assert not goes_back(ADOPTED, committed)


@pytest.mark.parametrize("text", ["", "v1", "x\n{}\n{}", "v1\n[1]", "v1\n{}x"])
def test_what_is_no_entry_of_an_offset_log_is_refused(text):
    with pytest.raises(ValueError, match="no entry of an offset log"):
        plan_of(text)


GOOD = '{"batch_id": 1, "query_id": "q", "plan": {"offsets": []}}'


@pytest.mark.parametrize("marker", [Marker(0, "q", "{}"), Marker(1, "q", ADOPTED)])
def test_marker_is_read_as_it_was_written(marker):
    assert parsed(value_of(marker)) == marker


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "tombstone"),
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"{" + GOOD.encode(), "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1]", "lacks one of the fields batch_id, plan, query_id"),
        (b'{"batch_id": 1}', "lacks one of the fields"),
        (GOOD.replace("1", "true"), "no valid batch_id"),
        (GOOD.replace("1", "-1"), "no valid batch_id"),
        (GOOD.replace("1", '"1"'), "no valid batch_id"),
        (GOOD.replace("1", "1.0"), "no valid batch_id"),
        (GOOD.replace("1", "9" * 5_000), "not JSON"),
        (GOOD.replace('"q"', "7"), "no valid batch_id or query_id"),
        (GOOD.replace('{"offsets": []}', "null"), "'plan' is not a plan"),
        (GOOD.replace('{"offsets": []}', "[1]"), "'plan' is not a plan"),
        (GOOD.replace('{"offsets": []}', '"other"'), "'plan' is not a plan"),
        (GOOD.replace(', "plan": {"offsets": []}', ""), "lacks one of the fields"),
        (GOOD.replace("{", '{"epoch": 1, ', 1), "newer version wrote it, with the fields epoch"),
        (b'{"x": "' + b"x" * 2_000_000 + b'"}', "lacks one of the fields"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_record_that_is_no_marker_is_said_to_be_none(value, why):
    with pytest.raises(ValueError, match=why) as refusal:
        parsed(value)
    assert len(str(refusal.value)) < 300
