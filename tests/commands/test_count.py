"""`python -m labs count`: every line of whatever it is given is counted as good or bad, and the counts are right."""

from __future__ import annotations

import gzip
import json
import re
import signal
import subprocess
import sys
from functools import partial

import pytest

from labs.commands.main import main
from labs.equipment.eventually import eventually
from labs.equipment.topics import admin, remove_topics
from labs.evidence.auditor.expected import count_by_window
from labs.evidence.auditor.observed import utc
from labs.pipeline.log.event_time_order import in_event_time_order
from labs.pipeline.log.generate import START_MS, Traffic, classroom, format_line
from labs.runs import count as runs_count


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
def test_empty_log_is_no_error_and_judged_by_nobody(count, tmp_path):
    code, report = count(write(tmp_path / "empty.log", []))
    assert code == 0
    assert (report["lines"], report["counts"], report["audit"]["verdict"]) == (0, [], "unknown")


@pytest.mark.long
def test_as_is_reports_what_came_too_late_and_loses_nothing_else(count, tmp_path, monkeypatch):
    monkeypatch.setattr("labs.runs.count.RECORDS_PER_BATCH", 100)  # only an earlier batch makes a record late
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
        (("--plot", "nowhere/counts.png"), "is no directory that can be written to"),
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
