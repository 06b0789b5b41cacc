"""What the command prints, writes and returns, whatever the judge returns or raises. Nothing is started."""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from confluent_kafka import KafkaError, KafkaException

from labs.commands.main import main
from labs.judge import judge as the_judge
from labs.judging.job_session import JobRun
from labs.judging.judgement import NO_HEADERS, Judgement
from labs.judging.strikes import KINDS
from labs.judging.workloads import Copy, Output, Reading

WORKLOAD = Copy(40, 1, seed=1)
CLEAN = [Output(0, n, record.value) for n, record in enumerate([*WORKLOAD.inputs, *WORKLOAD.closing])]


def run(*remarks):
    return JobRun(["./café é/copy"], [], 9.0, WORKLOAD.audit(Reading(CLEAN)), remarks)


@pytest.fixture
def judged(monkeypatch):
    """Let the judge return this, or raise it, without any Kafka."""

    def set_to(outcome):
        def judge(*_, **__):
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        monkeypatch.setattr("labs.judge.judge", judge)

    return set_to


DOCS = Path(__file__).parents[2] / "docs"
PAGES = [(DOCS / name).read_text().replace("\\\n", " ") for name in ("judge.md", "commands.md", "teachers-guide.md")]
SHOWN = [command for page in PAGES for command in re.findall("-m labs judge (.+)", page)]


@pytest.mark.parametrize("command", SHOWN)
def test_the_commands_in_the_docs_are_understood(judged, tmp_path, monkeypatch, command):
    judged(Judgement("copy", 7, ["kill"], run()))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reports").mkdir()
    assert main(["judge", *shlex.split(command)]) == 0


def test_the_docs_list_each_fault():
    assert f"`--faults {','.join(KINDS)}`" in PAGES[0]
    for kind in KINDS.keys() - {"kill"}:  # its moments are a list
        assert f"\n| `{kind}` | " in PAGES[0]


def test_the_pytest_in_the_docs_calls_the_judge_as_it_is(monkeypatch):
    def judge(*given, **named):
        inspect.signature(the_judge).bind(*given, **named)
        return Judgement("copy", 7, ["kill"], run())

    monkeypatch.setattr("labs.judge.judge", judge)
    [shown] = re.findall(r"```python\n(from labs\.judge import .*?)```", PAGES[0], re.DOTALL)
    names: dict[str, Any] = {}
    exec(shown, names)
    names["test_my_job_is_exactly_once"]()


@pytest.mark.parametrize("error", [KafkaException(KafkaError(KafkaError._FATAL)), KeyError("x"), OSError("no Kafka")])
def test_no_error_is_taken_for_an_invalid_job(judged, capsys, error):
    judged(error)
    assert main(["judge", "--", "true"]) == 2
    told = capsys.readouterr().err.strip()
    assert told.startswith("python -m labs judge: ")
    assert "\n" not in told


def test_a_report_that_cannot_be_written_changes_no_verdict(judged, capsys, tmp_path):
    judged(Judgement("copy", 7, ["kill"], run()))
    (tmp_path / "gone").mkdir()
    page = tmp_path / "gone" / "page.html"

    def write_text(*_, **__):
        raise PermissionError(13, "Permission denied")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pathlib.Path.write_text", write_text)
        assert main(["judge", "--html", str(page), "--", "true"]) == 0
    told = capsys.readouterr()
    assert "page.html was not written: Permission denied" in told.err
    assert told.out.startswith("judgement: valid")


def test_reports_are_utf_8_in_any_locale(judged, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("locale.getpreferredencoding", lambda *_: "ascii")
    judged(Judgement("copy", 7, ["kill"], run("it printed é")))
    files = [tmp_path / "é 1.xml", tmp_path / "é 1.html"]
    assert main(["judge", "--junit", str(files[0]), "--html", str(files[1]), "--", "true"]) == 0
    assert "it printed é" in (ElementTree.fromstring(files[0].read_bytes())[0][0].text or "")
    assert "café é/copy" in files[1].read_text("utf-8")


def test_a_reader_of_the_output_that_ends_changes_no_verdict(judged, monkeypatch):
    judged(Judgement("copy", 7, ["kill"], run()))
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as broken:
        monkeypatch.setattr("sys.stdout", broken)
        assert main(["judge", "--", "true"]) == 0
        assert sys.stdout is not broken
        with pytest.raises(BrokenPipeError):  # what was not printed is still in there
            broken.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), writing)


@pytest.mark.parametrize("module", ["labs.judge", "labs.commands.console"])
def test_without_a_package_that_it_needs_nothing_is_judged(module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)  # as if its import failed
    assert main(["judge", "--", "true"]) == 2


def test_in_a_directory_that_is_gone_nothing_is_judged(monkeypatch):
    monkeypatch.setattr("labs.commands.main.check_directory", lambda: (_ for _ in ()).throw(RuntimeError("gone")))
    assert main(["judge", "--", "true"]) == 2


def test_a_reader_of_the_progress_that_ends_is_unknown():
    program = "import sys, labs.judge; from labs.commands.main import main; "
    program += "labs.judge.judge = lambda *_, say, **__: say('strike 1 of 4'); sys.exit(main(['judge', '--', 'true']))"
    command = shlex.join([sys.executable, "-c", program])
    ran = subprocess.run(["sh", "-c", f"({command} 2>&1; echo $? >&3) 3>&2 | true"], capture_output=True, text=True)
    assert ran.stderr == "2\n"


def test_a_long_judgement_is_printed_to_its_end(judged, capsys):
    judged(Judgement("copy", 7, ["kill"], run(*(f"{n}: {'x' * 300}" for n in range(30))), run()))
    assert main(["judge", "--", "true"]) == 2
    assert capsys.readouterr().out.rstrip().endswith(NO_HEADERS)


def test_json_is_whole_however_long_an_argument_of_the_job_is(judged, capsys):
    command = ["java", "-cp", "kafka.jar:" * 1_000, "Copy.java"]
    judged(Judgement("copy", 7, ["kill"], replace(run(), command=command)))
    assert main(["judge", "--json", "--", "true"]) == 0
    assert json.loads(capsys.readouterr().out)["job"]["command"] == command
