import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer, TopicPartition

from labs.equipment import broker as broker_module
from labs.equipment import node as node_module
from labs.equipment.broker import Broker, BrokerError, ExternalBroker, open_broker
from labs.equipment.node import RUNNING, answers
from labs.equipment.ports import PortTaken
from labs.equipment.topics import admin, create_topic, end_offsets
from labs.equipment.waiting import eventually
from tests.processes import next_line, runs

# Starts a broker in the directory that is named, if one is, says so, and stays until it is killed.
PARENT = """
import sys
from labs.equipment.broker import Broker
broker = Broker(directory=(sys.argv[1:] or [None])[0])
print(broker.directory, flush=True)
broker.start()
print(broker.nodes[0].pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def second(tmp_path_factory):
    """A broker beside the session's, in a temporary directory with a difficult name."""
    directory = tmp_path_factory.mktemp("own") / "données, du café" / "a b"
    directory.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(directory))
        broker = Broker()
    with broker:
        yield broker


@pytest.fixture
def own(second):
    """The second broker, running, to stop, kill and pause."""
    return second.start()


@pytest.fixture
def kept(own):
    """Tell what is left of a topic of that broker in which one record was acknowledged: `kept(broker=own)`."""
    name = create_topic(own.bootstrap_servers, f"kept-{time.monotonic_ns()}", partitions=1)
    produce(own, name, b"acknowledged")
    return lambda broker=own: read(broker, name)


def produce(broker, topic: str, *values: bytes, compression: str = "none") -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "compression.type": compression, "log_level": 0}
    producer = Producer(settings)
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def read(broker, topic: str) -> list[bytes]:
    with contextlib.closing(KafkaConsumer(bootstrap_servers=broker.bootstrap_servers)) as consumer:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        [end], values = consumer.end_offsets([partition]).values(), []
        while consumer.position(partition) < end:
            values += [record.value for records in consumer.poll(1000).values() for record in records]
    return values


def reapers() -> list[psutil.Process]:
    return [process for process in psutil.Process().children() if "reaper" in process.cmdline()]


@pytest.mark.bench
def test_what_is_written_can_be_read(broker, topic):
    name = topic()
    produce(broker, name, b"one", b"two")
    assert read(broker, name) == [b"one", b"two"]


@pytest.mark.long
def test_what_java_unpacks_to_read_a_compressed_record_goes_with_the_broker(broker, topic):
    name = topic()
    produce(broker, name, *[b"x" * 100] * 100, compression="lz4")
    assert list(broker.nodes[0].directory.glob("tmp/liblz4*"))


@pytest.mark.long
def test_two_brokers_at_once_know_nothing_of_each_other(broker, own, topic):
    assert end_offsets(own.bootstrap_servers, topic()) == {}
    assert broker.running
    assert own.running


@pytest.mark.long
def test_every_port_is_on_loopback_only(broker):
    listening = psutil.Process(broker.nodes[0].pid).net_connections("tcp")
    addresses = {each.laddr.ip for each in listening if each.status == psutil.CONN_LISTEN}
    assert addresses <= {"127.0.0.1", "::ffff:127.0.0.1"}
    assert addresses


@pytest.mark.long
def test_restart_keeps_data_and_port(own, kept):
    servers, pid = own.bootstrap_servers, own.nodes[0].pid
    own.restart()
    assert own.bootstrap_servers == servers
    assert own.nodes[0].pid != pid
    assert kept() == [b"acknowledged"]


@pytest.mark.long
def test_kill_then_start_keeps_acknowledged_data(own, kept):
    own.kill()
    assert not own.running
    assert own.start().running
    assert kept() == [b"acknowledged"]


@pytest.mark.long
def test_a_broker_killed_from_outside_is_started_again_with_its_data(own, kept):
    before = reapers()
    os.kill(own.nodes[0].pid, signal.SIGKILL)
    eventually(lambda: not own.running)
    assert len(reapers()) == len(before) - 1, "a process that gets the dead one's id would be killed"
    own.start()
    assert kept() == [b"acknowledged"]


@pytest.mark.long
def test_starting_twice_changes_nothing(own):
    pid = own.nodes[0].pid
    assert own.start().nodes[0].pid == pid


@pytest.mark.long
def test_a_paused_broker_is_silent_until_it_is_resumed(own, kept):
    own.pause()
    assert own.running
    assert not answers(own.nodes[0].port)
    own.resume()
    assert eventually(lambda: answers(own.nodes[0].port))
    assert kept() == [b"acknowledged"]


@pytest.mark.long
def test_a_paused_broker_can_be_stopped_cleanly(own):
    own.pause()
    own.stop()
    assert not own.running
    assert not (own.nodes[0].directory / RUNNING).exists()  # deleted only after a clean end


@pytest.mark.long
def test_a_given_directory_serves_the_next_broker(own, kept):
    own.stop()
    with Broker(directory=own.directory) as successor:
        assert kept(successor) == [b"acknowledged"]
    assert [entry.name for entry in own.directory.iterdir()] == ["node-0"]


@pytest.mark.long
def test_a_directory_in_use_is_a_clear_message(own, kept):
    with pytest.raises(BrokerError, match=r"is in use by another broker; end that one, or choose another"):
        Broker(directory=own.directory).start()
    assert kept() == [b"acknowledged"]


@pytest.mark.long
def test_a_broker_that_is_offered_anothers_ports_takes_others_and_leaves_nothing(broker, monkeypatch):
    offers, free_ports = [[broker.nodes[0].port, broker.nodes[0].quorum_port]], broker_module.free_ports
    monkeypatch.setattr(broker_module, "free_ports", lambda count: offers.pop() if offers else free_ports(count))
    with Broker() as other:
        assert other.bootstrap_servers != broker.bootstrap_servers
        assert answers(other.nodes[0].port)
        pid = other.nodes[0].pid
        assert pid is not None
    assert not runs(pid)
    assert not other.directory.exists()


@pytest.mark.long
def test_a_port_that_is_taken_at_the_last_moment_is_not_mistaken_for_ones_own(broker, monkeypatch):
    monkeypatch.setattr(node_module, "require_free", lambda port: None)
    with pytest.raises(BrokerError, match="Address already in use") as refusal:
        Broker(port=broker.nodes[0].port).start()
    assert isinstance(refusal.value.__cause__, PortTaken)


@pytest.mark.long
def test_a_cluster_id_that_looks_like_an_option_is_taken(tmp_path, monkeypatch):
    """Kafka makes none that begins with a dash, and takes them."""
    monkeypatch.setattr(node_module, "format_from_kept", lambda *_: False)
    monkeypatch.setattr(broker_module, "_known_cluster_id", lambda directory: "-0123456789abcdefghijk")
    broker = Broker(directory=tmp_path, settings={"metric.reporters": "no.such.Reporter"})
    with pytest.raises(BrokerError, match="ended while starting"):
        broker.start()
    assert "cluster.id=-0123456789abcdefghijk\n" in (tmp_path / "node-0" / "data" / "meta.properties").read_text()


@pytest.mark.bench
def test_a_given_port_in_use_is_a_clear_message(broker):
    port = broker.nodes[0].port
    with pytest.raises(BrokerError, match=f"port {port} on 127.0.0.1 is in use by another program; choose another"):
        Broker(port=port).start()


@pytest.mark.long
@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_directory_that_cannot_be_made_is_a_clear_message(tmp_path, place):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(BrokerError, match=f"the broker's directory .*{place}/node-0 cannot be used: .*Not a directory"):
        Broker(directory=tmp_path / place).start()


@pytest.mark.long
def test_a_full_disk_is_a_clear_message(tmp_path, monkeypatch):
    monkeypatch.setattr(node_module, "LEAST_SPACE", 1 << 62)
    with pytest.raises(
        BrokerError, match=r"the disk of .*node-0 has \d+ MB left, and a broker needs \d+ MB; free some"
    ):
        Broker(directory=tmp_path).start()


@pytest.mark.long
def test_a_disk_that_fills_up_meanwhile_is_a_clear_message(tmp_path):
    (tmp_path / "node-0").mkdir()
    (tmp_path / "node-0" / "server.properties").symlink_to("/dev/full")
    with pytest.raises(BrokerError, match=r"cannot be used: .*No space left on device"):
        Broker(directory=tmp_path).start()


@pytest.mark.long
def test_a_bad_setting_is_named_without_a_stack_trace(tmp_path):
    with pytest.raises(BrokerError, match=r"Invalid value banana for configuration log\.segment\.bytes") as refusal:
        Broker(directory=tmp_path, settings={"log.segment.bytes": "banana"}).start()
    assert "\tat " not in str(refusal.value)


@pytest.mark.long
def test_a_failed_start_shows_the_end_of_the_log_and_keeps_it(tmp_path):
    broker = Broker(directory=tmp_path, settings={"metric.reporters": "no.such.Reporter"})
    with pytest.raises(BrokerError, match=r"ended while starting\.\nLast lines of .*broker\.log:\n(.*\n)*.*no\.such"):
        broker.start()
    assert "no.such.Reporter" in (tmp_path / "node-0" / "broker.log").read_text()
    assert not broker.running


@pytest.mark.long
def test_no_nodes_is_refused_and_leaves_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(BrokerError, match="one node or more, not 0"):
        Broker(nodes=0)
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_three_nodes_form_a_cluster_that_survives_one():
    with Broker(nodes=3) as cluster:
        create_topic(cluster.bootstrap_servers, "replicated", partitions=1, replication=cluster.replication)
        with admin(cluster.bootstrap_servers) as client:
            [described] = client.describe_topics(["replicated"])
        assert sorted(described["partitions"][0]["replica_nodes"]) == [0, 1, 2]
        produce(cluster, "replicated", b"one")
        cluster.kill(node=0)
        assert [node.pid is None for node in cluster.nodes] == [True, False, False]
        produce(cluster, "replicated", b"two")
        assert read(cluster, "replicated") == [b"one", b"two"]


@pytest.mark.long
def test_sigkill_of_the_parent_leaves_no_java_and_keeps_a_given_directory(tmp_path):
    with parent(str(tmp_path)) as process:
        directory, pid = Path(next_line(process.stdout).strip()), int(next_line(process.stdout))
        assert runs(pid)
        process.kill()
    eventually(lambda: not runs(pid), timeout=10)
    assert (directory / "node-0" / "data" / "meta.properties").exists()


@pytest.mark.long
def test_sigkill_of_the_parent_leaves_no_java_and_no_temporary_directory():
    with parent() as process:
        directory, pid = Path(next_line(process.stdout).strip()), int(next_line(process.stdout))
        assert directory.is_dir()
        process.kill()
    eventually(lambda: not runs(pid))
    eventually(lambda: not directory.exists())


@pytest.mark.long
def test_sigkill_of_the_parent_while_it_formats_leaves_nothing_either(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # with the lab's own it would have no need to format
    with parent() as process:
        directory = Path(next_line(process.stdout).strip())
        [java] = eventually(lambda: [p for p in java_below(process.pid) if "StorageTool" in " ".join(p.cmdline())])
        process.kill()
    eventually(lambda: not runs(java.pid))
    eventually(lambda: not directory.exists())


def parent(*arguments: str) -> subprocess.Popen:
    command = [sys.executable, "-c", PARENT, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def java_below(pid: int) -> list[psutil.Process]:
    return [process for process in psutil.Process(pid).children(recursive=True) if process.name() == "java"]


@pytest.mark.bench
def test_a_named_kafka_is_used_and_never_signalled(monkeypatch, broker, topic):
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    with open_broker() as named:
        assert isinstance(named, ExternalBroker)
        name = topic()
        produce(named, name, b"mine")
        assert read(named, name) == [b"mine"]
        for verb in (named.stop, named.kill, named.pause, named.resume, named.restart):
            with pytest.raises(BrokerError, match="only signals what it started; unset the variable"):
                verb()
    assert answers(broker.nodes[0].port)


@contextlib.contextmanager
def command(*options: str):
    """Run `python -m labs broker` and yield it with its address and its Java, once it is up."""
    process = subprocess.Popen(
        [sys.executable, "-m", "labs", "broker", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "40"},
    )
    with process:
        try:
            address = next_line(process.stdout).strip()
            [java] = java_below(process.pid)
            yield process, address, java
        finally:
            process.kill()


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_ends_cleanly_when_told(number):
    with command() as (process, address, java):
        found = re.fullmatch(r"127\.0\.0\.1:(\d+)", address)
        assert found, address
        assert answers(int(found[1]))
        process.send_signal(number)
        output, said = process.communicate(timeout=30)
        assert process.returncode == 0
    assert not runs(java.pid)
    assert output == ""
    [log] = re.findall(r"^Log: (.+broker\.log)$", said, re.MULTILINE)
    assert not Path(log).exists()
    assert "Traceback" not in said


@pytest.mark.long
def test_the_command_says_so_when_its_broker_dies(tmp_path):
    with command("--directory", str(tmp_path)) as (process, _, java):
        java.kill()
        _, said = process.communicate(timeout=30)
        assert process.returncode == 1
    assert "python -m labs broker: the broker ended" in said
    assert f"Last lines of {tmp_path}/node-0/broker.log" in said
    assert "Traceback" not in said


@pytest.mark.bench
@pytest.mark.parametrize("port", ["0", "65536", "kafka"])
def test_the_command_refuses_what_is_no_port(port):
    ran = subprocess.run([sys.executable, "-m", "labs", "broker", "--port", port], capture_output=True, text=True)
    assert ran.returncode == 2
    assert f"argument --port: {port} is not a port" in ran.stderr


@pytest.mark.long
def test_something_else_is_started_meanwhile_and_once_also_if_a_port_is_taken(broker, monkeypatch):
    offers, free_ports = [[broker.nodes[0].port, broker.nodes[0].quorum_port]], broker_module.free_ports
    monkeypatch.setattr(broker_module, "free_ports", lambda count: offers.pop() if offers else free_ports(count))
    monkeypatch.setattr(node_module, "require_free", lambda port: None)
    seen = []
    with contextlib.closing(Broker()) as other:
        other.start(meanwhile=lambda: seen.append("Kafka Server started" in other.nodes[0].last_lines()))
        assert answers(other.nodes[0].port)
    assert seen == [False]


@pytest.mark.long
def test_what_fails_meanwhile_ends_the_broker(monkeypatch):
    def fail():
        raise RuntimeError("no Spark today")

    broker = Broker()
    with pytest.raises(RuntimeError, match="no Spark today"):
        broker.start(meanwhile=fail)
    assert broker.nodes[0].pid is None
    broker.close()
