import resource
import tempfile
import tracemalloc
from itertools import islice
from random import Random

import pytest

from labs.pipeline.log.replay import BUFFER_BYTES, FAN_IN, SortFailed, in_event_time_order


def shuffled(accesses: int, times: int) -> list[tuple[int, str]]:
    """Return accesses with few different times; clients count down, so that sorting by them would show."""
    random = Random(7)
    return [(int(random.random() * times), f"client-{accesses - i:06}.example") for i in range(accesses)]


def by_time(access: tuple[int, str]) -> int:
    return access[0]


@pytest.fixture
def spilled(monkeypatch):
    """The temporary files made, so that a test can see whether they are closed, which deletes them."""
    files = []
    make = tempfile.TemporaryFile

    def record(*args, **kwargs):
        files.append(make(*args, **kwargs))
        return files[-1]

    monkeypatch.setattr(tempfile, "TemporaryFile", record)
    return files


@pytest.mark.parametrize("accesses", [0, 1, 9, 10, 11, 20, 21, 1_000])
def test_sorts_by_time_and_keeps_the_order_of_equal_times(accesses):
    source = shuffled(accesses, times=7)
    assert list(in_event_time_order(source, max_in_memory=10)) == sorted(source, key=by_time)


def test_a_clock_that_jumps_back_a_day_is_put_in_order():
    day = 86_400_000
    source = [(day + i, "today.example") for i in range(50)] + [(i, "yesterday.example") for i in range(50)]
    assert list(in_event_time_order(source, max_in_memory=10)) == sorted(source)


def test_times_are_compared_as_numbers_after_spilling():
    assert [t for t, _ in in_event_time_order([(10, "a"), (9, "a"), (100, "a")], 1)] == [9, 10, 100]


def test_input_that_fits_in_memory_does_not_touch_the_disk(spilled):
    assert len(list(in_event_time_order(shuffled(10, 5), 10, directory="/does/not/exist"))) == 10
    assert spilled == []


def test_one_access_more_than_fits_is_spilled(spilled):
    assert len(list(in_event_time_order(shuffled(11, 5), 10))) == 11
    assert len(spilled) == 1


def test_more_runs_than_files_may_be_open_are_merged_in_passes_and_stay_stable(spilled):
    source = shuffled(3 * FAN_IN**2, times=50)
    ordered = in_event_time_order(source, max_in_memory=1)
    first = next(ordered)
    assert len(spilled) > 3 * FAN_IN**2
    assert sum(not file.closed for file in spilled) <= 3 * FAN_IN
    assert [first, *ordered] == sorted(source, key=by_time)


def test_files_are_deleted_at_the_end(spilled, tmp_path):
    list(in_event_time_order(shuffled(100, 50), 10, tmp_path))
    assert spilled
    assert all(file.closed for file in spilled)
    assert list(tmp_path.iterdir()) == []


def test_files_are_deleted_when_the_consumer_stops_early(spilled, tmp_path):
    ordered = in_event_time_order(shuffled(100, 50), 10, tmp_path)
    list(islice(ordered, 5))
    assert not any(file.closed for file in spilled)
    ordered.close()
    assert all(file.closed for file in spilled)
    assert list(tmp_path.iterdir()) == []


def test_files_are_deleted_when_the_input_fails_and_its_error_is_passed_on(spilled):
    def failing():
        yield from shuffled(95, 50)
        raise OSError("the input failed")

    with pytest.raises(OSError, match="the input failed") as failed:
        list(in_event_time_order(failing(), 10))
    assert not isinstance(failed.value, SortFailed)
    assert spilled
    assert all(file.closed for file in spilled)


def test_no_room_on_the_disk_is_a_clear_error_and_leaves_no_file_open(spilled, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(SortFailed, match=f"cannot keep sorted runs in {tmp_path}: .*set TMPDIR"):
            list(in_event_time_order(shuffled(100, 50), 10, tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [file.closed for file in spilled] == [True]


def test_a_missing_directory_is_a_clear_error(tmp_path):
    with pytest.raises(SortFailed, match="No such file"):
        list(in_event_time_order(shuffled(100, 50), 10, tmp_path / "missing"))


def peak_memory(accesses: int, max_in_memory: int) -> int:
    source = ((-place % 1_000_003, "192.0.2.1") for place in range(accesses))
    tracemalloc.start()
    try:
        assert sum(1 for _ in in_event_time_order(source, max_in_memory)) == accesses
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_is_bounded_however_long_the_input():
    # 70 runs, so that FAN_IN of them were merged to one file: their buffers are held, their accesses are not
    assert peak_memory(70_000, 1_000) < (FAN_IN + 10) * BUFFER_BYTES + 500_000


def test_only_one_run_is_in_memory():
    assert peak_memory(50_000, 20_000) < 1.3 * peak_memory(20_000, 20_000)


def test_a_memory_of_no_accesses_is_refused_at_once():
    with pytest.raises(ValueError, match="at least 1 access"):
        in_event_time_order([], max_in_memory=0)
