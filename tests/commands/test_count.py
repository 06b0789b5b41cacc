"""`python -m labs count`: every line of whatever it is given is counted as good or bad, and the counts are right."""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
from collections import Counter, deque
from dataclasses import replace
from functools import partial

import pytest

from labs.commands.console import plain_console
from labs.commands.count import LONG_LOG, UNPACKED, is_long, show
from labs.commands.main import main
from labs.equipment.topics import admin, remove_topics
from labs.equipment.waiting import eventually
from labs.evidence.auditor.audit import audit
from labs.evidence.auditor.expected import count_by_window, requests_per_ip, requests_per_window
from labs.evidence.auditor.observed import Result, utc
from labs.evidence.readers.results import read_visible
from labs.pipeline.log.generate import START_MS, Traffic, classroom, format_line
from labs.pipeline.log.log_report import LogReport
from labs.pipeline.log.replay import Replay, SortFailed, in_event_time_order
from labs.pipeline.records import LATEST_ACCESS_MS
from labs.runs import count as runs_count
from labs.runs.window_parts import WindowParts
from tests.pipeline.log.odd_lines import million
from tests.pipeline.log.second_parser import read_line


@pytest.fixture
def count(spark, broker, monkeypatch, capsys):
    """Run `count --json` on the tests' broker; return its exit code and the object it prints."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)

    def count(*arguments):
        code = main(["count", *map(str, arguments), "--json"])
        return code, json.loads(capsys.readouterr().out)

    return count


def topics(broker) -> set[str]:
    with admin(broker.bootstrap_servers) as client:
        return {name for name in client.list_topics() if not name.startswith("__")}


def write(path, lines: list[bytes]):
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def csv(accesses) -> list[bytes]:
    return [format_line(access, "csv").encode() for access in accesses]


def counted(counts: dict[tuple[int, str], int]) -> runs_count.CountedLog:
    """Return the count of a log whose every line is good, as if Spark had counted it so."""
    log, parts = LogReport(lines=sum(counts.values()), good=sum(counts.values())), WindowParts()
    deque(parts.add(Result(window, ip, count) for (window, ip), count in counts.items()))
    totals = requests_per_window(counts), requests_per_ip(counts)
    return runs_count.CountedLog(log, Replay(), parts, *totals, 0, audit({}, []), runs_count.Topics("", ""))


@pytest.mark.parametrize(("name", "size"), [("access.log", LONG_LOG), ("access.log.gz", LONG_LOG // UNPACKED)])
def test_log_is_long_from_a_size_on(tmp_path, name, size):
    short, long = tmp_path / f"short-{name}", tmp_path / name
    for file, length in ((short, size - 1), (long, size)):
        file.touch()
        os.truncate(file, length)
    assert not is_long([str(short), "-", str(tmp_path / "absent.log")])
    assert is_long([str(short), str(long)])


@pytest.mark.bench
def test_counts_are_those_of_the_log_and_the_topics_are_gone_afterwards(count, broker, tmp_path):
    accesses = list(Traffic(requests=3000, clients=50, rate=300, disorder_ms=5000))
    before, plot = topics(broker), tmp_path / "counts.png"
    code, report = count(write(tmp_path / "access.log", csv(accesses)), "--plot", plot)
    expected = count_by_window(accesses)
    assert code == 0
    assert (report["lines"], report["good"], report["bad"], report["late"]) == (3000, 3000, 0, 0)
    found = {(row["window_start"], row["ip"]): row["count"] for row in report["counts"]}
    assert found == {(utc(window), ip): n for (window, ip), n in expected.items()}
    assert report["windows"] == len({window for window, _ in expected})
    assert report["audit"]["verdict"] == "valid"
    assert plot.read_bytes().startswith(b"\x89PNG")
    eventually(lambda: topics(broker) == before)


@pytest.mark.long
def test_hostile_logs_crash_nothing_and_every_line_is_good_or_bad(count, tmp_path):
    good = csv(classroom(windows=2, clients=3))
    yesterday = csv([(START_MS - 86_400_000, "192.0.2.99")])
    other_format = b'192.0.2.77 - - [01/Jan/2026:00:00:01 +0000] "GET / HTTP/1.1" 200 1'
    not_utf8 = [b"1767225600000,\xff\xfe", b"\xc3\x28"]
    lines = [*good, bytes(range(256)) * 40, b"x" * 10_000_000, b"junk", other_format, *not_utf8, *yesterday]
    whole = gzip.compress(b"\n".join(csv(Traffic(requests=2000))) + b"\n")
    truncated = tmp_path / "access.log.gz"
    truncated.write_bytes(whole[: len(whole) // 2])
    code, report = count(write(tmp_path / "access log.txt", lines), truncated)
    assert code == 0
    assert report["bad_by_reason"] == {
        "not text": 41 + 1,  # the bytes hold 40 newlines; one of what is between them is an empty line's reason
        "line too long": 1,
        "unknown format": 1,
        "bad address": 1,
        "truncated gzip": 1,
    }
    assert report["lines"] == report["good"] + report["bad"]
    assert sum(row["count"] for row in report["counts"]) == report["good"] > len(good) + 2
    assert report["audit"]["verdict"] == "valid"


@pytest.mark.long
def test_empty_log_is_no_success_and_judged_by_nobody(count, tmp_path):
    code, report = count(write(tmp_path / "empty.log", []))
    assert code == 1
    assert (report["lines"], report["counts"], report["audit"]["verdict"]) == (0, [], "unknown")


@pytest.mark.long
def test_as_is_reports_what_came_too_late_and_loses_nothing_else(count, tmp_path, monkeypatch):
    monkeypatch.setattr("labs.runs.count.LARGEST_BATCH", 100)  # only an earlier batch makes a record late
    accesses = list(classroom(windows=6, clients=4))
    stragglers = [(START_MS, "192.0.2.200"), (START_MS + 1, "192.0.2.200")]
    code, report = count(write(tmp_path / "access.log", csv([*accesses, *stragglers])), "--as-is")
    assert code == 0
    assert report["good"] == sum(row["count"] for row in report["counts"]) + report["late"]
    assert report["late"] == 2
    assert report["audit"]["verdict"] == "valid"


@pytest.mark.long
def test_report_shows_addresses_as_they_are_and_keeps_the_topics_if_asked(spark, broker, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    addresses = ["2001:db8:a:b::1", "fd00:bee:1::2", "x" * 60 + ".example.com"]
    log = write(tmp_path / "[bold]:bee:.log", [*csv((START_MS, ip) for ip in addresses), b"junk"])
    assert main(["count", str(log), "--keep"]) == 0
    shown = capsys.readouterr().out
    assert all(ip in shown for ip in addresses)
    assert "[bold]:bee:.log:4: junk" in shown
    kept = re.findall(r"ip_count_(?:source|sink)_\w+", shown)
    assert len(kept) == 2
    assert set(kept) <= topics(broker)
    remove_topics(broker.bootstrap_servers, *kept)


@pytest.mark.bench
def test_latest_time_that_is_read_is_counted_and_a_later_one_is_a_bad_line(count, tmp_path, capsys):
    lines = [*csv((START_MS, f"192.0.2.{n}") for n in range(10)), b"%d,192.0.2.99" % LATEST_ACCESS_MS]
    beyond = [b"%d,192.0.2.3" % (LATEST_ACCESS_MS + 1), b"253402300799999,192.0.2.3"]
    code, report = count(write(tmp_path / "access.log", [*lines, *beyond]))
    assert (report["good"], report["bad_by_reason"]) == (11, {"bad time": 2})
    assert sum(row["count"] for row in report["counts"]) == 11
    assert report["audit"]["verdict"] == "valid"
    assert code == 1  # valid, but no server has logged in 5138


@pytest.mark.bench
def test_a_file_that_is_not_understood_is_named_and_fails_the_count_of_the_others(
    spark, broker, monkeypatch, capsys, tmp_path
):
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    good = write(tmp_path / "good.log", csv(classroom(windows=2, clients=3)))
    windows = tmp_path / "win-utf16.log"
    windows.write_text("192.0.2.1 - - [01/Jan/2026:00:00:01 +0000]", encoding="utf-16")
    assert main(["count", str(good), str(windows)]) == 1
    told = capsys.readouterr()
    assert "60 requests in 2 windows" in told.out
    assert "from 2026-01-01T00:00:00Z to 2026-01-01T00:00:10Z" in told.out
    assert "valid" in told.out
    assert f"NOT ONE of 1 lines was understood as an access. For example, line 1 of {windows} (UTF-16 text)" in told.err
    assert "iconv -f UTF-16" in told.err
    assert str(good) not in told.err


@pytest.mark.bench
def test_seconds_taken_for_milliseconds_are_said_loudly(spark, broker, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    log = write(tmp_path / "access.log", [b"%d,192.0.2.1" % (1_760_000_000 + n) for n in range(10)])
    assert main(["count", str(log), "--json"]) == 1
    told = capsys.readouterr()
    assert json.loads(told.out)["span"] == ["1970-01-21T08:53:20Z", "1970-01-21T08:53:25Z"]
    assert "THE TIMES CANNOT BE RIGHT: the requests are from 1970-01-21T08:53:20Z to" in told.err
    assert "seconds are taken for milliseconds" in told.err


KEEPS = """
import signal
from contextlib import suppress
from types import SimpleNamespace
from labs.commands.count import keep
from labs.equipment.interrupts import ended_as_by_ctrl_c
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # a suite that runs in the background hands on that it is ignored
signal.signal(signal.SIGINT, signal.default_int_handler)
with suppress(KeyboardInterrupt), ended_as_by_ctrl_c():  # that is what it is to one who does not wait yet
    keep(SimpleNamespace(bootstrap_servers="127.0.0.1:1", external=False), SimpleNamespace(topics=["kept"]))
print("ended")
"""


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_kafka_of_its_own_is_kept_until_ctrl_c_or_the_end_of_its_terminal(number):
    with subprocess.Popen([sys.executable, "-c", KEEPS], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "Ctrl-C ends it" in process.stdout.readline()
        process.send_signal(number)
        try:
            assert process.wait(30) == 0
        finally:
            process.kill()
        assert process.stdout.read() == "ended\n"


@pytest.mark.long
@pytest.mark.parametrize("option", [(), ("--json",)])
def test_log_of_which_nothing_is_understood_is_said_loudly_with_an_example(
    spark, broker, monkeypatch, capsys, tmp_path, option
):
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    log = write(tmp_path / "not a log", [b"", b"junk", b"more junk"])
    before = topics(broker)
    assert main(["count", str(log), *option]) == 1
    told = capsys.readouterr()
    assert "count: NOT ONE of 3 lines was understood as an access. For example, line 2 of" in told.err
    assert "(unknown format):\n    junk\nexpected the common and the combined format" in told.err
    assert (json.loads(told.out)["bad"] == 3) if option else (told.out == "")
    eventually(lambda: topics(broker) == before)


@pytest.fixture
def nothing_starts(monkeypatch):
    """Fail a test that starts Kafka or Spark."""

    def start(*_, **__):
        raise AssertionError("Kafka or Spark was started")

    monkeypatch.setattr("labs.equipment.broker.open_broker", start)
    monkeypatch.setattr("labs.equipment.spark.spark_session", start)
    monkeypatch.setattr("labs.commands.demo.kafka_behind_a_proxy", start)


@pytest.mark.parametrize("content", [b"junk\n" * 3, b"", b"PK\x03\x04", b'{"remote_addr":"192.0.2.1"}\n'])
def test_a_log_that_nobody_understands_starts_neither_kafka_nor_spark(nothing_starts, capsys, tmp_path, content):
    log = tmp_path / "access.log"
    log.write_bytes(content)
    assert main(["count", str(log)]) == 1
    assert main(["demo", "--log", str(log), "--output", str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err.count("NOT ONE") == 2


def test_a_pipe_is_looked_at_once_and_what_was_seen_is_counted_too(tmp_path):
    lines = csv(Traffic(requests=20_000))
    os.mkfifo(tmp_path / "pipe")
    writing = threading.Thread(target=write, args=(tmp_path / "pipe", [b"junk", *lines]))
    writing.start()
    log = runs_count.open_log([tmp_path / "pipe"])
    assert log.understood
    assert sum(1 for _ in log.accesses) == log.report.good == 20_000
    assert log.report.bad == {"unknown format": 1}
    writing.join()


WAITS_FOR_A_PIPE = """
from labs.runs.count import open_log
log = open_log(["-"])
assert log.understood and not log.is_in_order(0.5)
print("ended")
"""


def test_a_program_can_end_while_its_log_is_a_pipe_that_stays_open():
    reading, writing = os.pipe()
    with open(reading, "rb") as log, open(writing, "wb", buffering=0) as writer:
        writer.write(b"".join(line + b"\n" for line in csv(Traffic(requests=1_000))))
        told = subprocess.run([sys.executable, "-c", WAITS_FOR_A_PIPE], stdin=log, capture_output=True, timeout=60)
    assert (told.returncode, told.stdout, told.stderr) == (0, b"ended\n", b"")


def test_a_log_that_cannot_be_sorted_says_so_to_who_reads_it(tmp_path, monkeypatch):
    nowhere = partial(in_event_time_order, max_in_memory=100, directory=tmp_path / "nowhere")
    monkeypatch.setattr(runs_count, "in_event_time_order", nowhere)
    log = runs_count.open_log([write(tmp_path / "access.log", csv(Traffic(requests=1_000)))])
    with pytest.raises(SortFailed, match="set TMPDIR"):
        next(log.accesses)


def test_requests_that_kafka_did_not_take_are_said_with_the_reason():
    told = counted({(0, "a"): 5})
    assert replace(told, replay=Replay(5, 5)).unsent == ""
    assert replace(told, replay=Replay(5, 3, errors=["too large"])).unsent == (
        "2 of 5 requests were not acknowledged by Kafka: too large"
    )


@pytest.mark.bench
def test_results_are_published_while_the_log_is_being_sent(spark, broker, tmp_path):
    accesses, early = list(Traffic(requests=20_000, rate=100)), []

    def progress(task, done, total):
        if task == runs_count.SENDING and done == 10_000:
            early.extend(eventually(lambda: read_visible(broker.bootstrap_servers, new.sink), timeout=60))

    log = runs_count.open_log([write(tmp_path / "access.log", csv(accesses))])
    with runs_count.fresh_topics(broker.bootstrap_servers) as new:
        counted = runs_count.count_log(log, spark, broker.bootstrap_servers, new, progress)
    assert dict(counted.counts()) == count_by_window(accesses)
    assert counted.audit.valid
    assert 0 < len(early) < counted.audit.observed


@pytest.mark.bench
@pytest.mark.parametrize("task", [runs_count.SENDING, runs_count.COUNTING])
def test_ctrl_c_ends_the_query(spark, broker, tmp_path, task):
    def progress(now, done, total):
        if now == task and done:
            signal.raise_signal(signal.SIGINT)

    before = topics(broker)
    log = runs_count.open_log([write(tmp_path / "access.log", csv(Traffic(requests=20_000)))])
    with pytest.raises(KeyboardInterrupt), runs_count.fresh_topics(broker.bootstrap_servers) as new:
        runs_count.count_log(log, spark, broker.bootstrap_servers, new, progress)
    assert spark.streams.active == []
    eventually(lambda: topics(broker) == before)


@pytest.mark.bench
def test_a_query_that_fails_ends_the_sending_and_says_why(spark, broker, tmp_path):
    """The sink refuses the second count, since its marker names the query of the first."""
    lines, sent = csv(Traffic(requests=200_000)), []

    def progress(task, done, total):
        if task == runs_count.SENDING:
            sent.append(done)
            if done == 100_000:
                eventually(lambda: not spark.streams.active, timeout=60)

    with runs_count.fresh_topics(broker.bootstrap_servers) as new:
        first, second = (write(tmp_path / name, rows) for name, rows in (("first", lines[:100]), ("second", lines)))
        runs_count.count_log(runs_count.open_log([first]), spark, broker.bootstrap_servers, new)
        with pytest.raises(runs_count.CountFailed, match=r"the count has failed: sink .* refuses batch 0 of query"):
            runs_count.count_log(runs_count.open_log([second]), spark, broker.bootstrap_servers, new, progress)
    assert max(sent) == 100_000


@pytest.mark.parametrize(
    ("windows", "wrong"),
    [
        ([START_MS], ""),
        ([0, START_MS], "1970-01-01T00:00:00Z"),
        ([599_999_995_000], "1989-01-05T10:39:55Z"),
        ([631_152_000_000], ""),
        ([START_MS, 4_102_444_800_000], "2100-01-01T00:00:05Z"),
        ([], ""),
    ],
)
def test_times_at_which_no_server_can_have_logged_are_doubted(windows, wrong):
    doubt = counted({(window, "192.0.2.1"): 1 for window in windows}).doubt
    assert (f"logged one at {wrong}" in doubt) if wrong else (doubt == "")


@pytest.mark.parametrize(
    ("counts", "busiest"),
    [
        ({(START_MS, "a"): 3, (START_MS + 5_000, "a"): 2, (START_MS + 5_000, "b"): 2}, (START_MS + 5_000, 4)),
        ({(START_MS + 5_000, "a"): 3, (START_MS, "b"): 3}, (START_MS, 3)),
        ({}, None),
    ],
)
def test_busiest_window_has_the_most_requests_of_all_clients_and_is_the_first_of_several(counts, busiest):
    assert counted(counts).busiest == busiest


def test_report_names_the_busiest_window_in_words_and_in_json(capsys):
    found, console = counted({(START_MS, "192.0.2.1"): 2_000, (START_MS + 5_000, "192.0.2.2"): 1}), plain_console()
    for as_json in (False, True):
        show(found, argparse.Namespace(plot=None, json=as_json, top=10), console)
    *lines, report = capsys.readouterr().out.splitlines()
    assert lines[0] == "2,001 requests in 2 windows of 5 s"
    assert "busiest window: 2026-01-01T00:00:00Z, 2,000 requests" in lines
    assert json.loads(report)["busiest"] == {"window_start": "2026-01-01T00:00:00Z", "requests": 2_000}


@pytest.mark.bench
def test_missing_log_is_one_clear_line(capsys):
    assert main(["count", "no-such.log"]) == 1
    said = capsys.readouterr().err.strip()
    assert "no-such.log" in said
    assert len(said.splitlines()) == 1


@pytest.mark.bench
def test_unknown_time_zone_is_one_clear_line(capsys, tmp_path):
    log = write(tmp_path / "access.log", csv(classroom(1, 1)))
    assert main(["count", str(log), "--timezone", "Atlantis/Capital"]) == 1
    assert "Europe/Berlin" in capsys.readouterr().err


@pytest.mark.bench
@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--plot", "nowhere/counts.png"), "is not a directory that you can write to"),
        (("--plot", "counts.xyz"), "must end in .png, .svg, .pdf"),
        (("--top", "0"), "--top is 0; expected 1 or more"),
    ],
)
def test_option_that_cannot_work_is_said_before_the_work(capsys, tmp_path, option, message):
    log = write(tmp_path / "access.log", [b"1767225600000,192.0.2.1"])
    assert main(["count", str(log), *option]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.timeout(900)
def test_more_lines_than_are_sorted_in_memory_are_counted_right(count, tmp_path, monkeypatch):
    monkeypatch.setattr(runs_count, "in_event_time_order", partial(in_event_time_order, max_in_memory=20_000))
    log, lines = tmp_path / "long.log", 50_000
    with log.open("w") as file:
        file.writelines(format_line(access) + "\n" for access in Traffic(requests=lines))
    code, report = count(log)
    assert code == 0
    assert report["good"] == sum(row["count"] for row in report["counts"]) == lines
    assert report["audit"]["verdict"] == "valid"


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("lines", [100_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_lines_of_every_form_are_counted_as_a_second_parser_reads_them(count, tmp_path, lines):
    log, bad = tmp_path / "access.log", 0
    expected: Counter[tuple[str, str]] = Counter()
    with log.open("wb") as file:
        for line in million(random.Random(7), lines):
            file.write(line + b"\n")
            read = read_line(line)
            if read is None:
                bad += 1
            else:
                expected[utc(read[0] - read[0] % 5_000), read[1]] += 1
    code, report = count(log)
    found = {(row["window_start"], row["ip"]): row["count"] for row in report["counts"]}
    assert found == expected
    assert (report["lines"], report["bad"]) == (lines, bad)
    assert bad > lines / 10
    assert report["audit"]["verdict"] == "valid"
    assert code == 0
