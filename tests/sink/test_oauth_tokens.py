"""Login tokens are kept until shortly before they expire, whoever asks, and fetched again in time."""

from __future__ import annotations

import base64
import json
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from pyspark import cloudpickle

from exactly_once_kafka.kafka_client import cluster as cluster_module
from exactly_once_kafka.kafka_client.cluster import end_connections, kept_cluster
from exactly_once_kafka.kafka_client.settings import NoToken, TokenProvider
from exactly_once_kafka.oauth_tokens import RETRY, KeptToken, with_kept_tokens

OIDC = {
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "me",
    "sasl.oauthbearer.client.secret": "open: sesame",
    "sasl.oauthbearer.scope": "kafka",
    "sasl.oauthbearer.extensions": "logicalCluster=one",
}


def encoded(part: dict) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


def unsigned(subject: str, seconds: float) -> str:
    """Return a token that nobody signed: a broker takes it that is told to."""
    now = time.time()
    claims = {"sub": subject, "iat": now, "exp": now + seconds}
    return f"{encoded({'alg': 'none'})}.{encoded(claims)}."


class Provider:
    """Stands in for an identity provider over HTTP, and counts what it is asked."""

    def __init__(self, seconds: float = 3600, subject: str = "sink"):
        self.asked: list[tuple[str | None, str]] = []
        self.subject = subject
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                provider.asked.append((self.headers["Authorization"], form))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps({"access_token": unsigned(provider.subject, seconds)}).encode())

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/token"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def test_many_clients_at_once_share_one_token():
    asked = []

    def ask(config):
        asked.append(config)
        return "t", time.time() + 3600

    token = KeptToken(ask)
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: token("")[0], range(50))) == {"t"}
    assert len(asked) == 1


def test_a_token_is_asked_for_again_when_a_fifth_of_its_life_is_left():
    lives = iter([1000.0, -1.0, 1000.0])  # the second expires before it can be used
    token = KeptToken(lambda _: ("t", time.time() + next(lives)))
    assert token("")[1] - time.time() > 990
    assert 780 < token._good_until - time.time() <= 800
    token._good_until = time.time()  # 800 of 1000 seconds later
    token("")
    assert token("")[1] - time.time() > 990


def test_a_token_is_used_until_it_expires_while_another_cannot_be_had():
    answers = iter([("t", time.time() + 1000), OSError("the provider is away"), OSError("still away")])

    def ask(config):
        if isinstance(answer := next(answers), OSError):
            raise answer
        return answer

    token = KeptToken(ask)
    assert token("")[0] == "t"
    token._good_until = 0.0  # 800 of 1000 seconds later
    assert token("")[0] == "t"
    assert 0 < token._good_until - time.time() <= RETRY
    token.forget()  # Kafka refuses it
    with pytest.raises(OSError, match="still away"):
        token("")


@pytest.mark.parametrize("given", [KeyError("access_token"), ValueError("no JSON"), ()])
def test_kafka_python_gets_one_kind_of_error_for_what_is_no_token(given):
    def ask(config):
        if isinstance(given, Exception):
            raise given
        return given

    provider = TokenProvider(ask, "")
    for asked in (provider.token, provider.extensions):
        with pytest.raises(NoToken, match="oauth_cb raised"):
            asked()


def test_an_executor_takes_the_drivers_token_along_and_asks_when_that_is_used_up(tmp_path):
    asked = tmp_path / "asked"
    token = KeptToken(lambda _: (str(asked.write_text("again")), time.time() + 3600))
    token("")
    asked.unlink()
    taken_along = pickle.loads(cloudpickle.dumps(token))
    assert taken_along("") == token("")
    assert not asked.exists()
    taken_along._good_until = 0
    taken_along("")
    assert asked.exists()


def test_a_kept_connection_logs_in_with_the_newest_token_that_a_task_brings():
    issued = iter(["first", "second"])
    of_driver = KeptToken(lambda _: (next(issued), time.time() + 3600))
    provider = TokenProvider(of_driver, "")

    def of_task():
        provider.token()
        taken_along = {"sasl_oauth_token_provider": pickle.loads(cloudpickle.dumps(provider))}
        return {"bootstrap_servers": "127.0.0.1:1", "sasl_mechanism": "OAUTHBEARER", **taken_along}

    first = of_task()
    cluster = kept_cluster(first)
    assert first["sasl_oauth_token_provider"].token() == "first"
    of_driver._good_until = 0
    assert kept_cluster(of_task()) is cluster
    assert first["sasl_oauth_token_provider"].token() == "second"
    end_connections(first)


def test_a_token_that_was_refused_is_not_offered_again():
    tokens = iter(["first", "second"])
    token = KeptToken(lambda _: (next(tokens), time.time() + 3600))
    assert token("")[0] == token("")[0] == "first"
    token.forget()
    assert token("")[0] == token("")[0] == "second"


def test_an_executor_takes_a_token_that_came_after_a_refusal_though_it_ends_earlier():
    lives = iter([3600, 60])
    of_driver = KeptToken(lambda _: (f"for {(life := next(lives))} s", time.time() + life))
    of_driver("")
    of_executor = pickle.loads(cloudpickle.dumps(of_driver))
    of_driver.forget()
    of_driver("")
    of_executor.renew(pickle.loads(cloudpickle.dumps(of_driver)))
    assert of_executor("")[0] == "for 60 s"


def test_a_client_with_a_secret_is_given_a_token_once():
    with Provider() as provider:
        settings = with_kept_tokens(OIDC | {"sasl.oauthbearer.token.endpoint.url": provider.url})
        token, expires, principal, extensions = [settings["oauth_cb"]("") for _ in range(3)][-1]
        assert provider.asked == [
            ("Basic " + base64.b64encode(b"me:open%3A%20sesame").decode(), "grant_type=client_credentials&scope=kafka")
        ]
    assert token.count(".") == 2
    assert 3500 < expires - time.time() <= 3600
    assert (principal, extensions) == ("sink", {"logicalCluster": "one"})
    assert not [key for key in settings if "oauthbearer" in key]


@pytest.mark.parametrize(
    "other",
    [{"grant.type": "urn:ietf:params:oauth:grant-type:jwt-bearer"}, {"metadata.authentication.type": "azure_imds"}],
)
def test_other_ways_to_a_token_are_left_to_the_client_library(other):
    settings = OIDC | {"sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1"}
    settings |= {f"sasl.oauthbearer.{key}": value for key, value in other.items()}
    assert with_kept_tokens(settings) == settings


def test_connections_that_no_task_has_asked_for_in_a_while_are_ended(monkeypatch):
    settings = [{"bootstrap_servers": f"127.0.0.1:{port}"} for port in (1, 2, 3)]
    old, young = (kept_cluster(each) for each in settings[:2])
    long_ago = time.monotonic() - cluster_module.UNUSED
    monkeypatch.setattr(cluster_module._kept[cluster_module._key(settings[0])], "used", long_ago)
    kept_cluster(settings[2])
    assert kept_cluster(settings[1]) is young
    assert kept_cluster(settings[0]) is not old
    for each in settings:
        end_connections(each)
    assert not [key for key in cluster_module._kept if "127.0.0.1:1" in key]


def test_secret_does_not_follow_a_redirect_to_another_place():
    class Elsewhere(BaseHTTPRequestHandler):
        def do_POST(self):
            self.send_response(302)
            self.send_header("Location", provider.url)
            self.end_headers()

        def log_message(self, *_):
            pass

    with Provider() as provider, ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        options = OIDC | {"sasl.oauthbearer.token.endpoint.url": f"http://127.0.0.1:{server.server_port}/"}
        with pytest.raises(OSError, match="302"):
            with_kept_tokens({"sasl.mechanism": "OAUTHBEARER", **options})["oauth_cb"]("")
        server.shutdown()
        assert provider.asked == []
