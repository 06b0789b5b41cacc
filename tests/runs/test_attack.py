"""The attack game: each kind of sink falls to a few orders on the real Kafka, the right one does not, and errors are
one line that names the player's own."""

from __future__ import annotations

import pytest

from exactly_once_kafka.protocol import exactly_once
from labs.evidence.auditor.anomalies import Anomaly
from labs.runs.attack.attack import attack, solve
from labs.runs.attack.language import EXAMPLES, check_possible, in_orders, parse_orders
from labs.runs.attack.scores import add_score, fewest, read_scores, score, table
from labs.runs.attack.sinks import SINKS, source_of, wrong_sink
from labs.schedules.model.checker import explore
from labs.schedules.model.drivers_and_network import Stage
from labs.schedules.model.stages import MODELS
from labs.schedules.replay.replay_bench import CannotPlay, replay_bench
from labs.schedules.schedule import HELD, Event, Schedule, ScheduleError

KINDS = {sink.name: sink.stage for sink in SINKS}
LATE_COMMIT = "hold the commit of batch 0 until driver 2 reads the marker of batch 0"
COMMIT_TWICE = "Repeat the commit of batch 0   after row 0 of batch 1.  # the second tears it"
# kind -> (orders, an anomaly that the auditor names)
ATTACKS = {
    "at least once": ("repeat row 0 of batch 0", Anomaly.DUPLICATE),
    "idempotent producer only": ("crash driver 1 after row 0 of batch 0", Anomaly.DUPLICATE),
    "transactions, no marker": ("crash driver 1 after the commit of batch 0", Anomaly.DUPLICATE),
    "marker read before the epoch": (LATE_COMMIT, Anomaly.DUPLICATE),
    "one epoch for all batches": (COMMIT_TWICE, Anomaly.TORN_BATCH),
    "done batch not drained": ("freeze driver 1 before the note of batch 0", Anomaly.LOST),
    "marker compared by its number only": ("restore an older checkpoint after the commit of batch 0", Anomaly.LOST),
    "marker that expires": (
        "expire the marker after the commit of batch 0\ncrash driver 1 before driver 1 notes batch 0",
        Anomaly.DUPLICATE,
    ),
    "marker in a transaction of its own, later": ("crash driver 1 before the marker of batch 0", Anomaly.DUPLICATE),
    "marker in a transaction of its own, earlier": (
        "repeat the first commit of batch 0 after row 0 of batch 0",
        Anomaly.LOST,
    ),
    "noted before it is committed": ("crash driver 1 before the commit of batch 1", Anomaly.LOST),
}


@pytest.fixture(scope="module")
def kafka():
    with replay_bench() as started:
        yield started


@pytest.fixture
def right_sink():
    stage = MODELS["the sink"]
    assert isinstance(stage, Stage)
    return stage


@pytest.fixture
def orders():
    return lambda text: parse_orders(text.splitlines())


@pytest.mark.long
def test_every_kind_is_attacked_here_and_the_model_knows_how_too():
    assert KINDS.keys() == ATTACKS.keys()
    assert len(KINDS) == len(SINKS) >= 8
    assert {kind: fewest(stage) for kind, stage in KINDS.items()} == dict.fromkeys(KINDS, 1) | {
        "marker that expires": 2
    }


@pytest.mark.long
@pytest.mark.parametrize("kind", ATTACKS)
def test_each_kind_is_broken_by_a_few_orders(kafka, orders, kind):
    text, anomaly = ATTACKS[kind]
    outcome = attack(KINDS[kind], orders(text), kafka)
    assert anomaly in {each for judged in outcome.judged for each in judged.counts}, outcome.happened
    assert Schedule.from_json(outcome.happened.to_json()) == outcome.happened
    if anomaly is Anomaly.TORN_BATCH:  # which heals: at the end it is not to be seen any more
        assert outcome.judged[0].step is not None
        assert outcome.happened.events[outcome.judged[0].step - 1].sees == (0, 1, 2)
        assert Anomaly.LOST not in outcome.judged[-1].counts


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "ended"),
    [
        (LATE_COMMIT, "all batches are done"),
        (COMMIT_TWICE, "all batches are done"),
        ("restore an older checkpoint after the commit of batch 0", "it refuses to go on: the marker says batch 0"),
        (
            "freeze driver 1 before the commit of batch 0\nwake driver 1 after row 0 of batch 0 of driver 2",
            "all batches are done",
        ),
    ],
)
def test_right_sink_survives(kafka, right_sink, orders, text, ended):
    outcome = attack(right_sink, orders(text), kafka)
    assert not outcome.broken, outcome.happened
    assert outcome.ended.startswith(ended)


@pytest.mark.long
def test_row_whose_transaction_timed_out_is_refused_and_sent_again_by_the_next_driver(kafka, right_sink, orders):
    outcome = attack(right_sink, orders("time out after row 0 of batch 1"), kafka)
    assert [event.answer for event in outcome.happened.events if event.action == "row"].count("fenced") == 1
    assert not outcome.broken


@pytest.mark.long
@pytest.mark.parametrize("kind", ["noted before it is committed", "marker in a transaction of its own, earlier"])
def test_models_own_schedule_breaks_what_only_the_end_or_only_the_middle_shows(kafka, kind):
    assert solve(KINDS[kind], kafka).broken


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_models_schedule_said_in_orders_breaks_the_sink_too(kafka, orders, kind):
    said = in_orders(explore(KINDS[kind]).schedule)
    assert attack(KINDS[kind], orders("\n".join(said)), kafka).broken, said


def test_schedule_with_everything_in_it_is_said_in_orders(orders):
    late_row = Event("driver 2", "row", 1, 2, answer=HELD)
    events = (
        Event("supervisor", "start", 0, whose="driver 2"),
        Event("driver 2", "plan", 0, 1),
        Event("driver 1", "wake"),
        Event("driver 1", "plan", 0, answer="another driver has"),
        Event("driver 2", "row", 0, 1, answer="ok"),
        Event("broker", "time out"),
        Event("driver 2", "plan", 1, 3),
        late_row,
        Event("network", "lose", 1, 2, request="row", whose="driver 2"),
        Event("driver 2", "crash"),
        Event("supervisor", "start", 1, whose="driver 3"),
        Event("driver 3", "row", 1, 3, answer=HELD),
        Event("network", "deliver again", 1, 3, request="row", whose="driver 3"),
        Event("driver 3", "commit", 1, answer=HELD),
        Event("driver 3", "crash"),
        Event("supervisor", "restore and start", 1, whose="driver 4"),
        Event("network", "deliver", 1, request="commit", whose="driver 3"),
        Event("driver 4", "plan", 1, 3),
    )
    said = in_orders(Schedule("", events))
    assert said == [
        "freeze driver 1 before the plan of batch 0 of driver 2",
        "wake driver 1 after the plan of batch 0 of driver 2",
        "time out after row 1 of batch 0 of driver 2",
        "lose row 0 of batch 1 of driver 2",
        "repeat row 1 of batch 1 of driver 3",
        "hold the commit of batch 1 of driver 3 until the plan of batch 1 of driver 4",
        "restore an older checkpoint after row 1 of batch 1 of driver 3",
    ]
    orders("\n".join(said))


@pytest.mark.long
def test_freezing_is_a_step_and_a_restored_last_batch_that_cannot_grow_is_remarked_upon(kafka, orders):
    freeze, restore = "freeze driver 1 after row 0 of batch 0", "restore an older checkpoint after the note of batch 1"
    outcome = attack(KINDS["at least once"], orders(f"{freeze}\n{restore}"), kafka)
    words = [str(event) for event in outcome.happened.events]
    assert words[2:4] == ["driver 1 is frozen", "supervisor starts driver 2 from the checkpoint, at batch 0"]
    assert outcome.remarks == (
        f"line 2 ({restore}): batch 1 is the last, and the source has no more: planned again, it is the same",
    )
    assert outcome.broken


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [
        (
            "at least once",
            "crash driver 1 after row 0 of batch 0\nlose row 1 of batch 1 of driver 1",
            "its moment never came",
        ),
        (
            "at least once",
            "crash driver 1 before the plan of batch 0\nwake driver 1 after row 0 of batch 0",
            "line 2 (wake driver 1 after row 0 of batch 0) cannot be carried out: driver 1 has ended by then",
        ),
        (
            "at least once",
            "freeze driver 1 before the plan of batch 0\nfreeze driver 1 after driver 2 plans batch 0",
            "line 2 (freeze driver 1 after driver 2 plans batch 0) cannot be carried out: driver 1 is frozen already",
        ),
        ("at least once", "wake driver 1 after the plan of batch 0", "driver 1 is not frozen then"),
        ("at least once", "restore an older checkpoint before the plan of batch 0", "nothing is in the checkpoint yet"),
        ("done batch not drained", "time out after the reading of batch 0", "no transaction is open then"),
        ("marker that expires", "expire the marker before row 0 of batch 0", "no marker is committed then"),
    ],
)
def test_order_that_cannot_be_carried_out_says_which_and_why(kafka, orders, kind, text, why):
    with pytest.raises(CannotPlay) as refused:
        attack(KINDS[kind], orders(text), kafka)
    said = str(refused.value)
    assert said.startswith("line ")
    assert why in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [
        ("at least once", "crash driver 1 after row 0 of batch 2", "there is no batch 2: the batches are 0 and 1"),
        ("at least once", "lose row 2 of batch 0", "there is no row 2: the rows of a batch are 0 and 1"),
        ("at least once", "crash driver 1 after the commit of batch 0", "ever comes to a step 'commit'"),
        ("at least once", "crash driver 0 after row 0 of batch 0", "drivers count from 1"),
        ("at least once", "crash driver 3 after row 0 of batch 0", "could make the supervisor start driver 3"),
        ("at least once", "time out after row 0 of batch 0", "no transactions that could time out"),
        (
            "marker that expires",
            "time out after row 0 of batch 0\nlose row 1 of batch 0",
            "use time out, or hold and lose",
        ),
        ("one epoch for all batches", "expire the marker after the commit of batch 0", "no marker of this sink ever"),
        ("one epoch for all batches", "lose the second commit of batch 0", "commits a batch only once"),
    ],
)
def test_order_that_can_never_be_is_refused_before_anything_starts(orders, kind, text, why):
    with pytest.raises(ScheduleError, match=r"^line \d .* cannot be carried out: ") as refused:
        check_possible(orders(text), KINDS[kind])
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the schedule has no orders"),
        ("# nothing\n\nkill driver 1", "line 3: 'kill driver 1' is not an order"),
        ("crash driver one after row 0 of batch 0", "is not understood; for example: crash driver 1"),
        ("crash driver 1", "it does not say when: before or after …; for example: crash driver 1"),
        ("crash driver 1 at the end", "'at the end' is not a moment"),
        ("crash driver 1 after the commits of batch 0", "'the commits of batch 0' is not a step of a driver"),
        ("crash driver 1 after row of batch 0", "does not say which row"),
        ("crash driver 1 after the commit 1 of batch 0", "names a row, which only"),
        ("crash driver 1 after the second row 1 of batch 0", "only a commit can be"),
        ("hold the plan of batch 0 until row 0 of batch 0", "'the plan of batch 0' cannot be held"),
        ("hold the commit of batch 0", "it does not say when: until …"),
        ("hold the commit of batch 0 after row 0 of batch 1", "a moment begins with until"),
        ("lose row 0 of batch 0 after row 1 of batch 0", "a lost request never arrives"),
        (".", "line 1: '.' is not an order; orders begin with crash"),
        ("crash driver 1 after the note of batch 0\n. . .", "line 2: '. . .' is not an order"),
        pytest.param(f"crash driver {'1' * 5_000} after the note of batch 0", "is not understood; for", id="driver"),
        pytest.param(f"crash driver 1 after row {'1' * 5_000} of batch 0", "is not a step of a driver; for", id="row"),
        ("crash driver 1 after the note of batch \N{SUPERSCRIPT TWO}", "is not a step of a driver"),
        ("crash driver 1 after the note of batch \N{ARABIC-INDIC DIGIT ONE}", "is not a step of a driver"),
        ("\x1b[2J \ud800 \x00 \u202e", r"line 1: '\x1b[2J \ud800 \x00 \u202e' is not an order"),
        pytest.param("x" * 10_000_000, "xxx…' is not an order", id="ten megabytes"),
    ],
)
def test_line_that_is_not_understood_is_named_with_an_example(orders, text, why):
    with pytest.raises(ScheduleError) as refused:
        orders(text)
    assert why in str(refused.value)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 600


def test_every_example_of_the_language_is_an_order(orders):
    parsed = orders("\n".join(EXAMPLES).upper())
    assert len(parsed) == len({order.verb for order in parsed}) == len(EXAMPLES)
    assert str(parsed[0]) == f"line 1 ({EXAMPLES[0].upper()})"


def test_verbs_and_nouns_name_the_same_steps(orders):
    pairs = {
        "the plan of batch 1 of driver 2": "driver 2 plans batch 1",
        "epoch of batch 1 of driver 2": "driver 2 asks for the epoch of batch 1",
        "the reading of batch 1 of driver 2": "driver 2 reads the marker of batch 1",
        "row 1 of batch 1 of driver 2": "driver 2 sends row 1 of batch 1",
        "the marker of batch 1 of driver 2": "driver 2 sends the marker of batch 1",
        "the first commit of batch 1 of driver 2": "driver 2 commits batch 1",
        "the note of batch 1 of driver 2": "driver 2 notes batch 1",
    }
    for noun, verb in pairs.items():
        assert orders(f"time out after {noun}")[0].at == orders(f"time out after {verb}")[0].at


def test_seeds_in_a_row_give_all_kinds_and_always_the_same():
    for first in (0, 22):
        assert {wrong_sink(seed).name for seed in range(first, first + len(SINKS))} == set(KINDS)
    assert wrong_sink(7) == wrong_sink(7)


def test_source_names_each_step_once_where_it_is_taken():
    for sink in SINKS:
        text = source_of(sink.stage)
        assert text.count("# commit") == sink.stage.steps.count("commit")
        assert ("# epoch" in text) == ("fence" in sink.stage.steps)
        assert "# row 0, row 1" in text
        assert "\ndef publish(batch, has_epoch):\n" in text  # as in exercise 8
        assert max(map(len, text.splitlines())) <= 120
        assert sink.stage.protocol.__name__ not in text
        assert str(sink.stage.protocol.__doc__) not in text
    by_place = [source_of(KINDS[f"marker in a transaction of its own, {place}"]) for place in ("earlier", "later")]
    assert sorted(by_place[0].splitlines()) == sorted(by_place[1].splitlines())


@pytest.mark.long
def test_sink_in_which_the_model_finds_nothing_has_no_score():
    with pytest.raises(ValueError, match="the model finds nothing wrong in small"):
        fewest(Stage("small", exactly_once, batches=1, rows=1))


@pytest.mark.long
def test_scores_are_kept_and_ranked(tmp_path):
    file = tmp_path / "scores.jsonl"
    assert read_scores(file) == []
    stage = KINDS["done batch not drained"]
    add_score(file, score("Ada", 1, stage, steps=3, broken=True, blind=False))
    add_score(file, score("Zoë\x1b", 2, stage, steps=1, broken=True, blind=True))
    add_score(file, score("Bob", 3, stage, steps=1, broken=False, blind=True))
    assert [game.player for game in read_scores(file)] == ["Ada", "Zoë\x1b", "Bob"]
    lines = table(read_scores(file)).splitlines()
    assert [line.split()[0] for line in lines] == ["player", "Zoë?", "Ada", "Bob"]
    assert "done batch" not in lines[-1]


@pytest.mark.long
def test_name_that_ends_a_line_leaves_the_file_whole(tmp_path):
    file = tmp_path / "scores.jsonl"
    for name in ("a\u2028b", "a\x85b"):
        add_score(file, score(name, 1, KINDS["at least once"], steps=1, broken=True, blind=False))
    assert [game.player for game in read_scores(file)] == ["a\u2028b", "a\x85b"]


def test_score_after_a_line_without_its_end_is_a_line_of_its_own(tmp_path):
    file = tmp_path / "scores.jsonl"
    game = score("Ada", 1, KINDS["at least once"], steps=3, broken=True, blind=False)
    add_score(file, game)
    file.write_text(file.read_text().removesuffix("\n"))
    add_score(file, game)
    assert len(read_scores(file)) == 2


@pytest.mark.parametrize(
    "damage",
    ["{", '{"player": "Ada"}', "[]", '"a"', "\x00", "", pytest.param("[" * 100_000, id="deep"), '{"seed": 1e999}'],
)
def test_damaged_scores_are_not_written_to(tmp_path, damage):
    file = tmp_path / "scores.jsonl"
    game = score("Ada", 1, KINDS["at least once"], steps=3, broken=True, blind=False)
    add_score(file, game)
    file.write_text(file.read_text() + damage + "\n")
    before = file.read_text()
    with pytest.raises(ValueError, match=r"scores.jsonl, line 2 is not a score, so nothing was written"):
        add_score(file, game)
    assert file.read_text() == before
