"""The room on the real pipeline: what is struck, what comes of it, and that its numbers are the auditor's."""

from __future__ import annotations

import json

import pytest

from labs.equipment.topics import KafkaUnreachable
from labs.room.recording import load_recording
from labs.room.room import RoomError
from labs.room.script import SHORT, WITHOUT_MARKER, Do, Until, differences, play
from labs.room.state import KEYS
from labs.room.widget import LiveRoom

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]


def strikes(state):
    """Return the strikes of the present act: their names, what came of each."""
    chronicle = state["chronicle"]
    last = max((at for at, each in enumerate(chronicle) if each["strike"] == "choose-stage"), default=-1)
    return {each["strike"]: each["consequence"] for each in chronicle[last + 1 :]}


def begin(room, stage, *steps):
    room.do("stop-traffic").result()  # which may be off already
    play(room, (Do("choose-stage", {"stage": stage}), Do("start-traffic"), Until("delivered", 1), *steps))


def test_a_kill_and_a_late_commit_do_no_harm_with_the_marker(room, tmp_path):
    audit = play(room, SHORT)
    assert audit is not None
    state = room.state
    assert audit.valid, audit
    assert (audit.lost, audit.duplicated) == (0, 0)
    assert differences(state) == []
    assert list(strikes(state)) == ["kill-driver", "hold-commit", "deliver-commit", "finish"]
    assert "repeated by driver" in strikes(state)["kill-driver"]
    assert "its first transaction aborted" in strikes(state)["kill-driver"]
    assert "its driver asked again" in strikes(state)["hold-commit"]
    delivered = strikes(state)["deliver-commit"]
    refused = "refused" in delivered and "nothing has changed" in delivered
    assert (refused and ("fenced" in delivered or "being ended" in delivered)) or "committed already" in delivered
    # Aborted rows lie in the log, and only who reads uncommitted sees them.
    assert state["readers"]["committed"] == audit.observed
    assert state["readers"]["uncommitted"] > audit.observed
    assert state["log"]["stable"] == state["log"]["end"]
    assert {each["kind"] for each in state["log"]["entries"]} >= {"row", "commit"}
    noted = [each["number"] for each in state["batches"] if each["state"] == "noted"]
    assert state["marker"]["batch"] in (noted[-1], noted[-1] + 1)
    assert state["counted"]["behind"] == 0

    folder = room.save(tmp_path / "session")
    recording = load_recording(folder)
    assert recording["frames"][0][1].keys() == set(KEYS)
    last = {key: value for _, changed in recording["frames"] for key, value in changed.items()}
    assert last["report"] == state["report"]
    assert json.loads((folder / "audit.json").read_text())["verdict"] == "valid"
    assert [each["do"] for each in json.loads((folder / "schedule.json").read_text())] == list(strikes(state))
    assert "is not an empty folder" in room.do("save", folder=str(folder)).result()
    assert "the session is over" in room.do("kill-driver").result()
    with pytest.raises(RoomError, match="the session is over"):
        room.finish()


@pytest.mark.soak
def test_the_same_kill_doubles_the_batch_in_flight_with_a_checkpoint_alone(room):
    audit = play(room, WITHOUT_MARKER)
    assert audit is not None
    state = room.state
    assert str(audit.verdict) == "invalid"
    assert (audit.lost, audit.duplicated > 0) == (0, True)
    assert differences(state) == []
    assert f"{audit.duplicated} results doubled" in strikes(state)["kill-driver"]
    assert {each["state"] for each in state["log"]["entries"]} == {"plain"}


def test_without_the_marker_only_a_kill_after_the_commit_doubles_a_batch(room):
    begin(room, "+ transactions", Do("kill-driver", {"at": "before"}), Until("noted", 1, more=True))
    state = room.wait(lambda state: strikes(state)["kill-driver"])
    assert "repeated by driver" in strikes(state)["kill-driver"]
    assert "its first transaction aborted" in strikes(state)["kill-driver"]
    assert state["verdict"]["word"] == "valid"
    play(room, (Do("kill-driver", {"at": "commit"}), Until("duplicated")))
    audit = room.finish()
    assert f"{audit.duplicated} results doubled" in strikes(room.state)["kill-driver"]
    assert (audit.lost, differences(room.state)) == (0, [])


@pytest.mark.parametrize(
    ("order", "arguments", "said"),
    [
        ("kick", {}, "no order is called 'kick'"),
        ("kill-driver", {"force": 9}, "no argument 'force'"),
        ("kill-driver", {"driver": "one"}, "there is no driver 'one'"),
        ("kill-driver", {"driver": 999}, "no driver 999 is starting"),
        ("freeze-driver", {"driver": 999}, "no driver 999 is starting"),
        ("kill-driver", {"at": "dawn"}, "at is 'dawn'"),
        ("wake-driver", {}, "no driver is frozen"),
        ("set-rate", {"rate": -1}, "a rate of -1 is not possible"),
        ("set-rate", {"rate": 5_001}, "expected 0 to 5,000"),
        ("set-rate", {"rate": True}, "a rate of True"),
        ("set-rate", {"rate": float("nan")}, "a rate of nan"),
        ("set-rate", {}, "a rate of None"),
        ("choose-stage", {"stage": "exactly twice"}, "no stage is called 'exactly twice'"),
        ("kill-broker", {"broker": 7}, "there is no broker 7"),
        ("start-broker", {"broker": 0}, "the broker is running"),
        ("wake-broker", {}, "the broker is running"),
        ("kill-executor", {}, "this room has no executors"),
        ("heal-network", {}, "it is not cut"),
        ("hold-commit", {}, "this stage has no transactions"),
        ("deliver-commit", {}, "no commit is held"),
        ("delete-checkpoint", {}, "this stage keeps no checkpoint"),
        ("start-traffic", {}, "is on already"),
        ("keep-spare", {"on": "yes"}, "needs on: true or false"),
        ("save", {}, "needs the name of a folder"),
        ("save", {"folder": "/dev/null/x"}, "cannot be made"),
    ],
)
def test_an_order_that_makes_no_sense_is_one_line(room, order, arguments, said):
    if room.state["stage"]["name"] != "no checkpoint":
        play(room, (Do("choose-stage", {"stage": "no checkpoint"}), Do("start-traffic")))
    before = room.state
    line = room.do(order, **arguments).result()
    assert said in line
    assert "\n" not in line
    assert room.state["message"] == line
    assert len(room.state["chronicle"]) == len(before["chronicle"])


def test_the_state_says_whether_a_spare_is_wanted(room):
    for wanted in (False, True):
        assert room.do("keep-spare", on=wanted).result() == ""
        assert room.state["spare"] is wanted


@pytest.mark.soak
def test_without_a_checkpoint_everything_comes_again(room):
    begin(room, "no checkpoint", Until("delivered", 12))
    before = room.state["verdict"]["delivered"]
    play(room, (Do("kill-driver"), Until("duplicated", before)))
    assert "began again at the first record" in strikes(room.state)["kill-driver"]
    assert room.finish().duplicated >= before
    assert differences(room.state) == []


@pytest.mark.soak
def test_a_deleted_checkpoint_is_refused_by_the_marker(room):
    begin(room, "+ batch marker", Do("delete-checkpoint"), Until("refused"))
    state = room.wait(lambda state: strikes(state)["delete-checkpoint"])
    assert "refused at batch 0" in strikes(state)["delete-checkpoint"]
    audit = room.finish()
    assert str(audit.verdict) == "unknown"
    assert "refused" in audit.reason
    assert audit.duplicated == 0
    assert (room.state["verdict"]["lost"], room.state["verdict"]["duplicated"]) == (0, 0)


def test_brokers_and_network_are_struck_and_mended(room):
    begin(room, "+ transactions", Do("freeze-broker"))
    room.wait(lambda state: "broker 0 is frozen: the log is shown as it was" in state["message"])
    assert "start-broker" not in room.state["possible"]
    assert {"wake-broker", "kill-broker"} <= set(room.state["possible"])
    play(room, (Do("wake-broker"), Until("noted", 1, more=True), Do("cut-network")))
    assert room.state["network"]["cut"]
    play(room, (Do("heal-network"), Until("noted", 1, more=True), Do("kill-broker"), Do("start-broker")))
    play(room, (Until("running brokers"), Until("noted", 1, more=True)))
    outages = ("freeze-broker", "cut-network", "kill-broker")  # a driver may have fallen over meanwhile
    state = room.wait(lambda state: all("in the checkpoint again after" in strikes(state)[each] for each in outages))
    assert "it answers after" in strikes(state)["start-broker"]
    assert room.finish().duplicated == room.state["verdict"]["duplicated"]
    assert differences(room.state) == []


def test_a_frozen_driver_wakes_up_fenced(room):
    begin(room, "+ batch marker", Do("freeze-driver"), Do("start-driver"))
    play(room, (Until("noted", 2, more=True), Do("wake-driver")))  # by the newcomer, who has fenced it by then
    room.wait(lambda state: all(strikes(state).values()))
    room.wait(lambda state: state["drivers"][0]["state"] in ("fenced", "refused", "ended"))
    assert room.finish().valid
    assert differences(room.state) == []


def test_a_subscriber_that_breaks_is_given_up_and_blinds_nobody(room, tmp_path):
    def broken(changed):
        raise ValueError("no such view")

    room.subscribe(broken)
    assert room.wait(lambda state: "a view was removed" in (state["message"] or ""))
    room.save(tmp_path / "blind")  # the next order has the next word
    time = room.state["time"]
    room.wait(lambda state: state["time"] > time + 1 and "the recording is saved in" in state["message"])


def test_the_rate_is_changed_and_paused(room):
    begin(room, "+ batch marker", Do("set-rate", {"rate": 200}))
    room.wait(lambda state: state["traffic"]["per_second"] > 100)
    play(room, (Do("stop-traffic"),))
    room.wait(lambda state: state["traffic"]["per_second"] == 0)
    play(room, (Do("set-rate", {"rate": 0}), Do("start-traffic")))
    sent = room.state["traffic"]["sent"]
    play(room, (Until("seconds", 1, more=True),))
    assert room.state["traffic"]["sent"] == sent
    play(room, (Do("set-rate", {"rate": 20}), Until("sent", 20, more=True)))
    assert room.finish().valid


def test_a_script_that_was_cut_short_can_be_played_again(room):
    live = LiveRoom(room)
    with pytest.raises(TimeoutError, match="delivered did not become"):
        live.play((Do("start-traffic"), Until("delivered", 1_000_000, timeout=0.1)))
    audit = live.play((Do("start-traffic"), Until("delivered", 1), Do("finish")))
    assert audit is not None
    assert audit.valid, audit
    assert live.play((Do("start-traffic"), Until("delivered", 1))) is None  # nobody has judged this act


def test_a_new_act_that_cannot_begin_leaves_the_present_one_as_it_is(room, monkeypatch):
    begin(room, "checkpoint")
    before = room.state

    def no_topic(*_):
        raise KafkaUnreachable("no broker answers")

    with monkeypatch.context() as patch:
        patch.setattr("labs.room.act.create_topic", no_topic)
        assert "no broker answers" in room.do("choose-stage", stage="+ transactions").result()
    assert room.state["stage"] == before["stage"]
    assert [each["strike"] for each in room.state["chronicle"]] == [each["strike"] for each in before["chronicle"]]
    play(room, [Until("delivered", 6, more=True)])
    begin(room, "+ batch marker")
    assert room.finish().valid
