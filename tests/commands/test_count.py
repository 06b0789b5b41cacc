"""`python -m labs count`: every line of whatever it is given is counted as good or bad, and the counts are right."""

from __future__ import annotations

import gzip
import json

import pytest

from labs.commands import main
from labs.evidence.counted_log import iso
from labs.evidence.expected import count_by_window
from labs.pipeline.generate import START_MS, Traffic, classroom, format_line


@pytest.fixture
def count(spark, broker, monkeypatch, capsys):
    """Run `count --json` on the tests' broker; return its exit code and the object it prints."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)

    def count(*arguments):
        code = main(["count", *map(str, arguments), "--json"])
        return code, json.loads(capsys.readouterr().out)

    return count


def write(path, lines: list[bytes]):
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def csv(accesses) -> list[bytes]:
    return [format_line(access, "csv").encode() for access in accesses]


def test_counts_are_those_of_the_log(count, tmp_path):
    accesses = list(Traffic(requests=3000, clients=50, rate=300, disorder_ms=5000))
    code, report = count(write(tmp_path / "access.log", csv(accesses)))
    expected = count_by_window(accesses)
    assert code == 0
    assert (report["lines"], report["good"], report["bad"], report["late"]) == (3000, 3000, 0, 0)
    found = {(row["window_start"], row["ip"]): row["count"] for row in report["counts"]}
    assert found == {(iso(window), ip): n for (window, ip), n in expected.items()}
    assert report["windows"] == len({window for window, _ in expected})
    assert report["audit"]["verdict"] == "valid"


HOSTILE = {
    "binary": (lambda good: [*good[:20], bytes(range(256)) * 40, *good[20:]], None),
    "ten megabyte line": (lambda good: [*good[:20], b"x" * 10_000_000, *good[20:]], 1),
    "invalid UTF-8": (lambda good: [*good, b"1767225600000,\xff\xfe", b"\xc3\x28"], 2),
    "mixed formats": (
        lambda good: [*good, b'192.0.2.77 - - [01/Jan/2026:00:00:01 +0000] "GET / HTTP/1.1" 200 1', b"junk"],
        1,
    ),
    "clock jumps back a day": (lambda good: [*good, *csv([(START_MS - 86_400_000, "192.0.2.99")])], 0),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_log_crashes_nothing_and_every_line_is_good_or_bad(count, tmp_path, name):
    spoil, bad = HOSTILE[name]
    lines = spoil(csv(classroom(windows=2, clients=3)))
    code, report = count(write(tmp_path / "access log.txt", lines))
    assert code == 0
    assert report["lines"] == report["good"] + report["bad"]
    if bad is not None:
        assert report["bad"] == bad
    assert sum(row["count"] for row in report["counts"]) == report["good"]
    assert report["audit"]["verdict"] == "valid"


def test_truncated_gzip_is_counted_as_far_as_it_goes(count, tmp_path):
    whole = gzip.compress(b"\n".join(csv(Traffic(requests=2000))) + b"\n")
    (tmp_path / "access.log.gz").write_bytes(whole[: len(whole) // 2])
    code, report = count(tmp_path / "access.log.gz")
    assert code == 0
    assert report["bad_by_reason"] == {"truncated gzip": 1}
    assert 0 < report["good"] == sum(row["count"] for row in report["counts"])


def test_empty_log_is_no_error_and_judged_by_nobody(count, tmp_path):
    code, report = count(write(tmp_path / "empty.log", []))
    assert code == 0
    assert (report["lines"], report["counts"], report["audit"]["verdict"]) == (0, [], "unknown")


def test_as_is_reports_what_came_too_late_and_loses_nothing_else(count, tmp_path):
    accesses = list(classroom(windows=6, clients=4))
    stragglers = [(START_MS, "192.0.2.200"), (START_MS + 1, "192.0.2.200")]
    code, report = count(write(tmp_path / "access.log", csv([*accesses, *stragglers])), "--as-is")
    assert code == 0
    assert report["good"] == sum(row["count"] for row in report["counts"]) + report["late"]
    assert report["audit"]["verdict"] == "valid"


def test_missing_log_is_one_clear_line(capsys):
    assert main(["count", "no-such.log"]) == 1
    said = capsys.readouterr().err.strip()
    assert "no-such.log" in said
    assert len(said.splitlines()) == 1


def test_unknown_time_zone_is_one_clear_line(capsys, tmp_path):
    log = write(tmp_path / "access.log", csv(classroom(1, 1)))
    assert main(["count", str(log), "--timezone", "Atlantis/Capital"]) == 1
    assert "Europe/Berlin" in capsys.readouterr().err


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


def test_log_without_one_good_line_is_a_failure(count, tmp_path):
    code, report = count(write(tmp_path / "not a log", [b"junk", b"more junk"]))
    assert (code, report["good"], report["bad"]) == (1, 0, 2)


def test_plot_is_written(count, tmp_path):
    log, plot = write(tmp_path / "access.log", csv(classroom(2, 2))), tmp_path / "counts.png"
    count(log, "--plot", plot)
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.timeout(300)
def test_a_million_lines_are_counted_right(count, tmp_path):
    log = tmp_path / "million.log"
    with log.open("w") as file:
        file.writelines(format_line(access) + "\n" for access in Traffic(requests=1_000_000))
    code, report = count(log)
    assert code == 0
    assert report["good"] == sum(row["count"] for row in report["counts"]) == 1_000_000
    assert report["audit"]["verdict"] == "valid"
