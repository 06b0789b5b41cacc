import gzip
import io
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
import tracemalloc
import zlib
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from labs.pipeline.log.access_log import parse_line, read_access_log
from labs.pipeline.log.log_files import MAX_LINE, LogUnreadable
from labs.pipeline.log.log_report import BadLine, LogReport
from labs.pipeline.records import LATEST_ACCESS_MS
from tests.pipeline.log.lines import (
    BAD,
    CLIENTS,
    COMBINED,
    COMMON,
    HOSTILE,
    MILLIS,
    NAMED,
    NO_CLIENTS,
    NO_TIMES,
    SAME_ACCESS,
    SKIPPED_TIMES,
    TIMES,
    verdicts,
    with_client,
    with_time,
)


def read(tmp_path, content: bytes, **options):
    log = tmp_path / "access.log"
    log.write_bytes(content)
    report = LogReport()
    accesses = list(read_access_log([log], report, **options))
    assert report.lines == report.good + report.bad_total
    assert report.good == len(accesses)
    return accesses, report


def reason(line: bytes) -> str:
    with pytest.raises(BadLine) as refused:
        parse_line(line)
    return refused.value.reason


@pytest.mark.parametrize("line", SAME_ACCESS)
def test_reads_time_and_client_of_each_format(line):
    assert parse_line(line) == (MILLIS, "192.0.2.1")


def test_a_bracketed_time_in_the_user_name_is_not_believed():
    spoofed = COMMON.replace(b" - - ", b" - x [01/Jan/1999:00:00:00 +0000] y ")
    assert parse_line(spoofed) == (MILLIS, "192.0.2.1")


@pytest.mark.parametrize(("stamp", "zone", "millis"), TIMES)
def test_honours_the_offset_and_uses_the_zone_where_there_is_none(stamp, zone, millis):
    assert parse_line(with_time(stamp), zone)[0] == millis


@pytest.mark.parametrize("stamp", NO_TIMES)
def test_refuses_a_time_that_does_not_exist(stamp):
    assert reason(with_time(stamp)) == "bad time"


@pytest.mark.parametrize("stamp", SKIPPED_TIMES)
def test_refuses_a_time_that_no_clock_of_the_zone_has_shown(stamp):
    with pytest.raises(BadLine, match="bad time"):
        parse_line(with_time(stamp), ZoneInfo("Europe/Berlin"))
    assert parse_line(with_time(stamp), ZoneInfo("Asia/Tokyo"))


def test_lines_that_end_in_carriage_returns_are_not_taken_for_one(tmp_path):
    accesses, report = read(tmp_path, (COMMON + b"\r") * 100 + b"\n" + COMMON + b"\n")
    assert (accesses, report.bad) == ([(MILLIS, "192.0.2.1")], {"carriage return": 1})


def test_two_accesses_in_one_line_are_found_among_lines_of_all_kinds(tmp_path):
    torn = COMMON[:-12] + COMBINED + b"\n"
    accesses, report = read(tmp_path, (COMMON + b"\n5,192.0.2.1\nhello\n") * 50 + torn + COMBINED + b"\n")
    assert (len(accesses), report.bad) == (101, {"unknown format": 50, "two accesses": 1})


@pytest.mark.parametrize(
    "millis", [b"-1", b"99999999990000", b"253402300799999", b"9" * 15, b"9" * 16, b"9" * 30, b"9" * 5000]
)
def test_refuses_epoch_millis_outside_the_years_1970_to_5138(millis):
    assert reason(millis + b",192.0.2.1") == "bad time"


def test_accepts_the_first_and_the_last_millisecond():
    assert parse_line(b"0,192.0.2.1")[0] == 0
    assert parse_line(b"%d,192.0.2.1" % LATEST_ACCESS_MS)[0] == LATEST_ACCESS_MS == 99_999_999_989_999


@pytest.mark.parametrize(("written", "client"), CLIENTS)
def test_accepts_addresses_and_host_names_in_canonical_form(written, client):
    assert parse_line(with_client(written))[1] == client
    assert parse_line(b"5," + written)[1] == client


@pytest.mark.parametrize("line", NAMED)
def test_a_host_name_where_the_client_stands_is_the_client(line):
    assert parse_line(line) == (MILLIS, "client.example.com")


@pytest.mark.parametrize("client", NO_CLIENTS)
def test_refuses_what_is_neither_address_nor_host_name(client):
    assert reason(with_client(client)) == "bad address"
    assert reason(b"5," + client) == "bad address"


@pytest.mark.parametrize(("line", "expected"), BAD)
def test_names_the_reason_for_a_bad_line(line, expected):
    assert reason(line) == expected


def test_a_bad_line_shows_what_was_found_without_its_control_codes():
    with pytest.raises(BadLine) as refused:
        parse_line(b"hello \x1b[31m\xff")
    assert str(refused.value) == r"not text: hello \x1b[31m\xff"


@pytest.mark.parametrize("line", HOSTILE)
def test_a_hostile_line_takes_no_more_time_than_its_length(line):
    started = time.process_time()
    reason(line)
    assert time.process_time() - started < 0.5


@pytest.mark.parametrize(
    "tail", [b"1.1 a a [" * 6_000, b"1.1." * 15_000, b":" * 60_000, b'] "' * 20_000, b"a:: " * 15_000], ids=len
)
def test_a_hostile_tail_takes_no_more_time_than_its_length(tail):
    started = time.process_time()
    assert parse_line(COMMON + b' "] "' + tail) == (MILLIS, "192.0.2.1")
    assert time.process_time() - started < 0.5


def oldest_python() -> str:
    """Return the oldest Python on this machine that the lab promises to run on."""
    ask = "import json, sys; print(json.dumps(sys.version_info[:3]))"
    found = {sys.version_info[:3]: sys.executable}
    for python in {"/usr/bin/python3", "/usr/local/bin/python3", shutil.which("python3"), shutil.which("python3.11")}:
        if python and os.access(python, os.X_OK):
            told = subprocess.run([python, "-c", ask], capture_output=True, timeout=60)
            if told.returncode == 0:
                found[tuple(json.loads(told.stdout))] = python
    return found[min(version for version in found if version >= (3, 11))]


@pytest.mark.bench
def test_oldest_python_of_this_machine_reads_the_same():
    here = verdicts()
    assert [MILLIS, "192.0.2.1"] in here
    root = Path(__file__).parents[3]
    there = subprocess.run(
        [oldest_python(), "-m", "tests.pipeline.log.lines"], cwd=root, capture_output=True, text=True, timeout=60
    )
    assert there.returncode == 0, there.stderr
    assert json.loads(there.stdout) == here


def test_empty_file_has_no_lines(tmp_path):
    assert read(tmp_path, b"") == ([], LogReport())
    assert read(tmp_path, gzip.compress(b"")) == ([], LogReport())


def test_mixed_formats_in_one_file_and_a_last_line_without_newline(tmp_path):
    accesses, report = read(tmp_path, b"\n".join([COMMON, b"5,2001:db8::1", COMBINED + b"\r", b"6,a.example"]))
    assert accesses == [(MILLIS, "192.0.2.1"), (5, "2001:db8::1"), (MILLIS, "192.0.2.1"), (6, "a.example")]
    assert report.lines == 4


def test_a_clock_that_jumps_back_a_day_is_read_as_it_is(tmp_path):
    back = COMMON.replace(b"10/Oct", b"09/Oct")
    accesses, report = read(tmp_path, b"\n".join([COMMON, back, COMMON]))
    assert [time_ms - MILLIS for time_ms, _ in accesses] == [0, -86_400_000, 0]
    assert report.bad_total == 0


def test_invalid_utf8_matters_only_in_the_client(tmp_path):
    accesses, report = read(tmp_path, COMBINED.replace(b"X11", b"\xff\xfe") + b"\n" + with_client(b"a\xff.example"))
    assert accesses == [(MILLIS, "192.0.2.1")]
    assert report.bad == {"bad address": 1}


def test_binary_file_is_all_bad_lines(tmp_path):
    noise = random.Random(7).randbytes(1_000_000).replace(b"\x1f\x8b", b"\0\0")
    accesses, report = read(tmp_path, noise)
    assert accesses == []
    assert report.lines == noise.count(b"\n") + 1
    assert report.bad["not text"] > 0.99 * report.lines


def test_binary_file_without_newlines_is_one_line_too_long(tmp_path):
    _, report = read(tmp_path, b"\0\xff" * 500_000)
    assert report.bad == {"line too long": 1}


@pytest.mark.parametrize("end", [b"", b"\n", b"\n" + COMMON + b"\n"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_10_mb_line_is_one_bad_line_and_is_not_held_in_memory(tmp_path, end, pack):
    log = tmp_path / "access.log"
    log.write_bytes(pack(COMMON + b"\n" + b"x" * 10_000_000 + end))
    report = LogReport()
    tracemalloc.start()
    try:
        accesses = list(read_access_log([log], report))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(accesses) == report.good == 1 + end.count(COMMON)
    assert report.bad == {"line too long": 1}
    assert report.examples["line too long"][0].line_number == 2
    assert peak < 1_500_000


@pytest.mark.parametrize("length", [MAX_LINE - 1, MAX_LINE, MAX_LINE + 1, 2 * MAX_LINE, 3 * MAX_LINE])
@pytest.mark.parametrize("before", [0, 1, 700, 900])
def test_the_longest_line_is_the_same_wherever_it_stands(tmp_path, length, before):
    long = COMMON + b" " + b"x" * (length - len(COMMON) - 1)
    _, report = read(tmp_path, b"\n".join([COMMON] * before + [long, b"", COMMON]))
    assert report.bad == {"empty line": 1} | ({"line too long": 1} if length > MAX_LINE else {})
    assert report.lines == before + 3
    assert report.examples["empty line"][0].line_number == before + 2


def test_memory_does_not_grow_with_the_log(tmp_path):
    log = tmp_path / "access.log"
    log.write_bytes(b"".join(b"%d,192.0.2.%d\n" % (i, i % 250) for i in range(100_000)))
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_access_log([log], LogReport())) == 100_000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2_500_000


def test_memory_does_not_grow_with_the_number_of_clients(tmp_path, monkeypatch):
    monkeypatch.setattr("labs.pipeline.log.access_log.CACHE_SIZE", 1_000)
    log = tmp_path / "access.log"
    log.write_bytes(b"".join(b"%d,10.0.%d.%d\n" % (i, *divmod(i, 256)) for i in range(10_000)))
    tracemalloc.start()
    try:
        assert [t for t, client in read_access_log([log], LogReport())] == list(range(10_000))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2_500_000


def numbered(lines: int) -> bytes:
    return b"".join(b"%d,192.0.2.%d\n" % (i * 7919, i % 250) for i in range(lines))


def test_reads_gzip_and_concatenated_gzip(tmp_path):
    plain = numbered(20_000)
    expected, _ = read(tmp_path, plain)
    members = [gzip.compress(plain[i : i + 30_001]) for i in range(0, len(plain), 30_001)]
    assert read(tmp_path, gzip.compress(plain))[0] == expected
    assert read(tmp_path, b"".join(members))[0] == expected
    padded, report = read(tmp_path, (b"\0" * 70_000).join([*members, b""]))
    assert padded == expected
    assert report.bad_total == 0


@pytest.mark.parametrize("nuls", [65_535, 65_536, 65_537, 131_072])
def test_a_hole_of_nuls_is_no_line_wherever_it_ends(tmp_path, nuls):
    accesses, report = read(tmp_path, b"\0" * nuls + b"5,192.0.2.1\n")
    assert (accesses, report.lines, report.bad_total) == ([(5, "192.0.2.1")], 1, 0)


@pytest.mark.parametrize("kept", [2, 9, 30, 1_000, 50_000, -9, -8, -1])
def test_truncated_gzip_yields_what_is_readable_and_is_one_bad_line(tmp_path, kept):
    packed = gzip.compress(numbered(20_000))[:kept]
    readable = zlib.decompressobj(wbits=31).decompress(packed)
    accesses, report = read(tmp_path, packed)
    assert accesses == [parse_line(line) for line in readable.splitlines()[: readable.count(b"\n")]]
    assert report.bad == {"truncated gzip": 1}
    assert report.examples["truncated gzip"][0].line_number == len(accesses) + 1


def test_no_line_of_a_truncated_gzip_is_lost_wherever_it_is_cut(tmp_path):
    packed = gzip.compress(b"5,192.0.2.1\n" * 12_000)  # a few hundred bytes, each of which holds many lines
    for kept in range(2, len(packed), 3):
        readable = zlib.decompressobj(wbits=31).decompress(packed[:kept])
        _, report = read(tmp_path, packed[:kept])
        assert report.good == readable.count(b"\n")


def test_a_gzip_cut_in_its_second_member_keeps_the_first(tmp_path):
    _, report = read(tmp_path, gzip.compress(numbered(500)) + gzip.compress(numbered(500))[:5])
    assert (report.good, report.bad) == (500, {"truncated gzip": 1})


def test_corrupt_gzip_yields_what_is_readable_and_is_one_bad_line(tmp_path):
    wrong_checksum = bytearray(gzip.compress(numbered(20_000)))
    wrong_checksum[-6] ^= 1
    _, report = read(tmp_path, bytes(wrong_checksum))
    assert (report.good, report.bad) == (20_000, {"corrupt gzip": 1})

    _, report = read(tmp_path, gzip.compress(numbered(500)) + b"junk")
    assert (report.good, report.bad) == (500, {"corrupt gzip": 1})

    _, report = read(tmp_path, b"\x1f\x8b" + b"junk" * 100)
    assert (report.good, report.bad) == (0, {"corrupt gzip": 1})


def test_nothing_before_the_damage_inside_a_gzip_is_lost(tmp_path):
    member = zlib.compressobj(wbits=31)
    sound = member.compress(numbered(20_000)) + member.flush(zlib.Z_FULL_FLUSH)
    accesses, report = read(tmp_path, sound + b"\x07" + sound)  # 7 starts a block of a type that is not defined
    assert (len(accesses), report.bad) == (20_000, {"corrupt gzip": 1})


def test_line_numbers_hold_over_many_blocks(tmp_path):
    good, bad = b"5,192.0.2.1\n", b"\n"
    _, report = read(tmp_path, good + bad + good * 50_000 + b"odd\n" + good)
    assert [e.line_number for e in report.examples["empty line"]] == [2]
    assert [e.line_number for e in report.examples["unknown format"]] == [50_003]


def test_several_files_are_read_in_order_and_lines_numbered_by_file(tmp_path):
    first, second = tmp_path / "a.log", tmp_path / "b.log.gz"
    first.write_bytes(b"1,192.0.2.1\nbad\n2,192.0.2.1")
    second.write_bytes(gzip.compress(b"3,192.0.2.1\n\nworse\n"))
    report = LogReport()
    assert [time_ms for time_ms, _ in read_access_log([first, str(second)], report)] == [1, 2, 3]
    assert [(e.file, e.line_number, e.text) for e in report.examples["unknown format"]] == [
        (str(first), 2, "bad"),
        (str(second), 3, "worse"),
    ]
    assert (report.lines, report.good, report.bad_total) == (6, 3, 3)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_dash_is_standard_input(monkeypatch, pack):
    stdin = io.TextIOWrapper(io.BytesIO(pack(COMMON + b"\nbad\n")))
    monkeypatch.setattr(sys, "stdin", stdin)
    report = LogReport()
    assert list(read_access_log(["-"], report)) == [(MILLIS, "192.0.2.1")]
    assert report.examples["unknown format"] == [("standard input", 2, "bad")]


def test_gzip_is_recognised_on_a_pipe_that_delivers_byte_by_byte(tmp_path):
    fifo = tmp_path / "log"
    os.mkfifo(fifo)

    def deliver():
        with open(fifo, "wb", buffering=0) as writer:
            for byte in gzip.compress(COMMON):
                writer.write(bytes([byte]))

    writing = threading.Thread(target=deliver)
    writing.start()
    assert list(read_access_log([fifo], LogReport())) == [(MILLIS, "192.0.2.1")]
    writing.join()


def test_an_unreadable_path_is_refused_before_anything_is_read(tmp_path):
    good = tmp_path / "access.log"
    good.write_bytes(COMMON)
    for path, cause in [
        (tmp_path / "missing.log", "No such file"),
        (tmp_path, "it is a directory"),
        ("nul\0byte", "null"),
    ]:
        report = LogReport()
        with pytest.raises(LogUnreadable, match=cause):
            read_access_log([good, path], report)
        assert report.lines == 0


def test_a_file_without_permission_is_refused(tmp_path, monkeypatch):
    log = tmp_path / "access.log"
    log.write_bytes(COMMON)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may read anything
    with pytest.raises(LogUnreadable, match="permission denied"):
        read_access_log([log], LogReport())


def test_a_file_that_vanishes_after_the_check_is_unreadable(tmp_path):
    log = tmp_path / "access.log"
    log.write_bytes(COMMON)
    accesses = read_access_log([log], LogReport())
    log.unlink()
    with pytest.raises(LogUnreadable, match="No such file"):
        next(accesses)


def test_a_single_path_may_be_given_bare(tmp_path):
    log = tmp_path / "access.log"
    log.write_bytes(COMMON)
    assert list(read_access_log(str(log), LogReport())) == list(read_access_log(log, LogReport()))


def test_report_shows_counts_and_the_first_three_examples_of_each_reason(tmp_path):
    bad = b"\n".join([b"", with_client(b"1.2.3"), b"odd \x1b[31m\xff" + b"x" * 100, *[b"odd"] * 5])
    _, report = read(tmp_path, COMMON + b"\n" + bad)
    text = str(report)
    assert text.splitlines()[0] == "lines: 9 (1 good, 8 bad)"
    assert "  bad address: 1" in text
    assert "access.log:3: 1.2.3 - - [" in text
    assert text.count("access.log:") == 1 + 1 + 1 + 3
    assert text.replace("\n", "").isprintable()
    assert all(len(e.text) <= 80 for examples in report.examples.values() for e in examples)


def test_report_is_valid_json(tmp_path):
    _, report = read(tmp_path, COMMON + b"\n\xff\n")
    back = json.loads(json.dumps(report.as_dict()))
    assert (back["lines"], back["good"], back["bad"]) == (2, 1, 1)
    assert back["bad_by_reason"] == {"not text": 1}
    assert back["bad_examples"]["not text"][0]["line_number"] == 2


def test_report_adds_up_when_the_reader_stops_early(tmp_path):
    log = tmp_path / "access.log"
    log.write_bytes((COMMON + b"\nbad\n") * 10_000)
    report = LogReport()
    accesses = read_access_log([log], report)
    for _ in range(3):
        next(accesses)
        assert report.lines == report.good + report.bad_total
    accesses.close()
    assert report.lines == report.good + report.bad_total < 20_000


def test_every_line_of_damaged_logs_is_counted(tmp_path):
    draw = random.Random(7)
    clean = b"\n".join([COMBINED, b"971211336000,2001:db8::1", COMMON] * 100)
    for _ in range(200):
        damaged = bytearray(clean)
        for _ in range(30):
            damaged[draw.randrange(len(damaged))] = draw.choice(b'\n\r\0\xff ",[]-9')
        _, report = read(tmp_path, bytes(damaged))
        assert report.lines == len(damaged.removesuffix(b"\n").split(b"\n"))
