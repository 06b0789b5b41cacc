"""Exercise 1: in which order should a consumer do its work and commit its offset?

    def lose_nothing(consumer, handle): ...
    def double_nothing(consumer, handle): ...

`consumer.poll()` returns the next record, or None at the end of the topic; `consumer.commit()` tells Kafka that
everything polled so far is done; `handle(message)` does the work in the outside world, and nobody can undo it.
Both must handle every record once if nothing crashes. Wherever they are killed, the first must lose nothing, and
the second must handle nothing twice.
"""

from __future__ import annotations

from labs.evidence.auditor.audit import Result
from labs.exercises.checker.rounds import KafkaTrial, killed, read_outside, results_of_a_log, undisturbed
from labs.exercises.checker.scenario import DOUBLED, LOST, Exercise, Finding, Lab, Scenario
from labs.pipeline.records import result_value


class Handled(KafkaTrial):
    """20 records; `handle` appends each to a file, which stands for sending a letter."""

    def __init__(self, lab: Lab):
        expected = results_of_a_log()
        super().__init__(lab, [result_value(*key, count) for key, count in expected.items()], expected, list(expected))
        self.outside = self.directory / "outside"

    def tools(self) -> dict:
        return {**super().tools(), "outside": str(self.outside)}

    def results(self) -> list[Result]:
        return list(read_outside(self.outside))


def _scenarios(function: str, allowed: str) -> list[Scenario]:
    killed_at = lambda point, **options: killed(Handled, function, point, allowed=(allowed,), **options)  # noqa: E731
    return [
        undisturbed(Handled, function, f"{function}: no crash"),
        Scenario(
            f"{function}: killed after handle",
            "SIGKILL directly after a record was handled, three times.",
            killed_at("after handle"),
        ),
        Scenario(
            f"{function}: killed after commit",
            "SIGKILL directly after a commit, three times.",
            killed_at("after consumer.commit"),
        ),
        Scenario(
            f"{function}: killed before handle",
            "SIGKILL when a record is about to be handled, three times.",
            killed_at("before handle"),
        ),
    ]


def epilogue(findings: list[Finding]) -> str:
    """Say what each of the two orders costs, which is the point of the exercise."""
    if not findings or not all(finding.grade == "passed" for finding in findings):
        return ""
    doubled = sum(f.doubled for f in findings if f.scenario.startswith("lose_nothing"))
    lost = sum(f.lost for f in findings if f.scenario.startswith("double_nothing"))
    return (
        f"Which can you have? Under the same kills, lose_nothing handled {doubled} records twice, and double_nothing "
        f"lost {lost}. Work and commit are two steps, and a crash can come between them, whichever comes first: no "
        "order gives both. Exactly once needs one step that does both (exercise 3), or work that may be repeated "
        "without harm (exercise 2)."
    )


EXERCISE = Exercise(
    name="commit_order",
    task="A consumer loop that loses nothing; then one that doubles nothing. Which can you have?",
    entry="labs.exercises.checker.calls:with_handler",
    seconds=30,
    scenarios=(*_scenarios("lose_nothing", DOUBLED), *_scenarios("double_nothing", LOST)),
    hints={
        "lost": "A commit says: never show me these again. At the kill, was everything that you had committed also "
        "handled? Look in the timeline for the commit that came too early.",
        "doubled": "What is not committed comes again after a restart. At the kill, what had you handled and not yet "
        "committed? Look in the timeline for the record that was handled before its commit.",
        "doubled/lose_nothing: no crash": "Nothing crashed, and a restart handled the records again: was there no "
        "commit, or none after the last record?",
        "doubled/double_nothing: no crash": "Nothing crashed, and records were handled twice: was there no commit?",
        "lost/lose_nothing: no crash": "Nothing crashed, and records are missing: is each record that poll() returns "
        "handed to handle()?",
        "lost/double_nothing: no crash": "Even if it may lose records in a crash, without one it must handle them all.",
        "nothing done": "Poll in a loop until poll() returns None; hand each record to handle().",
    },
    epilogue=epilogue,
)
