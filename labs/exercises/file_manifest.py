"""Exercise 10: publish each batch once in a directory, where only a rename happens in one step.

    def publish(lines, batch_id, files): ...

The checker calls it for batch 0, 1, 2, …, with the batch's lines, as Spark calls a foreachBatch function: after a
crash, a batch whose end was not noted comes again with the same batch_id. Readers go by the manifest: each line of each
file in `manifest/` is the name of a file whose lines are published, and they ignore all other files. Readers come at
any time. Each batch must be there once, completely or not at all, and must not change once a reader may have seen it.

`files` is the directory: write(name, lines), rename(old, new), exists(name), read(name), names().
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from labs.equipment.plain_text import one_line
from labs.evidence.auditor.observed import Key, Result
from labs.exercises.checker.clients import lines_of
from labs.exercises.checker.crash_points import Crash
from labs.exercises.checker.report import timeline
from labs.exercises.checker.rounds import History, conclude, results_of_a_log
from labs.exercises.checker.scenario import WRONG, Exercise, Finding, Grade, Lab, Scenario
from labs.exercises.checker.student_process import Run
from labs.pipeline.records import RESULT_FIELDS, parse_result_value

ROWS = 5  # of each batch
LONGEST_NAME = 255  # of a file
NUMBERS = itertools.count(1)
TORN, CHANGED = "torn", "changed"


class PublishedFiles:
    """A directory, the batches that go into it, and a reader who looks at it after each crash.

    With `anew`, each run computes different rows, so that a repeated batch has other rows than before.
    """

    def __init__(self, lab: Lab, anew: bool = False):
        self.expected: Mapping[Key, int] = results_of_a_log()
        self._keys, self._anew, self._runs = list(self.expected), anew, 0
        self._place = lab.directory / f"trial-{next(NUMBERS)}"
        self.directory = self._place / "files"
        self.directory.mkdir(parents=True)
        self.complaint: tuple[str, str] | None = None  # symptom, and what the reader says
        self._read: Counter[str] = Counter()

    def tools(self) -> dict[str, Any]:
        self._runs += 1
        run = self._runs if self._anew else 1
        lines = [self._line(key, run) for key in self._keys]
        batches = [lines[n : n + ROWS] for n in range(0, len(lines), ROWS)]
        return {"directory": str(self.directory), "notes": str(self._place / "notes"), "batches": batches}

    def _line(self, key: Key, run: int) -> str:
        fields = dict(zip(RESULT_FIELDS, (*key, self.expected[key]), strict=True))
        return json.dumps({**fields, "computed_in_run": run})

    def results(self) -> list[Result]:
        return [Result(*parse_result_value(line)) for line in visible(self.directory)]

    def records_of(self, key: Key) -> list[int]:
        return []

    def look(self) -> None:
        """Read what is visible now; complain, once, if a batch is incomplete or has changed."""
        try:
            lines = Counter(visible(self.directory))
            keys = {parse_result_value(line)[:2] for line in lines}
        except ValueError as error:
            self._complain(TORN, str(error))
            return
        for number in range(0, len(self._keys), ROWS):
            there = len(keys.intersection(self._keys[number : number + ROWS]))
            if 0 < there < ROWS:
                self._complain(TORN, f"{there} of the {ROWS} rows of batch {number // ROWS} are there")
        for line in self._read - lines:
            now = next((other for other in lines if parse_result_value(other)[:2] == parse_result_value(line)[:2]), "")
            self._complain(CHANGED, f"{line} was read before, and now it says {now or 'nothing'}")
        self._read |= lines

    def _complain(self, symptom: str, what: str) -> None:
        self.complaint = self.complaint or (symptom, f"a reader who came after run {self._runs}: {one_line(what)}")


def visible(directory: Path) -> Iterator[str]:
    """Yield every line that the manifest publishes. Raises ValueError if it names a file that is not there."""
    for entry in sorted(file for file in (directory / "manifest").glob("**/*") if file.is_file()):
        for name in lines_of(entry):
            file = directory / name
            if len(name) > LONGEST_NAME or not file.is_file():
                named = f"{entry.relative_to(directory)} names {one_line(name)!r}"
                raise ValueError(f"{named}, and there is no such file")
            yield from lines_of(file)


def with_readers(*crashes: Crash, instead: str = "", anew: bool = False) -> Callable[[Lab, Scenario], Finding]:
    """Return a judge that kills the code at these crashes, one a run, lets it finish, and has a reader look each time.

    `instead` is the point for code that never reaches the point of a crash.
    """

    def judge(lab: Lab, scenario: Scenario) -> Finding:
        began, trial, runs = time.time(), PublishedFiles(lab, anew), list[Run]()
        for crash in [*crashes, None] if crashes else [None, None]:
            if crash and instead and not lab.quiet_runs["publish"].reached(crash.point):
                crash = dataclasses.replace(crash, point=instead)
            runs.append(lab.process.run("publish", trial.tools(), began, crash))
            lab.quiet_runs.setdefault("publish", runs[-1])
            trial.look()
            if not runs[-1].well:
                break
        history = History(runs)
        finding = conclude(scenario, trial, history, (), began, needs_kill=bool(crashes))
        if trial.complaint and (finding.grade is not Grade.FAILED or finding.symptom == WRONG):
            symptom, what = trial.complaint
            lines = timeline(history.events)
            return dataclasses.replace(finding, grade=Grade.FAILED, symptom=symptom, detail=what, timeline=lines)
        return finding

    return judge


EXERCISE = Exercise(
    name="file_manifest",
    task="Publish each batch once as files, with nothing but a rename that is one step.",
    entry="labs.exercises.checker.calls:with_files",
    seconds=15,
    scenarios=(
        Scenario("no crash", "Publishes four batches, and is then started once more.", with_readers(), smoke=True),
        Scenario(
            "killed in the middle of a file",
            "SIGKILL when half of a file is written, four times; a reader looks after each.",
            with_readers(*(Crash("midway files.write", nth) for nth in (2, 1, 3, 4))),
        ),
        Scenario(
            "killed before a rename",
            "SIGKILL when a file is about to be renamed (or, without renames, was written), four times.",
            with_readers(*(Crash("before files.rename", nth) for nth in (1, 2, 2, 3)), instead="after files.write"),
        ),
        Scenario(
            "killed before it is noted",
            "SIGKILL when a batch is published, and not yet noted as done, three times.",
            with_readers(*(Crash("after publish", nth) for nth in (1, 2, 1))),
        ),
        Scenario(
            "other rows",
            "The same, and each repetition of a batch computes other rows.",
            with_readers(*(Crash("after publish", nth) for nth in (2, 1, 2)), anew=True),
        ),
    ),
    hints={
        TORN: "A reader came while it was half done. Writing a file takes time, and a rename is one step: what readers "
        "go by, the manifest's entry, must get its name when it is whole, and after the file that it names.",
        CHANGED: "Somebody had read the batch, and its repetition put other rows in its place. What is published is "
        "done: the batch id tells whether this batch is. Where can you look that up?",
        "doubled": "The manifest names two files for one batch. A repetition has the same batch id: let the entry's "
        "name say which batch it is of, and look whether it is there.",
        "lost": "A batch counts as done, but the manifest does not name its file. Only the entry makes a batch done, "
        "and nothing that happens before it.",
        "lost/no crash": "Readers go by the manifest: each line of a file in manifest/ is the name of a file.",
        "wrong": "The manifest must publish exactly the lines that publish() gets, and nothing else.",
        "crashed after a restart": "After a crash the directory has what the killed run wrote, maybe half a file.",
    },
    own_kafka=True,  # it needs none
)
