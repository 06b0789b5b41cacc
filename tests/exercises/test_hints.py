"""What a student is told whose code ends badly: what was raised, where, in which of its starts, and a hint for that."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import pytest

from labs.commands.main import main
from labs.exercises.checker.check import EXERCISES, check, find_exercise
from labs.exercises.checker.report import Report
from labs.exercises.checker.rounds import History, ended_badly
from labs.exercises.checker.scenario import HINTS, Finding, Grade
from labs.exercises.checker.student_process import Run
from labs.exercises.exactly_once_sink import NO_MARKER, NOT_READ, OUTSIDE, what_became_of_the_marker

pytestmark = pytest.mark.timeout(300)


def crashed(error: str, restarted: bool) -> Finding:
    return Finding(
        scenario="no crash", action="", grade=Grade.FAILED, symptom="crashed", cause=error, restarted=restarted
    )


@pytest.mark.parametrize("name", EXERCISES)
def test_hint_on_a_restart_is_only_for_code_that_was_restarted(name):
    exercise = find_exercise(name)
    assert "restart" not in exercise.hint(crashed("KeyError", restarted=False)).replace(
        "nothing to do with a restart", ""
    )
    assert exercise.hint(crashed("NameError", restarted=False)) == HINTS["crashed: NameError"]
    assert exercise.hint(crashed("KeyError", restarted=True)) != exercise.hint(
        crashed("KeyError", restarted=False)
    ) or (name == "two_phase")


def test_call_outside_of_a_transaction_has_a_hint_of_its_own():
    hint = find_exercise("exactly_once_sink").hint(crashed("KafkaException", restarted=False))
    assert "between begin_transaction and commit_transaction" in hint


def test_marker_that_is_missing_outside_or_not_read_has_a_hint_of_its_own():
    exercise = find_exercise("exactly_once_sink")

    def hint(symptom: str, cause: str) -> str:
        finding = Finding(scenario="crash after commit", action="", grade=Grade.FAILED, symptom=symptom, cause=cause)
        return exercise.hint(finding)

    told = [hint("doubled", cause) for cause in ("", NO_MARKER, OUTSIDE, NOT_READ)] + [hint("lost", OUTSIDE)]
    assert len(set(told)) == 5
    assert all("kafka.mark(batch_id, producer)" in hint(symptom, OUTSIDE) for symptom in ("doubled", "lost"))


@pytest.mark.parametrize(
    ("calls", "cause"),
    [
        (["kafka.new_producer", "producer.produce(x)"], NO_MARKER),
        (["kafka.last_batch", "kafka.mark(2)"], OUTSIDE),
        (["kafka.last_batch", "kafka.mark(2, producer)", "kafka.mark(2)"], OUTSIDE),
        (["kafka.mark(2, producer)"], NOT_READ),
        (["kafka.last_batch", "kafka.mark(2, producer)"], ""),
    ],
)
def test_what_became_of_the_marker_is_seen_in_the_calls(calls, cause):
    events = []
    for call in calls:
        events.append({"when": 0.0, "kind": "point", "what": f"before {call.partition('(')[0]}"})
        events.append({"when": 0.0, "kind": "call", "what": call})
    assert what_became_of_the_marker(Run("returned", "", "", events)) == cause


def test_summary_says_of_every_scenario_why_it_did_not_pass():
    findings = [
        Finding(scenario="a", action="", grade=Grade.PASSED, detail="20 of 20"),
        Finding(scenario="b", action="", grade=Grade.FAILED, symptom="lost", detail="17 of 20", lost=3),
        Finding(scenario="c", action="", grade=Grade.FAILED, symptom="torn", detail="2 of 5 rows\nmore"),
        Finding(scenario="d", action="", grade=Grade.UNKNOWN, detail="the fault found no place to strike"),
        Finding(scenario="e", action="", grade=Grade.NOT_RUN),
    ]
    assert Report("x", "x.py", findings).summary.splitlines() == [
        "a: passed",
        "b: failed (3 lost, 0 doubled)",
        "c: failed (torn: 2 of 5 rows)",
        "d: unknown (the fault found no place to strike)",
    ]


def append(*lines: str) -> str:
    return "def append(log, record):\n" + "\n".join(f"    {line}" for line in lines) + "\n"


MUTE = "class Mute(Exception):\n    def __str__(self):\n        raise self\n    __repr__ = __str__\n\n\n"
# code -> (symptom, what the detail says, what the hint says)
ENDS_BADLY = {
    "raises at once": (
        append("raise KeyError('boom')"),
        "crashed",
        "your code raised KeyError: 'boom' (line 2: raise KeyError('boom')), in its first run",
        "nothing to do with a restart",
    ),
    "a name of another cell": (
        append("return helper(log)"),
        "crashed",
        "your code raised NameError: name 'helper' is not defined (line 2: return helper(log)), in its first run",
        "runs this code alone",
    ),
    "an exception that cannot be shown": (
        MUTE + append("raise Mute"),
        "crashed",
        "your code raised Mute: (it cannot be shown: that raises Mute) (line 8: raise Mute), in its first run",
        "nothing to do with a restart",
    ),
    "an exception that leaves while it is shown": (
        MUTE.replace("raise self", "raise SystemExit") + append("raise Mute"),
        "crashed",
        "your code raised Mute: (it cannot be shown: that raises SystemExit) (line 8: raise Mute), in its first run",
        "nothing to do with a restart",
    ),
    "an exception that clears the screen": (
        append(r"raise ValueError('\x1b[2J\npassed\n\npassed in 3 s')"),
        "crashed",
        r"your code raised ValueError: \x1b[2J … (line 2: raise ValueError(",
        "nothing to do with a restart",
    ),
    "ten megabytes": (append("raise ValueError('x' * 10_000_000)"), "crashed", "more characters)", "restart"),
    "sys.exit with an object": (
        "import sys\n" + MUTE + append("sys.exit(Mute())"),
        "exited",
        "sys.exit((it cannot be shown: that raises Mute)) was called (line 9: sys.exit(Mute()))",
        "Return from the function",
    ),
    "a syntax error of an eval": (
        append("eval('1 +')"),
        "crashed",
        "your code raised SyntaxError: ",
        "nothing to do with a restart",
    ),
    "a generator": (
        append("yield"),
        "signature",
        "append has yield in it, so that calling it does nothing: take it out",
        "Keep the first line of the function",
    ),
    "a byte order mark and an error": (
        "\ufeff" + append("raise KeyError('boom')"),
        "crashed",
        "your code raised KeyError: 'boom' (line 2: raise KeyError('boom')), in its first run",
        "nothing to do with a restart",
    ),
    "an endless loop": (append("while True:", "    pass"), "hung", "it was at line", "Each loop needs an end"),
    "a lone surrogate": (append(r"raise ValueError('\ud800')"), "crashed", r"ValueError: \ud800 (line 2", "restart"),
}


@pytest.mark.long
@pytest.mark.parametrize(("code", "symptom", "told", "hint"), ENDS_BADLY.values(), ids=ENDS_BADLY)
def test_code_that_ends_badly_is_told_what_where_and_when(tmp_path, code, symptom, told, hint):
    (tmp_path / "mine.py").write_text(code)
    report = check("sequence_numbers", tmp_path / "mine.py", fail_fast=True)
    problem = report.first_problem
    assert problem, report
    assert (problem.grade, problem.symptom) == (Grade.FAILED, symptom), report
    assert told in problem.detail, report
    assert hint in problem.hint, report
    assert told in report.summary, report
    assert str(report).splitlines()[-1].startswith("failed in"), report
    assert len(str(report)) < 20_000


FORGETS_ITS_MEMORY = """
KEPT = []


def append(log, record):
    stored = [each for each in log.records() if each.producer_id == record.producer_id]
    for each in stored:
        if each.sequence == record.sequence:
            assert KEPT, "nothing was kept"
            return each.offset
    if record.sequence > len(stored):
        return None
    KEPT.append(record)
    return log.write(record)
"""


@pytest.mark.long
def test_code_that_raises_after_a_kill_is_told_so(tmp_path):
    (tmp_path / "mine.py").write_text(FORGETS_ITS_MEMORY)
    report = check("sequence_numbers", tmp_path / "mine.py")
    [problem] = report.problems
    assert problem.scenario == "the broker is killed", report
    assert problem.detail.startswith("your code raised AssertionError: nothing was kept (line 9: assert KEPT"), report
    assert "in start 2, after 1 crash" in problem.detail, report
    assert "after a restart" in problem.hint, report
    assert any(what.startswith("SIGKILL") for _, what in problem.timeline), report


BREAKS_THE_CHECK = {
    "writes into the journal": ("import glob\nopen(glob.glob('../*/journal')[0], 'a').write('{\"when\"')\n", "journal"),
    "empties the journal": ("import glob\nopen(glob.glob('../*/journal')[0], 'w').close()\n", "journal"),
    "replaces the journal": (
        "import glob, os\nname = glob.glob('../*/journal')[0]\nos.remove(name)\nos.mkdir(name)\n",
        "cannot be read: Is a directory",
    ),
    "closes what is open": ("import os\nos.closerange(3, 300)\n", "journal"),
    "deletes everything": ("import shutil, os\nshutil.rmtree(os.path.dirname(os.getcwd()))\n", ""),
}


@pytest.mark.long
@pytest.mark.parametrize(("code", "told"), BREAKS_THE_CHECK.values(), ids=BREAKS_THE_CHECK)
def test_what_cannot_be_judged_is_no_success_and_every_grader_is_told_why(tmp_path, capsys, code, told):
    (file := tmp_path / "mine.py").write_text(code + "\n\ndef append(log, record):\n    return log.write(record)\n")
    junit, results = tmp_path / "report.xml", tmp_path / "results.json"
    graders = ["--junit", str(junit), "--gradescope", str(results), "--json"]
    assert main(["check", "sequence_numbers", str(file), *graders]) == 2
    report = json.loads(capsys.readouterr().out)
    [first, *others] = report["scenarios"]
    assert (report["verdict"], first["grade"], first["symptom"]) == ("unknown", "unknown", "could not be judged")
    assert told in first["detail"]
    assert {each["grade"] for each in others} == {"not run"}
    suite = ElementTree.parse(junit).getroot()
    assert (suite.get("errors"), suite.get("failures")) == ("1", "0")
    graded = json.loads(results.read_text())
    assert graded["score"] == 0
    assert graded["tests"][0]["status"] == "failed"
    assert re.search("could not be judged: .+", graded["tests"][0]["output"])


def test_what_spark_raises_is_not_said_of_the_students_code():
    end = {"kind": "end", "when": 1.0, "what": "", "ending": "crashed", "error": "StreamingQueryException"}
    run = Run("crashed", "StreamingQueryException: no state", "", [end])
    found = ended_badly(find_exercise("exactly_once_sink").scenarios[0], History([run]), 0.0)
    assert found.detail == "Spark stopped the query: StreamingQueryException: no state, in its first run"
