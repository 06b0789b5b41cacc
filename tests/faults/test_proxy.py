from __future__ import annotations

import random
import re
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import confluent_kafka
import kafka
import pytest
from confluent_kafka import KafkaException, Producer

from labs.equipment.broker import Broker
from labs.equipment.node import answers, require_free
from labs.equipment.topics import create_topic
from labs.equipment.waiting import eventually
from labs.faults.proxy import Passage, Proxy, Request, Sighting, proxied_broker
from labs.faults.proxy_server import ProxyServer, exchange

# A whole request: ApiVersions 0, correlation id 7, client id "raw".
API_VERSIONS = b"\x00\x00\x00\x0d" + b"\x00\x12" + b"\x00\x00" + b"\x00\x00\x00\x07" + b"\x00\x03raw"


@pytest.fixture(scope="module")
def bench() -> Iterator[tuple[Broker, Proxy]]:
    with proxied_broker() as (broker, proxy):
        yield broker, proxy


@pytest.mark.timeout(30)
def test_proxy_that_cannot_listen_says_why_and_frees_its_port(monkeypatch):
    async def refuse(*_, **sockets: socket.socket):
        ports.append(sockets["sock"].getsockname()[1])
        raise OSError("too many open files")

    ports: list[int] = []
    monkeypatch.setattr("labs.faults.proxy_server.asyncio.start_server", refuse)
    with pytest.raises(OSError, match="too many open files"):
        ProxyServer()
    socket.create_server(("127.0.0.1", *ports)).close()


@pytest.fixture
def broker(bench) -> Broker:
    return bench[0]


@pytest.fixture
def proxy(bench) -> Iterator[Proxy]:
    yield bench[1]
    bench[1].disarm()
    bench[1].heal()


@pytest.fixture
def topic(proxy, request) -> str:
    name = re.sub(r"\W", "_", request.node.name)
    return create_topic(proxy.bootstrap_servers, name, partitions=1)


@pytest.fixture
def says_nothing(capfd, caplog) -> Iterator[None]:
    yield
    assert capfd.readouterr() == ("", "")
    assert caplog.get_records("call") == []


def producer(proxy: Proxy, **settings: object) -> Producer:
    named = {key.replace("_", "."): value for key, value in settings.items()}
    return Producer(
        {"bootstrap.servers": proxy.bootstrap_servers, "log_level": 0, "log.connection.close": False, **named}
    )


def transactional_producer(proxy: Proxy, transactional_id: str) -> Producer:
    made = producer(proxy, transactional_id=transactional_id)
    made.init_transactions(30)
    return made


def commit_error(made: Producer) -> str | None:
    try:
        made.commit_transaction(30)
    except KafkaException as error:
        return error.args[0].name()
    return None


def send(made: Producer, topic: str, *values: bytes) -> None:
    for value in values:
        made.produce(topic, value)
    assert made.flush(30) == 0


def read(proxy: Proxy, topic: str, isolation_level: str = "read_committed") -> list[bytes | None]:
    """All values of partition 0, up to the end that readers of this isolation level may see."""
    reader = confluent_kafka.Consumer(
        {
            "bootstrap.servers": proxy.bootstrap_servers,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation_level,
        }
    )
    reader.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    values: list[bytes | None] = []
    while True:
        message = reader.poll(30)
        assert message is not None, "neither a record nor the end of the partition within 30 s"
        if error := message.error():
            assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF
            reader.close()
            return values
        values.append(message.value())


def hung_up(connection: socket.socket) -> bool:
    """Wait until nothing more can come. Raises TimeoutError."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


def passages(proxy: Proxy, kind: Request, direction: str, **fields: object) -> list[Passage]:
    wanted = {"kind": kind, "direction": direction, **fields}.items()
    return [line for line in proxy.log if all(getattr(line, name) == value for name, value in wanted)]


def send_with_confluent_kafka(proxy: Proxy, topic: str, values: list[bytes]) -> None:
    send(producer(proxy), topic, *values)


def send_with_kafka_python(proxy: Proxy, topic: str, values: list[bytes]) -> None:
    made = kafka.KafkaProducer(bootstrap_servers=proxy.bootstrap_servers)
    for value in values:
        made.send(topic, value)
    made.close()


def read_with_kafka_python(proxy: Proxy, topic: str) -> list[bytes]:
    reader = kafka.KafkaConsumer(bootstrap_servers=proxy.bootstrap_servers, auto_offset_reset="earliest")
    partition = kafka.TopicPartition(topic, 0)
    reader.assign([partition])
    end, values = reader.end_offsets([partition])[partition], []
    while reader.position(partition) < end:
        for records in reader.poll(1000).values():
            values += [record.value for record in records]
    reader.close()
    return values


# Nothing armed: nothing changed


@pytest.mark.bench
@pytest.mark.parametrize("send_all", [send_with_confluent_kafka, send_with_kafka_python])
@pytest.mark.parametrize("read_all", [read, pytest.param(read_with_kafka_python, marks=pytest.mark.long)])
def test_traffic_passes_unchanged(proxy, topic, send_all, read_all):
    random_ = random.Random(1)
    sizes = [0, 1, 900_000, *(random_.randrange(20_000) for _ in range(997))]
    values = [random_.randbytes(size) for size in sizes]
    send_all(proxy, topic, values)
    assert read_all(proxy, topic) == values


@pytest.mark.long
def test_produce_without_acknowledgement_passes_and_has_no_response_to_lose(proxy, topic):
    fault = proxy.drop_next_response(Request.PRODUCE, client_id="acks-0")
    made = producer(proxy, acks=0, client_id="acks-0")
    for value in (b"1", b"2", b"3"):
        send(made, topic, value)
    eventually(lambda: read(proxy, topic) == [b"1", b"2", b"3"])
    assert passages(proxy, Request.PRODUCE, "response", client_id="acks-0") == []
    assert not fault.struck.is_set()


@pytest.mark.long
def test_small_answers_do_not_wait_for_each_other(proxy):
    """Nagle's algorithm would keep the second of two answers back until the first is acknowledged, 40 ms later."""
    seconds = []
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=30) as client, client.makefile("rb") as answers:
        for _ in range(25):
            started = time.perf_counter()
            client.sendall(2 * API_VERSIONS)
            for _ in range(2):
                answers.read(int.from_bytes(answers.read(4), "big"))
            seconds.append(time.perf_counter() - started)
    assert sorted(seconds)[5] < 0.035


@pytest.mark.long
def test_log_tells_what_passed(proxy, topic):
    send(producer(proxy, client_id="logged"), topic, bytes(1000))
    (sent,) = passages(proxy, Request.PRODUCE, "request", client_id="logged")
    (acknowledged,) = passages(proxy, Request.PRODUCE, "response", client_id="logged")
    assert (sent.connection, sent.done) == (acknowledged.connection, acknowledged.done) == (sent.connection, "passed")
    assert 1000 < sent.size < 1200
    assert sent.time <= acknowledged.time
    assert str(sent.kind) == "PRODUCE"


@pytest.mark.long
def test_broker_may_be_restarted_behind_the_proxy(broker, proxy, topic):
    made = producer(proxy)
    send(made, topic, b"before")
    broker.restart()
    send(made, topic, b"after")
    assert read(proxy, topic) == [b"before", b"after"]


@pytest.mark.long
def test_who_watches_is_shown_each_message_with_its_bytes_until_it_looks_away(proxy, topic):
    made = producer(proxy, client_id="watched")
    seen: list[Sighting] = []
    proxy.watch(seen.append)
    held = proxy.hold_next_request(Request.PRODUCE, cut_client=False, client_id="watched")
    made.produce(topic, b"held for a while")
    held.wait()
    held.deliver()
    made.flush(30)
    send(made, topic, b"passed")
    proxy.unwatch(seen.append)
    send(made, topic, b"nobody looks")
    told = [each for each in seen if (each.passage.kind, each.passage.client_id) == (Request.PRODUCE, "watched")]
    assert [(each.passage.direction, each.passage.done) for each in told] == [
        ("request", "held"),
        ("request", "delivered late: no error"),
        ("request", "passed"),
        ("response", "passed"),
    ]
    kept, delivered, request, response = told
    assert (kept.request is delivered.request, request.request is response.request) == (True, True)
    assert kept.frame == delivered.frame == held.frame
    assert (b"held for a while" in kept.frame, b"passed" in request.frame) == (True, True)
    assert int.from_bytes(delivered.answer[4:8], "big") == kept.request.correlation_id
    assert not kept.answer


# Responses: the broker has done it, and the client does not know


@pytest.mark.bench
@pytest.mark.parametrize(("idempotence", "copies"), [(False, 2), (True, 1)])
def test_lost_acknowledgement_duplicates_the_record_unless_the_producer_is_idempotent(
    proxy, topic, idempotence, copies
):
    made = producer(proxy, enable_idempotence=idempotence)
    send(made, topic, b"before")
    fault = proxy.drop_next_response(Request.PRODUCE)
    send(made, topic, b"lost ack")
    assert fault.wait().request.client_id == "rdkafka"
    assert read(proxy, topic) == [b"before"] + [b"lost ack"] * copies


@pytest.mark.long
def test_a_fault_strikes_once(proxy, topic):
    made = producer(proxy)
    proxy.drop_next_response(Request.PRODUCE)
    for value in (b"1", b"2", b"3"):
        send(made, topic, value)
    assert read(proxy, topic) == [b"1", b"1", b"2", b"3"]


@pytest.mark.long
def test_silent_connection_is_found_out_by_the_request_timeout(proxy, topic):
    made = producer(proxy, client_id="patient", socket_timeout_ms=1000)
    lost = proxy.drop_next_response(Request.PRODUCE, cut=False, client_id="patient")
    send(made, topic, b"twice")
    assert lost.struck.is_set()
    first, second = passages(proxy, Request.PRODUCE, "request", client_id="patient")
    assert (second.time - first.time).total_seconds() > 0.9
    assert first.connection != second.connection
    assert read(proxy, topic) == [b"twice", b"twice"]


@pytest.mark.long
def test_delayed_response_arrives_late_and_whole(proxy, topic):
    fault = proxy.delay_next_response(Request.PRODUCE, 1.5, client_id="delayed")
    send(producer(proxy, client_id="delayed"), topic, b"once")
    assert fault.struck.is_set()
    (sent,) = passages(proxy, Request.PRODUCE, "request", client_id="delayed")
    (acknowledged,) = passages(proxy, Request.PRODUCE, "response", client_id="delayed")
    assert 1.5 <= (acknowledged.time - sent.time).total_seconds() < 10
    assert acknowledged.done == "delayed 1.5 s"
    assert read(proxy, topic) == [b"once"]


@pytest.mark.long
def test_a_fault_names_a_kind_of_request_and_a_possible_delay(proxy):
    with pytest.raises(TypeError, match=r"such as Request\.PRODUCE, not 'produce'"):
        proxy.drop_next_response("produce")
    with pytest.raises(ValueError, match="0 seconds or more, not -1"):
        proxy.delay_next_response(Request.PRODUCE, -1)


@pytest.mark.long
def test_lost_end_txn_response_is_retried_and_commits_once(proxy, topic):
    made = transactional_producer(proxy, topic)
    fault = proxy.drop_next_response(Request.END_TXN, transactional_id=topic)
    made.begin_transaction()
    send(made, topic, b"once")
    made.commit_transaction(30)
    assert fault.struck.is_set()
    eventually(lambda: read(proxy, topic) == [b"once"])


# Requests: the broker has not seen it


@pytest.mark.long
def test_lost_request_is_sent_again_and_arrives_once(proxy, topic):
    fault = proxy.drop_next_request(Request.PRODUCE, client_id="careful")
    send(producer(proxy, client_id="careful"), topic, b"once")
    assert fault.struck.is_set()
    assert [line.done for line in passages(proxy, Request.PRODUCE, "request", client_id="careful")] == [
        "dropped",
        "passed",
    ]
    assert read(proxy, topic) == [b"once"]


@pytest.mark.long
def test_fault_waits_for_its_client(proxy, topic):
    fault = proxy.drop_next_response(Request.PRODUCE, client_id="victim")
    send(producer(proxy, client_id="bystander"), topic, b"bystander")
    assert not fault.struck.is_set()
    send(producer(proxy, client_id="victim"), topic, b"victim")
    assert fault.wait().request.client_id == "victim"
    assert read(proxy, topic) == [b"bystander", b"victim", b"victim"]


@pytest.mark.long
def test_fault_waits_for_its_transactional_id(proxy, topic):
    fault = proxy.drop_next_response(Request.PRODUCE, transactional_id=topic)
    send(producer(proxy), topic, b"bystander")
    assert not fault.struck.is_set()
    made = transactional_producer(proxy, topic)
    made.begin_transaction()
    send(made, topic, b"victim")
    assert fault.wait().request.transactional_id == topic
    made.commit_transaction(30)
    eventually(lambda: read(proxy, topic) == [b"bystander", b"victim"])


@pytest.mark.long
def test_disarmed_fault_does_not_strike(proxy, topic):
    fault = proxy.drop_next_response(Request.PRODUCE)
    proxy.disarm()
    send(producer(proxy), topic, b"once")
    assert read(proxy, topic) == [b"once"]
    with pytest.raises(TimeoutError, match="no PRODUCE response of any client came through the proxy within 0 s"):
        fault.wait(0)


@pytest.mark.long
def test_held_request_without_a_cut_is_answered_when_delivered(proxy):
    held = proxy.hold_next_request(Request.API_VERSIONS, cut_client=False, client_id="raw")
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(exchange, proxy.port, API_VERSIONS, 30)
        held.wait()
        assert not waiting.done()
        answer = held.deliver()
        assert waiting.result() == answer.frame
    with pytest.raises(RuntimeError, match="delivered already"):
        held.deliver()


@pytest.mark.bench
@pytest.mark.parametrize(
    ("next_step", "error"),
    [
        ("produce to the same partition", "INVALID_TXN_STATE"),
        ("send offsets", None),  # begins a third transaction, which then holds the offsets only
        ("commit", None),  # taken for a repetition of the delayed one
    ],
)
def test_delayed_end_txn_publishes_half_of_the_next_transaction_of_the_same_epoch(proxy, topic, next_step, error):
    made = transactional_producer(proxy, topic)
    held = proxy.hold_next_request(Request.END_TXN, transactional_id=topic)
    made.begin_transaction()
    send(made, topic, b"1")
    made.commit_transaction(30)  # cut off, it reconnects and commits with a second EndTxn
    assert held.struck.is_set()

    made.begin_transaction()
    send(made, topic, b"2")
    assert read(proxy, topic) == [b"1"]
    assert held.deliver().error is None
    eventually(lambda: read(proxy, topic) == [b"1", b"2"])  # and nobody has committed it

    if next_step == "produce to the same partition":
        made.produce(topic, b"2, too")
    if next_step == "send offsets":
        group = confluent_kafka.Consumer({"bootstrap.servers": proxy.bootstrap_servers, "group.id": topic})
        offsets = [confluent_kafka.TopicPartition(topic, 0, 1)]
        made.send_offsets_to_transaction(offsets, group.consumer_group_metadata(), 30)
    assert commit_error(made) == error
    assert read(proxy, topic, "read_uncommitted") == [b"1", b"2"]


@pytest.mark.bench
def test_delayed_end_txn_is_harmless_once_the_next_transaction_has_a_new_epoch(proxy, topic):
    first = transactional_producer(proxy, topic)
    held = proxy.hold_next_request(Request.END_TXN, transactional_id=topic)
    first.begin_transaction()
    send(first, topic, b"1")
    first.commit_transaction(30)
    assert held.struck.is_set()

    second = transactional_producer(proxy, topic)  # the same id: init_transactions gives it the next epoch
    second.begin_transaction()
    send(second, topic, b"2, first half")
    assert held.deliver().error == "InvalidProducerEpochError"
    assert read(proxy, topic) == [b"1"]
    send(second, topic, b"2, second half")
    second.commit_transaction(30)
    eventually(lambda: read(proxy, topic) == [b"1", b"2, first half", b"2, second half"])
    assert passages(proxy, Request.END_TXN, "request", connection=0, transactional_id=topic)[0].done == (
        "delivered late: InvalidProducerEpochError"
    )


# Connections


@pytest.mark.long
def test_cut_ends_present_connections_and_takes_new_ones(proxy, topic):
    made = producer(proxy, client_id="cut")
    send(made, topic, b"before")
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=30) as idle:
        idle.sendall(API_VERSIONS)
        assert idle.recv(8)[4:] == b"\x00\x00\x00\x07"
        proxy.cut()
        assert hung_up(idle)
    send(made, topic, b"after")
    before, after = passages(proxy, Request.PRODUCE, "request", client_id="cut")
    assert before.connection < after.connection
    assert read(proxy, topic) == [b"before", b"after"]


@pytest.mark.long
def test_partition_holds_requests_until_healed(broker, proxy, topic):
    made = producer(proxy, client_id="partitioned")
    send(made, topic, b"before")
    proxy.partition()
    made.produce(topic, b"during")
    assert made.flush(0.5) == 1
    assert len(passages(proxy, Request.PRODUCE, "request", client_id="partitioned")) == 1
    assert not answers(proxy.port)
    assert answers(broker.nodes[0].port)
    proxy.heal()
    assert made.flush(30) == 0
    assert read(proxy, topic) == [b"before", b"during"]


@pytest.mark.long
def test_partition_holds_responses_until_healed(proxy, topic):
    made = producer(proxy)
    fault = proxy.delay_next_response(Request.PRODUCE, 1)
    made.produce(topic, b"on its way back")
    fault.wait()
    proxy.partition()
    assert made.flush(1.5) == 1
    proxy.heal()
    assert made.flush(30) == 0
    assert read(proxy, topic) == [b"on its way back"]


@pytest.mark.long
def test_clients_wait_until_the_proxy_knows_its_broker(broker):
    with Proxy() as early, socket.create_connection(("127.0.0.1", early.port), timeout=0.5) as client:
        client.sendall(API_VERSIONS)
        with pytest.raises(TimeoutError):
            client.recv(1)
        early.forward_to(broker.nodes[0].port)
        client.settimeout(30)
        assert client.recv(8)[4:] == b"\x00\x00\x00\x07"


def test_client_without_a_broker_finds_its_connection_closed(says_nothing):
    with Proxy() as proxy, socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
        nobody.close()
        proxy.forward_to(port)
        with pytest.raises(ConnectionError):
            exchange(proxy.port, API_VERSIONS, 30)


@pytest.mark.long
@pytest.mark.parametrize("junk", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01", b"\x00\x00\x00\x01x"])
def test_what_is_not_kafka_is_hung_up_on_without_a_word(broker, says_nothing, junk):
    with Proxy() as proxy:
        proxy.forward_to(broker.nodes[0].port)
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=30) as stranger:
            stranger.sendall(junk)
            assert stranger.recv(1) == b""


@pytest.mark.long
def test_close_ends_thread_and_connections_without_a_word(broker, says_nothing):
    proxy = Proxy()
    proxy.forward_to(broker.nodes[0].port)
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=30) as client:
        client.sendall(API_VERSIONS)
        assert client.recv(8)
        proxy.partition()
        client.sendall(API_VERSIONS)
        proxy.close()
        assert hung_up(client)
    assert not [thread for thread in threading.enumerate() if thread.name == f"proxy-{proxy.port}"]
    require_free(proxy.port)
    proxy.close()
    with pytest.raises(RuntimeError, match="the proxy is closed"):
        proxy.partition()
