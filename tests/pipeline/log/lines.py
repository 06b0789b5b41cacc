"""Log lines with known verdicts, and those of whatever Python runs this: `python -m tests.pipeline.log.lines`."""

import json
from datetime import UTC, timedelta, timezone
from zoneinfo import ZoneInfo

from labs.pipeline.log.access_log import parse_line
from labs.pipeline.log.log_files import MAX_LINE
from labs.pipeline.log.log_report import BadLine

COMMON = b'192.0.2.1 - - [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.1" 200 2326'
COMBINED = COMMON + b' "http://example.com/" "Mozilla/5.0 (X11)"'
MILLIS = 971_211_336_000  # 2000-10-10T20:55:36Z


def with_client(client: bytes) -> bytes:
    return COMMON.replace(b"192.0.2.1", client)


def with_time(stamp: bytes) -> bytes:
    return COMMON.replace(b"10/Oct/2000:13:55:36 -0700", stamp)


SAME_ACCESS = [
    COMMON,
    COMBINED,
    COMBINED + b"\r\n",
    COMBINED + b"\r\r\n",
    b"971211336000,192.0.2.1\r\r\n",
    COMBINED.replace(b"Mozilla", rb"192.0.2.2 - - [10/Oct/2000:13:55:37 -0700] \x22GET / HTTP/1.1\x22 200 12"),
    COMBINED.replace(b"Mozilla", b'] \\" [x] \\"'),
    COMBINED + b' "198.51.100.7" 0.003',
    b"\xef\xbb\xbf" + COMMON,
    b"971211336000,192.0.2.1",
    b"971211336000,192.0.2.1\r\n",
    COMMON.replace(b"2326", b"-"),
    COMMON.replace(b" 200 ", b" - "),
    COMMON.replace(b"200 2326", b"- -"),
    COMMON.replace(b"/a", b'/?q="x" - 5y'),
    b"\0" * 70_000 + COMMON,
    b"\0\0\xef\xbb\xbf" + COMBINED,
    b"\0" + b"971211336000,192.0.2.1",
    COMMON.replace(b" - - ", b" - John Doe "),
    COMMON.replace(b" - - ", b" shop.example.com - - "),
    COMMON.replace(b" - - ", b" shop.example.com - "),
    COMMON.replace(b" - - ", b" - 198.51.100.7 "),
    COMMON.replace(b" - - ", b" - x 198.51.100.7 - - "),
    b"shop.example.com:443 " + COMBINED,
    b"shop:80 " + COMMON.replace(b" - - ", b" - John Doe "),
    b"198.51.100.1:80 " + COMMON,
    b"[2001:db8::1]:443 " + COMMON,
    COMMON.replace(b" - - ", b" - jane "),
    COMMON.replace(b" - - ", b" ident Jane van Dyke "),
    COMMON.replace(b"GET /a HTTP/1.1", b"-"),
    COMMON.replace(b"GET /a HTTP/1.1", b""),
    COMMON.replace(b"/a", rb"/?q=\"x\" 404 1"),
    COMMON.replace(b"/a", b'/?q="x" HTTP'),
    COMMON.replace(b"/a", b"/\xff\xfe"),
    COMBINED.replace(b"Mozilla", b"\xc3\x28 Mo,zilla"),
]
TIMES = [
    (b"10/Oct/2000:20:55:36 +0000", UTC, MILLIS),
    (b"11/Oct/2000:02:25:36 +0530", UTC, MILLIS),
    (b"10/Oct/2000:20:55:36", UTC, MILLIS),
    (b"10/Oct/2000:22:55:36", ZoneInfo("Europe/Berlin"), MILLIS),
    (b"10/Oct/2000:13:55:36 -0700", ZoneInfo("Europe/Berlin"), MILLIS),
    (b"10/Oct/2000:15:55:36", timezone(timedelta(hours=-5)), MILLIS),
    (b"01/Jan/1970:00:00:00 +0000", UTC, 0),
    (b"29/Feb/2024:00:00:00 +0000", UTC, 1_709_164_800_000),
    (b"10/Oct/2000:13:55:36.000 -0700", UTC, MILLIS),
    (b"10/Oct/2000:13:55:36.12 -0700", UTC, MILLIS + 120),
    (b"10/Oct/2000:13:55:36.123456789 -0700", UTC, MILLIS + 123),
    (b"10/Oct/2000:22:55:36.999", ZoneInfo("Europe/Berlin"), MILLIS + 999),
    (b"10/Oct/2000:13:55:36 -07:00", UTC, MILLIS),
    (b"2000-10-10T13:55:36-07:00", UTC, MILLIS),
    (b"2000-10-10T13:55:36-0700", UTC, MILLIS),
    (b"2000-10-10T20:55:36Z", ZoneInfo("Europe/Berlin"), MILLIS),
    (b"2000-10-10T20:55:36.5Z", UTC, MILLIS + 500),
    (b"2000-10-10 13:55:36 -0700", UTC, MILLIS),
    (b"2000-10-10T22:55:36", ZoneInfo("Europe/Berlin"), MILLIS),
    (b"16/Nov/5138:09:46:29 +0000", UTC, 99_999_999_989_000),
]
NO_TIMES = [
    b"30/Feb/2000:13:55:36 -0700",
    b"10/Okt/2000:13:55:36 -0700",
    b"10/oct/2000:13:55:36 -0700",
    b"10/Oct/2000:24:00:00 -0700",
    b"10/Oct/2000:13:55:60 -0700",
    b"10/Oct/2000:13:55:36 +2400",
    b"10/Oct/2000:13:55:36 +0060",
    b"10/Oct/2000:13:55:36 UTC",
    b"10/Oct/0000:13:55:36 -0700",
    b"31/Dec/1969:23:59:59 +0000",
    b"01/Jan/1970:00:00:00 +0100",
    b"31/Dec/9999:23:59:59 +0000",
    b"31/Dec/9999:23:59:59 -0700",
    b"16/Nov/5138:09:46:30 +0000",  # no room for the closing record
    b"10/Oct/2000:13:55:36. -0700",
    b"10/Oct/2000:13:55:36,123 -0700",
    b"10/Oct/2000:13:55:36.1234567890 -0700",
    b"2000-10-10",
    b"2000-10-10T13:55-07:00",
    b"2000-13-10T13:55:36Z",
    b"2000-02-30T13:55:36Z",
    b"2000-10-10T13:55:36+25:00",
    b"20001010T135536Z",
    b"1760104536.123",
    b"Fri Oct 10 13:55:36 2025",
    b"10/Oct/2000",
    b"-",
    b"1\xb2/Oct/2000:13:55:36 -0700",
]
# Clocks in Berlin were put forward from 2:00 to 3:00, and never showed these.
SKIPPED_TIMES = [b"26/Mar/2000:02:00:00", b"26/Mar/2000:02:59:59.999", b"2000-03-26T02:30:00"]
CLIENTS = [
    (b"203.0.113.255", "203.0.113.255"),
    (b"2001:DB8:0:0::0001", "2001:db8::1"),
    (b"::ffff:192.0.2.1", "192.0.2.1"),
    (b"fe80::1%eth0", "fe80::1%eth0"),
    (b"Host-7.Example.COM", "host-7.example.com"),
    (b"example.com.", "example.com"),
    (b"dial_up7.example.com", "dial_up7.example.com"),
    (b"localhost", "localhost"),
    (b"1e100.net", "1e100.net"),
    (b"xn--bcher-kva.example", "xn--bcher-kva.example"),
]
NO_CLIENTS = [
    b"999.1.2.3",
    b"1.2.3",
    b"1.2.3.4.5",
    b"01.2.3.4",
    b"1234",
    b"0x7f.0x1",
    b"1.2.3.4:80",
    b"2001:db8::1::2",
    b"12345::",
    b"[2001:db8::1]",
    b"fe80::1%a,b",
    b"192.0.2.1,x",
    b"-",
    b"-a.example",
    b"a-.example",
    b"a..example",
    b".example",
    b"a" * 64 + b".example",
    b"a." * 127 + b"example",
    b"unix:",
    b"192.0.2.\xb2",
    "１９２.0.2.1".encode(),
    b"caf\xe9.example",
    b"192.0.2.1\x00",
]
# The client is the name, as HostnameLookups writes it.
NAMED = [
    COMMON.replace(b"192.0.2.1 - - ", b"Client.example.com - - "),
    COMMON.replace(b"192.0.2.1 - - ", b"client.example.com - jane "),
    COMMON.replace(b"192.0.2.1 - - ", b"client.example.com - John Doe "),
    COMMON.replace(b"192.0.2.1 - - ", b"client.example.com - joe@shop.example.com "),
    COMMON.replace(b"192.0.2.1 - - ", b"client.example.com ident jane "),
    COMMON.replace(b"192.0.2.1 - - ", b"shop.example.com:443 client.example.com - - "),
]
PREFIXES = [
    b"shop.example.com",
    b"web01",
    b"INFO",
    b"-",
    b'"-"',
    b"[INFO]",
    b"nginx:",
    b"10.0.0.1",
    b"10.0.0.1 nginx:",
    b"10.0.0.1 web-1 -",
    b"Dec 16 00:00:00 gw.example nginx:",
    b"Dec  6 00:00:00 gw.example nginx[123]:",
    b"<134>Dec 16 00:00:00 gw.example nginx:",
    b"<134>1 2025-10-10T13:55:36Z gw.example nginx 123 - -",
    b'<134>1 2025-10-10T13:55:36Z gw.example nginx 123 - [origin@32473 ip="10.0.0.1"]',
    b"2025-10-10T13:55:36.123456789Z stdout F",
    b"2025-10-10T13:55:36+00:00 gw nginx[7]:",
    b"2025-10-10 13:55:36",
    b"web-1 |",
    b"web-1  |",
    b"web-1\t|",
    b"[pod/web-1/nginx]",
    b"web-7d4b nginx",
    b"default web-7d4b nginx \xe2\x80\xba",
    b"==> access.log <==",
    b"access.log:",
    b"1:",
    b"  1",
    b"client.example.com",
    b"client.example.com -",
]
PREFIXED = [prefix + b" " + COMMON for prefix in PREFIXES] + [
    b"web01 192.0.2.1 - " + COMMON.split(b" - - ")[1],
    b"shop.example.com - 192.0.2.1 " + COMMON.split(b" - - ")[1],
    *[prefix + b" " + NAMED[0] for prefix in (b"INFO", b"web-1 |", b"nginx:", b"Dec 16 00:00:00 gw nginx:", b"app -")],
    b"192.0.2.7:51234 jane " + COMMON.split(b" - - ")[1].replace(b"[", b"- - ["),
]
SECOND = COMMON.replace(b"192.0.2.1", b"192.0.2.2")
BAD = [
    *[
        (first + second, "two accesses")
        for first in (COMMON, COMBINED, COMMON + b" ", COMMON[:-12], COMBINED[:-10], COMBINED[:-30])
        for second in (SECOND, SECOND.replace(b"192.0.2.2", b"2001:db8::2"), SECOND.replace(b' "GET', b' \\"GET'))
    ],
    *[(COMMON[:cut] + SECOND, "two accesses") for cut in range(COMMON.index(b"[") + 1, COMMON.index(b"]"))],
    *[
        (b"\r".join([line] * 3), "carriage return")
        for line in (COMMON, COMBINED, b"971211336000,192.0.2.1", COMMON[:-1] + b"\r0", b"x")
    ],
    (COMMON.replace(b" - - ", b" - a\rb "), "carriage return"),
    *[(line, "text before the client") for line in PREFIXED],
    (b"203.0.113.5, 198.51.100.7 - - " + COMMON.split(b" - - ")[1], "list of clients"),
    (b"203.0.113.5,198.51.100.7 - - " + COMMON.split(b" - - ")[1], "list of clients"),
    (b"unknown, 198.51.100.7 - - " + COMMON.split(b" - - ")[1], "list of clients"),
    (b"5,192.0.2.1,192.0.2.2", "list of clients"),
    (b"5,192.0.2.1, 2001:db8::1", "list of clients"),
    (b'{"remote_addr":"192.0.2.1","time":"2025-10-10T13:55:36+00:00"}', "JSON"),
    (b'{"log":"' + COMMON.replace(b'"', b'\\"') + b'\\n","stream":"stdout"}', "JSON"),
    (b'[{"remote_addr": "192.0.2.1"},', "JSON"),
    (b"\0\0", "empty line"),
    (COMMON.replace(b" - - ", b" - a\0b "), "not text"),
    (b"192.0.2.7:51234 - - " + COMMON.split(b" - - ")[1], "bad address"),
    (b"192.0.2.7:51234 - John Doe " + COMMON.split(b" - - ")[1], "bad address"),
    (COMMON.replace(b" 200 ", b" 20 "), "unknown format"),
    (COMMON.replace(b" - - ", b" - John Doe ")[:-12], "unknown format"),
    (b"", "empty line"),
    (b"  \t\r\n", "empty line"),
    (b"hello world", "unknown format"),
    (b"epoch_millis,ip", "unknown format"),
    (b"1700000000.5,192.0.2.1", "unknown format"),
    (COMMON[:-12], "unknown format"),
    (COMMON + b"\n" + COMMON, "unknown format"),
    (b"\x7fELF\x02\x01", "not text"),
    (b"caf\xe9", "not text"),
    (b"5,", "bad address"),
    (b"x" * (MAX_LINE + 1), "line too long"),
    (COMMON + b" " * MAX_LINE, "line too long"),
]
HOSTILE = [
    b"1.1.1.1 " * 8_000,
    b"1.1.1.1 a a " * 5_000,
    b" 1." + b"1." * 30_000,
    b" " + b"::" * 30_000,
    b"a - " + b"1.1.1." * 10_000 + b' [x] "" 200 1',
    b"a - " + b":" * 60_000 + b' [x] "" 200 1',
    b"a" + b",1.1.1.1" * 8_000 + b' - - [10/Oct/2000:13:55:36 -0700] "" 200 1',
    b'1 - - [x] "' + b'" - ' * 15_000,
    b"1.1.1.1 a a [" * 4_000,
    b"a b" + b" [x" * 20_000,
    b"a b" + b" [x]" * 15_000,
    b'a b c [x] "' + b'" 200 ' * 10_000,
    b'a b c [x] "' + b'"' * 60_000,
    b"a " * 30_000,
    b"9" * 60_000 + b",",
    b"5," + b"a." * 30_000,
    b"5," + b"-" * 60_000,
]


def verdicts() -> list[list]:
    """Return what happens to each line: [time, client], or the reason for which it is refused."""
    clients = [client for client, _ in CLIENTS] + NO_CLIENTS
    stamps = [stamp for stamp, _, _ in TIMES] + NO_TIMES
    lines = SAME_ACCESS + NAMED + HOSTILE + [line for line, _ in BAD] + [with_time(stamp) for stamp in stamps]
    return [_verdict(line) for line in lines + [with_client(client) for client in clients]]


def _verdict(line: bytes) -> list:
    try:
        return list(parse_line(line))
    except BadLine as bad:
        return [bad.reason]


if __name__ == "__main__":
    print(json.dumps(verdicts()))
