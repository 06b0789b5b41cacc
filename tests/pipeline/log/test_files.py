"""What the files of a log are: a verdict for each, and those refused at once that are no file and no pipe."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import pty
import socket
import subprocess
import sys
import tarfile
import threading
import zipfile

import pytest

from labs.pipeline.log import log_files
from labs.pipeline.log.access_log import read_access_log
from labs.pipeline.log.log_files import LogUnreadable
from labs.pipeline.log.log_report import WANTED, LogReport, NotALog
from tests.pipeline.log.lines import COMBINED, COMMON, MILLIS

GOOD = COMMON + b"\n"


def read(*paths):
    report = LogReport()
    return list(read_access_log(paths, report)), report


def tar(format: int = tarfile.PAX_FORMAT) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=format) as archive:
        member = tarfile.TarInfo("access.log")
        member.size = len(GOOD)
        archive.addfile(member, io.BytesIO(GOOD))
    return packed.getvalue()


def zipped() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("access.log", GOOD)
    return packed.getvalue()


KINDS = [
    ("UTF-16 text", GOOD.decode().encode("utf-16")),
    ("UTF-16 text", b"\xfe\xff" + GOOD.decode().encode("utf-16-be")),
    ("UTF-16 text", GOOD.decode().encode("utf-16-le")),
    ("UTF-16 text", GOOD.decode().encode("utf-16-be")),
    ("UTF-16 text", gzip.compress(GOOD.decode().encode("utf-16"))),
    ("UTF-32 text", GOOD.decode().encode("utf-32")),
    ("zip archive", zipped()),
    ("bzip2", bz2.compress(GOOD)),
    ("xz", lzma.compress(GOOD)),
    ("zstd", b"\x28\xb5\x2f\xfd\x04\x58\x49\x02\0" + GOOD),
    ("lz4", b"\x04\x22\x4d\x18" + GOOD),
    ("7z archive", b"7z\xbc\xaf\x27\x1c\0\x04" + GOOD),
    ("compress", b"\x1f\x9d\x90" + GOOD),
    ("gzip in a gzip", gzip.compress(gzip.compress(GOOD))),
    ("tar archive", tar()),
    ("tar archive", tar(tarfile.GNU_FORMAT)),
    ("tar archive", tar(tarfile.USTAR_FORMAT)),
    ("tar archive", gzip.compress(tar())),
]


@pytest.mark.parametrize(("kind", "content"), KINDS)
def test_a_file_of_another_kind_is_named_among_others_and_says_how_to_read_it(tmp_path, kind, content):
    good, odd = tmp_path / "good.log", tmp_path / "odd.log"
    good.write_bytes(GOOD)
    odd.write_bytes(content)
    accesses, report = read(odd, good)
    assert accesses == [(MILLIS, "192.0.2.1")]
    assert report.bad == {kind: 1}
    with pytest.raises(NotALog) as told:
        report.insist()
    assert f"line 1 of {odd} ({kind}), expected {WANTED[kind]}" in str(told.value)
    assert str(good) not in str(told.value)


def test_every_kind_says_what_is_wanted():
    assert {name for _, name in log_files._BEGINNINGS} | {"tar archive"} <= WANTED.keys()


def test_a_file_of_which_nothing_is_understood_does_not_hide_behind_others(tmp_path):
    good, garbled, empty = (tmp_path / name for name in ("good.log", "garbled.log", "empty.log"))
    good.write_bytes(GOOD)
    garbled.write_bytes(b"\none\ntwo\n")
    empty.write_bytes(b"")
    _, report = read(good, garbled, empty)
    assert [(each.file, each.lines, each.good) for each in report.files] == [
        (str(good), 1, 1),
        (str(garbled), 3, 0),
        (str(empty), 0, 0),
    ]
    assert f"NOT ONE of 3 lines was understood as an access. For example, line 2 of {garbled}" in report.complaint
    assert f"{empty}: no lines" in report.summary
    assert str(good) not in report.complaint


def test_a_file_with_one_good_line_is_no_complaint(tmp_path):
    log = tmp_path / "access.log"
    log.write_bytes(b"junk\n" * 5 + GOOD)
    _, report = read(log)
    report.insist()
    assert report.complaint == ""


def test_an_empty_log_is_a_complaint(tmp_path):
    log = tmp_path / "access.log"
    for content in (b"", gzip.compress(b"")):
        log.write_bytes(content)
        _, report = read(log)
        with pytest.raises(NotALog, match=r"NOT ONE line in .*access\.log"):
            report.insist()


@pytest.mark.parametrize("hole", [1, 65_535, 65_536, 65_537, 200_000, 3_000_000])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_the_hole_of_a_log_that_was_emptied_costs_no_line(tmp_path, hole, pack):
    log = tmp_path / "access.log"
    log.write_bytes(pack(b"\0" * hole + GOOD + COMBINED + b"\n" + b"\0" * hole + GOOD))
    accesses, report = read(log)
    assert (accesses, report.bad_total) == ([(MILLIS, "192.0.2.1")] * 3, 0)


def test_nulls_alone_are_a_bad_line_wherever_they_stand(tmp_path):
    log = tmp_path / "access.log"
    for content in (b"\0" * 100_000, b"\0" * 100_000 + b"\n", GOOD + b"\0" * 100_000, GOOD + b"\0\n" + GOOD):
        log.write_bytes(content)
        _, report = read(log)
        assert report.bad == {"empty line": 1}
        assert report.lines == 1 + content.count(GOOD)


@pytest.mark.parametrize("character", ["\x1b[2J", "\n", "\r", "\u202e", "\udcff", "\x9b"])
def test_the_name_of_a_log_is_printed_without_control_codes(tmp_path, character):
    name = f"a{character}b.log"
    log = tmp_path / name
    log.write_bytes(b"junk\n")
    _, report = read(log)
    told = [str(report), report.complaint, report.files[0].file, report.examples["unknown format"][0].file]
    with pytest.raises(LogUnreadable) as refused:
        read(tmp_path / name / "missing")
    for text in [*told, str(refused.value)]:
        assert text.replace("\n", "").isprintable()
        assert name not in text
        assert text.encode()  # no surrogates


def test_a_name_with_letters_of_any_language_is_printed_as_it_is(tmp_path):
    log = tmp_path / "žurnál 日本.log"
    log.write_bytes(b"junk\n")
    assert "žurnál 日本.log:1: junk" in str(read(log)[1])


@pytest.fixture
def terminal():
    ends = pty.openpty()
    yield os.ttyname(ends[1])
    for end in ends:
        os.close(end)


def test_what_is_no_file_and_no_pipe_is_refused_at_once(tmp_path, terminal):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for path, what in [
            ("/dev/null", "a terminal or device"),
            (terminal, "a terminal or device"),
            (tmp_path / "socket", "a socket"),
        ]:
            with pytest.raises(LogUnreadable, match=f"it is {what}, expected a file or a pipe; .*labs count -"):
                read(path)
        (tmp_path / "access.log").symlink_to("/dev/null")
        with pytest.raises(LogUnreadable, match="a link to '/dev/null'"):
            read(tmp_path / "access.log")


@pytest.mark.parametrize("other", ["access.log", "./access.log", "link.log", "hard.log", "/dev/stdin", "-"])
def test_a_log_that_is_given_twice_is_refused_and_not_counted_twice(tmp_path, other):
    log = tmp_path / "access.log"
    log.write_bytes(GOOD)
    (tmp_path / "link.log").symlink_to(log)
    (tmp_path / "hard.log").hardlink_to(log)
    with log.open("rb") as stdin:
        told = reader("access.log", other, cwd=tmp_path, stdin=stdin, capture_output=True)
    assert f"log {other!r} is the same file as 'access.log'" in told.stderr.decode()
    assert told.stdout == b""


def test_a_log_that_is_emptied_while_it_is_read_has_a_bad_line(tmp_path):
    log, report = tmp_path / "access.log", LogReport()
    log.write_bytes(GOOD * 10_000)
    accesses = read_access_log([log], report)
    next(accesses)
    log.write_bytes(GOOD)
    rest = list(accesses)
    assert report.bad == {"shortened while it was read": 1}
    assert 0 < 1 + len(rest) == report.good < 10_000


@pytest.mark.parametrize("during", ["renamed", "appended to"])
def test_a_log_that_is_rotated_or_grows_while_it_is_read_is_read_whole(tmp_path, during):
    log, report = tmp_path / "access.log", LogReport()
    log.write_bytes(GOOD * 10_000)
    accesses = read_access_log([log], report)
    next(accesses)
    if during == "renamed":
        log.rename(tmp_path / "access.log.1")
        log.write_bytes(GOOD)
    else:
        with log.open("ab") as more:
            more.write(GOOD)
    assert 1 + len(list(accesses)) == 10_000 + (during == "appended to")
    assert report.bad_total == 0


READS = """
import sys
from labs.pipeline.log.access_log import read_access_log
from labs.pipeline.log.log_report import LogReport
report = LogReport()
try:
    print(len(list(read_access_log(sys.argv[1:], report))))
except OSError as error:
    sys.exit(f"refused: {error}")
"""


def reader(*arguments, **streams):
    return subprocess.run([sys.executable, "-c", READS, *map(str, arguments)], timeout=60, check=False, **streams)


def test_own_output_is_not_read_be_it_a_pipe_or_a_file(tmp_path):
    link, log = tmp_path / "access.log", tmp_path / "real.log"
    link.symlink_to("/dev/stdout")
    piped = reader(link, capture_output=True)
    assert b"where this command's own output goes (a link to '/dev/stdout')" in piped.stderr
    log.write_bytes(GOOD)
    for stream in ("stdout", "stderr"):
        with log.open("ab") as appended:
            other = "stderr" if stream == "stdout" else "stdout"
            told = reader(log, **{stream: appended, other: subprocess.PIPE})
        assert told.returncode == 1
    assert log.read_bytes().startswith(GOOD + b"refused: ")
    with log.open("ab") as appended, log.open("rb") as stdin:
        told = reader("-", stdin=stdin, stdout=appended, stderr=subprocess.PIPE)
    assert b"cannot read standard input: this command's output goes to the same file" in told.stderr


def test_a_pipe_and_what_a_shell_makes_of_one_are_read(tmp_path):
    assert reader("-", input=GOOD, capture_output=True).stdout == b"1\n"
    assert reader("/dev/stdin", input=GOOD, capture_output=True).stdout == b"1\n"
    os.mkfifo(tmp_path / "pipe")
    writing = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(GOOD))
    writing.start()
    assert read(tmp_path / "pipe")[0] == [(MILLIS, "192.0.2.1")]
    writing.join()
