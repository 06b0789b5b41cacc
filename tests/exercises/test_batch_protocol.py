"""Exercise 8: which generator is a protocol, and that Kafka does what the model says of right ones and wrong ones."""

from __future__ import annotations

import dataclasses
import json
import re
import runpy
import signal
import threading
from pathlib import Path

import pytest

from exactly_once_kafka.protocol import Batch, exactly_once, is_published
from labs.exercises.checker import protocol_table
from labs.exercises.checker.batch_judges import (
    WALKS,
    counterexample,
    every_interleaving,
    explore_batch,
    stage_of,
    undisturbed,
)
from labs.exercises.checker.check import check
from labs.exercises.checker.protocol_table import NoProtocol, from_table, table_of
from labs.exercises.checker.scenario import Grade, NoTable
from labs.exercises.checker.student_module import Unusable, solution_of
from labs.schedules.conformance import played, walk
from labs.schedules.model.checker import explore
from labs.schedules.model.drivers_and_network import Stage
from labs.schedules.replay.counterexample import replay_on_kafka
from labs.schedules.replay.player import Player
from labs.schedules.replay.replay_bench import replay_bench

WRONG = Path(__file__).parent / "wrong"
BROKEN_BY_INTERLEAVING = (
    "does_not_drain",
    "does_not_read_the_marker",
    "fences_once",
    "goes_by_the_number",
    "has_no_marker",
    "marks_in_a_later_transaction",
    "marks_in_an_earlier_transaction",
    "never_refuses",
    "notes_before_it_commits",
    "reads_the_marker_first",
)


def publish_of(file: Path):
    return runpy.run_path(str(file))["publish"]


def wrong(name: str):
    return publish_of(WRONG / f"batch_protocol__{name}.py")


def right():
    return publish_of(solution_of("batch_protocol"))


def skeleton(batch, has_epoch):
    yield "rows"


def code(*lines: str) -> str:
    return "def publish(batch, has_epoch):\n" + "".join(f"    {line}\n" for line in lines)


STEPS = "look, wait and look, fence, read marker, rows, marker, commit, next epoch, drain, note"
# What is wrong -> (code, the symptom, the one line, what the hint says).
NO_PROTOCOL = {
    "returns a list": (
        code('return ["fence", "rows"]'),
        "unreadable",
        "publish has no yield, and returns ['fence', 'rows']; each step is to be yielded, as in: yield \"rows\"",
        "A protocol is a generator",
    ),
    "returns nothing": (
        code("pass"),
        "unreadable",
        'publish has no yield, and returns None; each step is to be yielded, as in: yield "rows"',
        "A protocol is a generator",
    ),
    "yields what is no step": (
        code('yield "fence"', 'yield "Rows"'),
        "unreadable",
        f"there is no step 'Rows' (line 3: yield \"Rows\"); there are: {STEPS}",
        "exactly as in the task",
    ),
    "yields Spark's plan": (
        code('yield "plan"', 'yield "rows"'),
        "unreadable",
        f"there is no step 'plan' (line 2: yield \"plan\"); there are: {STEPS}",
        "exactly as in the task",
    ),
    "yields nothing": (
        code('yield "rows"', "yield"),
        "unreadable",
        f"there is no step None (line 3: yield); there are: {STEPS}",
        "exactly as in the task",
    ),
    "yields many at once": (
        code("yield ['rows', 'commit']"),
        "unreadable",
        f"there is no step ['rows', 'commit'] (line 2: yield ['rows', 'commit']); there are: {STEPS}",
        "one step after the other",
    ),
    "never yields": (
        code('yield "rows"', "while True:", "    pass"),
        "hung",
        r"publish was still running after (5|1) s \(line [34]: (while True:|pass)\)",
        "Each loop needs an end",
    ),
    "yields for ever": (
        code("while True:", '    yield "rows"'),
        "hung",
        'publish yields more than 30 steps for one batch (line 3: yield "rows"), in batch 0 after rows, rows, rows, …',
        "Each loop needs an end",
    ),
    "waits for a marker": (
        code('while (yield "look") is None:', "    pass", 'yield "rows"'),
        "hung",
        'publish yields more than 30 steps for one batch (line 2: while (yield "look") is None:), '
        "in batch 0 after look (none), look (none), look (none), …",
        "Do not wait for a marker to appear",
    ),
    "reads too often": (
        code("for _ in range(8):", '    yield "read marker"', 'yield "rows"'),
        "hung",
        "publish reads the marker so often that there are too many answers to try: "
        "once before the epoch and once after it are enough",
        "Each loop needs an end",
    ),
    "raises": (
        code('marker = yield "read marker"', "if marker.batch_id < batch.batch_id:", '    yield "rows"'),
        "crashed",
        "publish raised AttributeError: 'NoneType' object has no attribute 'batch_id' "
        "(line 3: if marker.batch_id < batch.batch_id:), in batch 0 after read marker (none)",
        "None until a batch is published",
    ),
    "raises before it can yield": (
        code("return batch.rows"),
        "crashed",
        "publish raised AttributeError: 'Batch' object has no attribute 'rows' (line 2: return batch.rows), "
        "at the beginning of batch 0",
        "None until a batch is published",
    ),
    "uses a name of another cell": (
        code('yield "rows"', "commit()"),
        "crashed",
        "publish raised NameError: name 'commit' is not defined (line 3: commit()), in batch 0 after rows",
        "runs this code alone",
    ),
    "goes by chance": (
        "import random\n\n\n"
        + code('yield "fence"', "if random.random() < 0.3:", '    yield "marker"', 'yield "rows"'),
        "changeable",
        r"publish depends on chance, on a clock or on kept values: in batch \d after fence it once yields "
        "'(rows|marker)', and once yields '(rows|marker)'",
        "on nothing else",
    ),
    "keeps it in a global": (
        "SEEN = set()\n\n\n"
        + code(
            "if batch.batch_id in SEEN:", '    yield "drain"', "    return", 'yield "rows"', "SEEN.add(batch.batch_id)"
        ),
        "changeable",
        "publish keeps something from one call to the next, in SEEN: a restarted driver does not have it",
        "must survive a crash belongs into Kafka",
    ),
    "keeps it in a global of a function that it calls": (
        "count = 0\n\n\ndef counted():\n    global count\n    count += 1\n    return count\n\n\n"
        + code("if counted() % 2:", '    yield "fence"', 'yield "rows"'),
        "changeable",
        "publish keeps something from one call to the next, in count: a restarted driver does not have it",
        "belongs into Kafka",
    ),
    "keeps it in a default": (
        "def publish(batch, has_epoch, seen=[]):\n"
        "    if batch.plan not in seen:\n        yield 'rows'\n    seen.append(batch.plan)\n",
        "changeable",
        "publish keeps something from one call to the next, in seen: a restarted driver does not have it",
        "belongs into Kafka",
    ),
    "keeps it in a closure": (
        "def made():\n    calls = []\n\n    def publish(batch, has_epoch):\n        calls.append(batch)\n"
        "        if len(calls) < 9:\n            yield 'fence'\n        yield 'rows'\n\n    return publish\n\n\n"
        "publish = made()\n",
        "changeable",
        "publish keeps something from one call to the next, in calls: a restarted driver does not have it",
        "belongs into Kafka",
    ),
    "keeps it in itself": (
        code(
            "publish.calls = getattr(publish, 'calls', 0) + 1",
            "if publish.calls < 9:",
            "    yield 'fence'",
            "yield 'rows'",
        ),
        "changeable",
        "publish keeps something from one call to the next, in calls: a restarted driver does not have it",
        "belongs into Kafka",
    ),
    "writes no rows": (
        code('yield "fence"', 'yield "commit"'),
        "wrong",
        "publish ends without 'rows' in batch 0, of which nothing is published: fence, commit",
        "Which steps belong together?",
    ),
    "does nothing": (
        code("return", "yield"),
        "wrong",
        "publish ends without 'rows' in batch 0, of which nothing is published: no step at all",
        "Which steps belong together?",
    ),
    "writes without an epoch": (
        code('yield "rows"', 'yield "fence"', 'yield "commit"'),
        "wrong",
        "'rows' has no 'fence' before it, and a transaction needs an epoch: rows",
        "Which steps belong together?",
    ),
    "commits without an epoch": (
        code("if batch.batch_id:", '    yield "commit"', 'yield "fence"', 'yield "rows"'),
        "wrong",
        "'commit' has no 'fence' before it, and a transaction needs an epoch: commit",
        "Which steps belong together?",
    ),
    "commits nothing": (
        code('yield "fence"', 'yield "rows"', 'yield "commit"', 'yield "commit"'),
        "wrong",
        "'commit' has neither 'rows' nor 'marker' before it to commit: fence, rows, commit, commit",
        "Which steps belong together?",
    ),
    "commits what its fence has aborted": (
        code('yield "fence"', 'yield "rows"', 'yield "next epoch"', 'yield "commit"'),
        "wrong",
        "'commit' has neither 'rows' nor 'marker' before it to commit: fence, rows, next epoch, commit",
        "Which steps belong together?",
    ),
}
each_that_is_none = pytest.mark.parametrize(("text", "symptom", "line", "hint"), NO_PROTOCOL.values(), ids=NO_PROTOCOL)


def says(told: str, line: str) -> bool:
    return told == line or bool(re.fullmatch(line, told))


@pytest.fixture(scope="module")
def kafka():
    with replay_bench() as started:
        yield started


@each_that_is_none
def test_what_is_no_protocol_is_told_in_one_line_where_the_picture_is_asked_for(
    text, symptom, line, hint, tmp_path, monkeypatch
):
    monkeypatch.setattr(protocol_table, "SECONDS", 1)
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(NoProtocol) as refused:
        counterexample(publish_of(tmp_path / "mine.py"))
    assert says(str(refused.value), line), refused.value
    assert refused.value.symptom == symptom


@pytest.mark.long
@pytest.mark.timeout(300)
@each_that_is_none
def test_what_is_no_protocol_is_told_in_the_same_line_by_the_check(text, symptom, line, hint, tmp_path):
    (tmp_path / "mine.py").write_text(text)
    problem = check("batch_protocol", tmp_path / "mine.py").first_problem
    assert problem is not None
    assert (problem.grade, problem.symptom, problem.scenario) == (Grade.FAILED, symptom, "the steps")
    assert says(problem.detail, line), problem.detail
    assert hint in problem.hint
    assert problem.timeline


@pytest.mark.parametrize("given", [["plan", "rows", "note"], skeleton(None, False)])
def test_what_is_no_function_is_refused(given):
    with pytest.raises(NoProtocol, match="a protocol is a function with yield in it, and not "):
        explore_batch(given)


def test_function_that_takes_something_else_is_told_what_it_is_called_with():
    def publish(batch):
        yield "rows"

    with pytest.raises(Unusable, match=r"publish\(batch\) is called with \(batch, has_epoch\): too many positional"):
        explore_batch(publish)


def test_time_limit_leaves_the_alarm_of_others_as_it_was(monkeypatch):
    def publish(batch, has_epoch):
        yield "rows"
        while True:
            pass

    def ring(*_: object) -> None: ...

    monkeypatch.setattr(protocol_table, "SECONDS", 0.2)
    before, timer = signal.signal(signal.SIGALRM, ring), signal.setitimer(signal.ITIMER_REAL, 600)
    try:
        with pytest.raises(NoProtocol, match=r"publish was still running after 0.2 s \(line"):
            table_of(publish)
        assert signal.getsignal(signal.SIGALRM) is ring
        assert 590 < signal.getitimer(signal.ITIMER_REAL)[0] <= 600
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, before)


def test_table_is_made_in_any_thread_and_what_the_code_prints_is_not_shown(capsys):
    def publish(batch, has_epoch):
        print("here I am")
        yield "rows"

    tables = list[object]()
    thread = threading.Thread(target=lambda: tables.append(table_of(publish)))
    thread.start()
    thread.join()
    assert tables == [table_of(skeleton)]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("table", [None, [], 7, {"a": 1}])
def test_what_is_no_table_is_refused(table):
    with pytest.raises(NoTable, match="the run left no table"):
        stage_of(table)


@pytest.mark.parametrize("node", [["Rows", [None]], ["rows"], ["rows", [None], [None]], [], None, [["rows"]]])
def test_table_with_what_no_run_writes_is_refused(node):
    table = table_of(skeleton)
    table[-1] = node
    with pytest.raises(NoTable, match="has no step"):
        stage_of(table)


def test_situation_that_no_run_was_in_is_refused():
    with pytest.raises(NoTable, match="the table has no entry for"):
        next(from_table(table_of(skeleton))(Batch("the query", 7, "a plan"), False))


def test_protocol_of_the_sink_itself_is_one_and_goes_over_to_another_process():
    table = table_of(exactly_once)
    assert stage_of(json.loads(json.dumps(table))).steps == Stage("the sink", exactly_once).steps
    assert len(json.dumps(table)) < 10_000  # it is an argument of a command


@pytest.mark.parametrize("name", ["does_not_drain", "marks_in_an_earlier_transaction", "notes_before_it_commits"])
def test_model_finds_in_the_table_what_it_finds_in_the_generator(name):
    publish = wrong(name)
    by_table, by_itself = explore_batch(publish), explore(Stage("the generator", publish))
    assert by_table.moves == by_itself.moves
    assert by_table.states == by_itself.states


def test_one_driver_alone_publishes_everything_in_each_of_the_stages():
    for publish in (skeleton, right(), exactly_once, *map(wrong, BROKEN_BY_INTERLEAVING)):
        stage = stage_of(table_of(publish))
        schedule, state = undisturbed(stage)
        assert stage.visible(state) == (0, 1, 2, 3), schedule


def test_rows_under_an_epoch_that_was_asked_for_ahead_are_in_a_transaction():
    def publish(batch, has_epoch):
        yield "next epoch"
        yield "rows"

    stage = stage_of(table_of(publish))
    _, state = undisturbed(stage)
    assert stage.visible(state) == ()  # nobody commits them


@pytest.mark.bench
def test_an_epoch_kept_for_all_batches_is_torn_by_a_commit_that_comes_late():
    found = explore_batch(wrong("fences_once"))
    assert (found.anomaly, len(found.schedule.events)) == ("torn", 13)
    assert found.schedule.events[-1].request == "commit"


def test_picture_is_of_the_shortest_schedule():
    drawing = counterexample(skeleton)
    assert drawing.startswith("<svg")
    assert "your protocol: doubled" in drawing
    assert "6. driver 2 sends record 0 of batch 0: ok" in drawing.words


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", BROKEN_BY_INTERLEAVING)
def test_what_the_model_finds_in_a_wrong_protocol_happens_on_kafka(name, kafka):
    stage, found = every_interleaving(stage_of(table_of(wrong(name))))
    assert found.anomaly
    assert replay_on_kafka(found.schedule, stage, kafka).differences == []


def marker_first(batch, has_epoch):
    yield "fence"
    if is_published((yield "read marker"), batch):
        yield "drain"
        return
    yield "marker"
    yield "rows"
    yield "commit"


def rows_first(batch, has_epoch):
    yield "fence"
    yield "rows"
    if is_published((yield "read marker"), batch):
        yield "drain"
        return
    yield "marker"
    yield "commit"


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("publish", [marker_first, rows_first, exactly_once])
def test_other_protocols_that_are_right_do_on_kafka_what_the_model_says(publish, kafka):
    stage = dataclasses.replace(stage_of(table_of(publish)), rows=1, drivers=3, faults=("deliver again", "lose"))
    for seed in WALKS:
        with Player(stage, kafka) as player:
            assert played(walk(seed, stage), player) == []


def without_transactions(batch, has_epoch):
    if not is_published((yield "read marker"), batch):
        yield "rows"
        yield "marker"
    else:
        yield "drain"


@pytest.mark.long
@pytest.mark.timeout(300)
def test_marker_without_a_transaction_doubles_on_kafka_as_in_the_model(kafka):
    stage, found = every_interleaving(stage_of(table_of(without_transactions)))
    assert found.anomaly == "doubled"
    assert replay_on_kafka(found.schedule, stage, kafka).differences == []


def test_walks_of_the_check_meet_a_second_driver_and_an_unkind_network():
    stage = dataclasses.replace(stage_of(table_of(right())), rows=1, drivers=3, faults=("deliver again", "lose"))
    events = [event for seed in WALKS for event in walk(seed, stage).schedule.events]
    assert {"start", "deliver", "deliver again", "lose"} <= {event.action for event in events}
    assert {"fenced", "held"} <= {event.answer for event in events}


@pytest.mark.long
@pytest.mark.timeout(300)
def test_report_has_the_schedule_in_words_and_what_the_auditor_said_of_kafka():
    report = check("batch_protocol", WRONG / "batch_protocol__has_no_marker.py")
    *_, model, kafka = report.findings
    assert (model.symptom, model.doubled, len(model.timeline)) == ("doubled", 2, 12)
    assert (kafka.grade, kafka.symptom, kafka.doubled) == (Grade.FAILED, "doubled", 2), report
    assert "the same happened in 12 steps" in kafka.detail
    assert "DUPLICATE 2" in kafka.detail
    assert kafka.hint == model.hint


@pytest.mark.long
@pytest.mark.timeout(300)
def test_protocol_that_refuses_what_is_to_be_written_is_stuck_with_nobody_around(tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from exactly_once_kafka.protocol import MarkerMismatch\n\n\n"
        + code('yield "fence"', 'yield "rows"', "raise MarkerMismatch('no')")
    )
    problem = check("batch_protocol", mine).first_problem
    assert problem is not None
    assert (problem.symptom, problem.scenario) == ("stuck", "nobody disturbs")
    assert problem.detail == "one driver alone: 0 of 4 records are published, and then it refuses"
