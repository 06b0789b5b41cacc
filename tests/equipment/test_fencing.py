"""A killed broker comes back only after a controller has noted that it was dead."""

from __future__ import annotations

import sys
import threading

import psutil
import pytest

from labs.equipment.broker import Broker
from labs.equipment.child_process import ChildProcess
from labs.equipment.node import CONTROLLER_CONFIG, sees_it_fenced
from labs.equipment.topics import create_topic
from labs.equipment.waiting import eventually


@pytest.mark.long
def test_restart_after_a_kill_waits_until_the_dead_broker_is_fenced():
    with Broker() as broker:
        create_topic(broker.bootstrap_servers, "any", 1)
        broker.kill()
        broker.start()
        log = broker.nodes[0].log_file.read_text()
    fenced, started = log.rfind("handleBrokerFenced: changing"), log.rfind("Kafka Server started")
    assert 0 < fenced < started


@pytest.mark.long
def test_controller_that_dies_on_the_way_is_started_again():
    with Broker() as broker:
        create_topic(broker.bootstrap_servers, "any", 1)
        broker.kill()
        killed = []

        def kill_the_first_controller():
            def controllers():
                return [p for p in psutil.Process().children() if CONTROLLER_CONFIG in p.cmdline()]

            [controller] = eventually(controllers, timeout=20, interval=0.01)
            controller.kill()
            killed.append(controller.pid)

        saboteur = threading.Thread(target=kill_the_first_controller)
        saboteur.start()
        broker.start()
        saboteur.join()
        log = broker.nodes[0].log_file.read_text()
    assert killed
    assert "handleBrokerFenced: changing" in log


@pytest.mark.parametrize("said", ["", "Becoming the active controller\n"])
def test_controller_that_ended_has_fenced_nobody(said, tmp_path):
    ended = ChildProcess([sys.executable, "-c", f"print({said!r}); raise SystemExit(1)"], tmp_path / "log")
    ended.wait()
    assert not sees_it_fenced(ended, tmp_path)
