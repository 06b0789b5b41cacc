from collections import Counter
from hashlib import sha256
from ipaddress import ip_address, ip_network
from itertools import islice, pairwise

import pytest

from labs.pipeline.log.access_log import parse_line
from labs.pipeline.log.generate import START_MS, STYLES, Traffic, addresses, classroom, format_line

DOCUMENTATION = [ip_network(n) for n in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32")]


def behind(accesses) -> list[int]:
    """Return how far each access is behind the latest before it, in ms."""
    latest, delays = 0, []
    for time_ms, _ in accesses:
        delays.append(max(0, latest - time_ms))
        latest = max(latest, time_ms)
    return delays


def digest(accesses) -> str:
    return sha256("\n".join(format_line(access, "csv") for access in accesses).encode()).hexdigest()[:16]


def test_traffic_is_the_same_for_a_seed_on_every_python():
    traffic = Traffic(20_000, stragglers=0.01)
    assert digest(traffic) == digest(traffic) == "eecd7150f15fd146"
    assert digest(classroom()) == "bc8a07f05884d4ed"


def test_another_seed_is_other_traffic():
    assert list(Traffic(100, seed=8)) != list(Traffic(100, seed=7))
    assert list(classroom(seed=8)) != list(classroom(seed=7))


@pytest.mark.parametrize("requests", [0, 1, 5_000, 12_345])
def test_makes_exactly_as_many_requests_as_asked(requests):
    assert sum(1 for _ in Traffic(requests)) == requests


@pytest.mark.parametrize("disorder_ms", [0, 1, 300, 5_000])
@pytest.mark.parametrize("bursts", [False, True])
def test_disorder_is_bounded(disorder_ms, bursts):
    delays = behind(Traffic(50_000, disorder_ms=disorder_ms, bursts=bursts))
    assert max(delays) <= disorder_ms
    assert max(delays) >= 0.9 * disorder_ms


def test_stragglers_come_10_to_60_s_later_than_the_disorder():
    delays = behind(Traffic(50_000, disorder_ms=5_000, stragglers=0.02))
    late = [delay for delay in delays if delay > 5_000]
    assert 0.018 < len(late) / len(delays) < 0.022
    assert min(late) >= 15_000
    assert max(late) <= 65_001


def test_without_stragglers_no_time_is_before_the_start():
    assert min(Traffic(10_000))[0] == START_MS


@pytest.mark.parametrize("bursts", [False, True])
@pytest.mark.parametrize("rate", [50, 1_000])
def test_the_rate_is_kept_on_average(rate, bursts):
    seconds = (max(Traffic(200 * rate, rate=rate, bursts=bursts))[0] - START_MS) / 1000
    assert seconds == pytest.approx(200, rel=0.3 if bursts else 0.03)


def test_bursts_make_some_windows_busy():
    def busiest(bursts: bool) -> float:
        windows = Counter(time_ms // 5_000 for time_ms, _ in Traffic(200_000, bursts=bursts))
        return max(windows.values()) / (200_000 / len(windows))

    assert busiest(bursts=False) < 1.2
    assert busiest(bursts=True) > 1.5


def test_clients_follow_zipfs_law():
    counts = [count for _, count in Counter(client for _, client in Traffic(200_000)).most_common()]
    assert counts[0] / counts[1] == pytest.approx(2, rel=0.1)
    assert counts[0] / counts[9] == pytest.approx(10, rel=0.1)


@pytest.mark.parametrize("clients", [1, 8, 762, 871, 1_000])
def test_addresses_are_different_canonical_and_from_documentation_ranges(clients):
    names = addresses(clients)
    assert len(set(names)) == clients
    for name in names:
        address = ip_address(name)
        assert str(address) == name
        assert any(address in network for network in DOCUMENTATION)
        assert not name.endswith((".0", ".255"))


def test_addresses_beyond_the_last_16_bits_are_canonical_too():
    assert addresses(65_537)[-2:] == ["2001:db8::1:0", "2001:db8::1:1"]
    assert str(ip_address("2001:db8::1:0")) == "2001:db8::1:0"


def test_more_clients_than_ipv4_has_documentation_addresses_are_ipv6():
    assert Counter(ip_address(name).version for name in addresses(2_000)) == {4: 762, 6: 1_238}
    assert Counter(ip_address(name).version for name in addresses(16)) == {4: 14, 6: 2}


@pytest.mark.parametrize(
    "wrong",
    [
        {"requests": -1},
        {"clients": 0},
        {"rate": 0},
        {"rate": float("nan")},
        {"disorder_ms": 5_001},
        {"disorder_ms": -1},
        {"stragglers": 1.5},
        {"start_ms": 0},
    ],
)
def test_a_wrong_setting_is_refused_by_name(wrong):
    with pytest.raises(ValueError, match=f"^{next(iter(wrong))} is .*; expected "):
        Traffic(**{"requests": 10} | wrong)


def test_in_the_classroom_each_client_appears_ten_times_in_each_window():
    accesses = list(classroom(windows=6, clients=8, per_window=10))
    counts = Counter(((time_ms - START_MS) // 5_000, client) for time_ms, client in accesses)
    assert counts == {(window, client): 10 for window in range(6) for client in addresses(8)}


def test_the_classroom_is_in_event_time_order_and_mixes_the_clients():
    accesses = list(classroom())
    assert all(before[0] < after[0] for before, after in pairwise(accesses))
    first, second = [client for _, client in accesses[:80]], [client for _, client in accesses[80:160]]
    assert first != second


def test_a_classroom_with_more_requests_than_milliseconds_stays_inside_its_windows():
    windows = Counter(time_ms // 5_000 for time_ms, _ in classroom(windows=2, clients=3, per_window=2_000))
    assert windows == {START_MS // 5_000: 6_000, START_MS // 5_000 + 1: 6_000}


def test_a_classroom_that_starts_amid_a_window_is_refused():
    with pytest.raises(ValueError, match="expected a multiple of 5000"):
        list(classroom(start_ms=START_MS + 1))


@pytest.mark.parametrize("style", STYLES)
def test_a_formatted_line_is_read_back(style):
    for time_ms, client in islice(Traffic(5_000, clients=2_000, rate=0.01), 1_000):
        expected = time_ms if style == "csv" else time_ms // 1000 * 1000
        assert parse_line(format_line((time_ms, client), style).encode()) == (expected, client)


def test_the_styles_look_as_servers_write_them():
    access = (START_MS + 1_500, "192.0.2.1")
    assert format_line(access, "csv") == "1767225601500,192.0.2.1"
    assert format_line(access, "common").startswith('192.0.2.1 - - [01/Jan/2026:00:00:01 +0000] "GET /')
    assert format_line(access) == format_line(access, "combined")
    assert format_line(access).startswith(format_line(access, "common") + ' "-" "')


def test_an_unknown_style_is_refused():
    with pytest.raises(ValueError, match="expected one of combined, common, csv"):
        format_line((0, "192.0.2.1"), "json")
