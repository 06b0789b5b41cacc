"""Make seeded traffic, with documentation addresses only: a seed gives the same accesses in every version of Python.

It uses only `Random.random()`: for no other method does Python promise the same numbers in every version.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from itertools import accumulate
from random import Random

from labs.pipeline.log.access_log import Access
from labs.pipeline.records import LATENESS_MS, LATEST_ACCESS_MS, WINDOW_MS, source_value

START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
STRAGGLER_MS = (10_000, 60_000)  # by how much a straggler is later than `disorder_ms`
BURST = 5  # times the average rate

# RFC 5737 and RFC 3849: addresses that belong to nobody.
IPV4_NETWORKS = ("192.0.2", "198.51.100", "203.0.113")
IPV4_CLIENTS = 254 * len(IPV4_NETWORKS)
IPV6_SHARE = 8  # one client in 8

PAGES = (
    "/",
    "/index.html",
    "/about",
    "/products/42",
    "/static/site.css",
    "/static/logo.png",
    "/api/cart",
    "/old",
)
STATUSES = (200, 200, 200, 200, 304, 304, 201, 404)
BROWSERS = (
    "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/138.0 Safari/537.36",
    "curl/8.14.1",
)
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
STYLES = ("combined", "common", "csv")


@dataclass(frozen=True)
class Traffic:
    """Requests in the order of their arrival; each iteration yields the same ones.

    Clients follow Zipf's law (the k-th makes 1/k as many requests as the first). Each request is at most
    `disorder_ms` behind the latest time before it; a share of `stragglers` is 10–60 s later than that.
    """

    requests: int
    seed: int = 7
    clients: int = 1_000
    rate: float = 1_000.0  # requests per second of event time, on average
    disorder_ms: int = 2_000
    bursts: bool = True  # the rate alternates between 5 times the average and 5/9 of it
    stragglers: float = 0.0  # share of the requests, 0..1
    start_ms: int = START_MS

    def __post_init__(self) -> None:
        for name, valid, expected in (
            ("requests", self.requests >= 0, "0 or more"),
            ("clients", self.clients >= 1, "1 or more"),
            ("rate", 0 < self.rate < float("inf"), "more than 0 requests per second"),
            ("disorder_ms", 0 <= self.disorder_ms <= LATENESS_MS, f"0 to {LATENESS_MS}"),
            ("stragglers", 0 <= self.stragglers <= 1, "a share from 0 to 1"),
            ("start_ms", 100_000 <= self.start_ms <= LATEST_ACCESS_MS, f"100,000 to {LATEST_ACCESS_MS} epoch millis"),
        ):
            if not valid:
                raise ValueError(f"{name} is {getattr(self, name)}; expected {expected}")

    def __iter__(self) -> Iterator[Access]:
        random = Random(self.seed).random
        names = addresses(self.clients)
        weights = list(accumulate(1 / rank for rank in range(1, self.clients + 1)))
        total = weights[-1]
        disorder, stragglers = self.disorder_ms + 1, self.stragglers
        nearest, furthest = STRAGGLER_MS
        clock = float(self.start_ms)
        start = latest = self.start_ms
        left, busy = self.requests, True
        while left:
            busy = not busy
            length = min(left, 1 + int(10 * self.rate * random()))
            left -= length
            # A gap is half of this on average. There are as many busy gaps as calm ones, which keeps the average rate.
            gap = 2_000 / self.rate * ((1 / BURST if busy else 2 - 1 / BURST) if self.bursts else 1)
            if clock + length * gap > LATEST_ACCESS_MS:
                raise ValueError(f"{self.requests} requests at a rate of {self.rate} do not end before the year 5138")
            for _ in range(length):
                clock += gap * random()
                if stragglers and random() < stragglers:
                    time_ms = latest - disorder - nearest - int((furthest - nearest) * random())
                else:
                    # The product of two random numbers makes most delays short and few long.
                    time_ms = int(clock) - int(disorder * random() * random())
                    if time_ms > latest:
                        latest = time_ms
                    elif time_ms < start:
                        time_ms = start
                yield time_ms, names[bisect(weights, random() * total)]


def classroom(
    windows: int = 6, clients: int = 8, per_window: int = 10, seed: int = 7, start_ms: int = START_MS
) -> Iterator[Access]:
    """Yield accesses in event-time order: each client exactly `per_window` times in each 5 s window."""
    if start_ms % WINDOW_MS:
        raise ValueError(f"start_ms is {start_ms}; expected a multiple of {WINDOW_MS}, where a window starts")
    random = Random(seed).random
    requests = addresses(clients) * per_window
    for window in range(windows):
        shuffled = sorted(requests, key=lambda _: random())
        for position, client in enumerate(shuffled):
            yield start_ms + WINDOW_MS * window + WINDOW_MS * position // len(shuffled), client


def addresses(clients: int) -> list[str]:
    """Return that many different documentation addresses: one in 8 is IPv6, as are all after 762 of IPv4."""
    names = []
    ipv4 = 0
    for number in range(1, clients + 1):
        if number % IPV6_SHARE and ipv4 < IPV4_CLIENTS:
            host, network = divmod(ipv4, len(IPV4_NETWORKS))
            names.append(f"{IPV4_NETWORKS[network]}.{host + 1}")
            ipv4 += 1
        else:
            high, low = divmod(number, 1 << 16)
            names.append(f"2001:db8::{high:x}:{low:x}" if high else f"2001:db8::{low:x}")
    return names


def format_line(access: Access, style: str = "combined") -> str:
    """Return the log line of an access, without a line end, in one of STYLES.

    Only "csv" (`epoch_millis,ip`) keeps the milliseconds; the others have whole seconds.
    """
    time_ms, ip = access
    if style == "csv":
        return source_value(time_ms, ip).decode()
    page = (time_ms + ord(ip[-1])) % len(PAGES)
    line = (
        f'{ip} - - [{_log_time(time_ms // 1000)}] "GET {PAGES[page]} HTTP/1.1" {STATUSES[page]} {512 + time_ms % 4096}'
    )
    if style == "common":
        return line
    if style == "combined":
        return f'{line} "-" "{BROWSERS[ord(ip[-1]) % len(BROWSERS)]}"'
    raise ValueError(f"style is {style!r}; expected one of {', '.join(STYLES)}")


@lru_cache(maxsize=4096)
def _log_time(seconds: int) -> str:
    # Not strftime: its month names depend on the locale.
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment.day:02}/{MONTHS[moment.month - 1]}/{moment.year:04}:{moment:%H:%M:%S} +0000"
