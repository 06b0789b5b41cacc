"""Lines of every known form, odd ones, and mutations of both: the same for a seed on every Python."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tests.pipeline.log import lines
from tests.pipeline.log.second_parser import read_line

# From the documentation of Apache's mod_log_config and NGINX's ngx_http_log_module, and from logs of others.
DOCUMENTED = [
    b'127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326',
    b'127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326 '
    b'"http://www.example.com/start.html" "Mozilla/4.08 [en] (Win98; I ;Nav)"',
    b'www.example.com:80 127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 2326 "-" "Mozilla/4.08"',
    b'in24.inetnebr.com - - [01/Aug/1995:00:00:01 -0400] "GET /shuttle/missions/sts-68/mcc-05.txt HTTP/1.0" 200 1839',
    b'192.168.1.20 - - [28/Jul/2006:10:27:10 -0300] "GET /cgi-bin/try/ HTTP/1.0" 200 3395',
    b'2001:db8::7 - - [17/May/2015:08:05:32 +0000] "GET /downloads/product_1 HTTP/1.1" 304 0 "-" "Debian APT-HTTP"',
    b'192.0.2.7 - - [10/Oct/2025:13:55:36 +0000] "\\x16\\x03\\x01\\x02" 400 150 "-" "-"',
    b'192.0.2.7 - - [10/Oct/2025:13:55:36 +0000] "-" 408 -',
    b'192.0.2.7 - - [2025-10-10T13:55:36+00:00] "GET / HTTP/2.0" 200 612 "-" "curl/8.14.1" "203.0.113.5"',
    b'::1 - - [10/Oct/2025:13:55:36.123 +0000] "OPTIONS * HTTP/1.0" 200 126',
    b"1760104536123,2001:db8::1",
]
UNDERSTOOD = [line.removesuffix(b"\n") for line in [*DOCUMENTED, *lines.SAME_ACCESS, *lines.NAMED] if len(line) < 1_000]
ODD = [line for line, _ in lines.BAD if len(line) < 1_000]
SEEDS = UNDERSTOOD + ODD

PIECES = [
    *(
        b" ",
        b"  ",
        b"\t",
        b"-",
        b" - ",
        b'"',
        b'" ',
        b'" 200 ',
        b'] "',
        b" [",
        b"[",
        b"]",
        b",",
        b", ",
        b":",
        b"::",
        b".",
    ),
    *(b"\0", b"\r", b"\xff", b"\xef\xbb\xbf", b"\x85", b"\x1b[31m", b"{", b"%", b"\\", b"0", b"9", b"+", b"Z", b"T"),
    *(
        b"192.0.2.1",
        b"10.0.0.1 ",
        b" 1.2.3.4",
        b"2001:db8::1",
        b"::ffff:1.2.3.4",
        b"::1.2.3.4",
        b"fe80::1%eth0",
        b"1::",
    ),
    *(b"shop.example.com", b"shop:80 ", b"INFO ", b"web-1 | ", b" - - ", b"localhost", b"0x7f", b"01", b"255", b"256"),
    *(b"[10/Oct/2025:13:55:36 +0000]", b".5", b"23:59:60", b"29/Feb/2023", b"29/Feb/2000", b"+0530", b"-12:00", b"Dec"),
    *(b"99999999989999,", b"99999999990000,", b"-0,", b"-", b"000000000000005,", b"2025-10-10T", b"2025-02-29 "),
]


def mutated(draw: Random) -> bytes:
    """Return a seed with up to four changes: a piece put in or over, bytes left out, a part of another, any byte."""
    line = draw.choice(UNDERSTOOD if draw.random() < 0.8 else ODD)
    for _ in range(draw.choice((0, 1, 1, 1, 2, 2, 3, 4))):
        start = draw.randrange(len(line) + 1)
        end = min(len(line), start + draw.choice((0, 0, 1, 1, 2, 5, 12)))
        kind = draw.random()
        if kind < 0.55:
            line = line[:start] + draw.choice(PIECES) + line[end:]
        elif kind < 0.75:
            line = line[:start] + line[end:]
        elif kind < 0.9:
            other = draw.choice(SEEDS)
            cut = draw.randrange(len(other) + 1)
            line = line[:start] + other[cut : cut + draw.randrange(60)] + line[end:]
        else:
            line = line[:start] + bytes([draw.randrange(256)]) + line[end:]
    return line.rstrip(b"\n")


MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
CLIENTS = [f"192.0.2.{n}" for n in range(200)] + [f"2001:DB8::{n:X}" for n in range(40)] + ["::ffff:198.51.100.7"]
CLIENTS += ["Client.example.com", "in24.inetnebr.com", "localhost", "dial_up7.example.com."]
REFUSED = ["203.0.113.5, 198.51.100.7", "web-1 | 192.0.2.7", "INFO 192.0.2.7", "gw nginx: 192.0.2.7", "192.0.2.7:4242"]
REFUSED += [
    "Dec 16 00:00:00 gw nginx[7]: 192.0.2.7",
    "[2001:db8::1]",
    "999.1.2.3",
    "-",
    '"192.0.2.7"',
    "10.0.0.1 192.0.2.7",
]
USERS = ("- -", "- -", "- -", "- jane", "- John Doe", "shop.example.com -", "ident jane", "- 10.0.0.1", "- x [y] z")
REQUESTS = (
    'GET / HTTP/1.1" 200 612',
    'GET /?q="x" HTTP/1.1" 404 5',
    '-" 408 -',
    '" - -',
    '\\x16\\x03" 400 150',
    'X" 20 1',
)
ENDS = ("", ' "-" "curl/8.14.1"', ' "http://example.com/" "Mozilla/5.0 (X11)" "203.0.113.5"', "\r", " 0.003", "x")


def million(draw: Random, count: int) -> Iterator[bytes]:
    """Yield so many lines of every form, mostly good, of two hours of one day; and bad ones."""
    for number in range(count):
        second, part = draw.randrange(7_200), draw.randrange(1_000)
        if draw.random() < 0.05:
            odd = mutated(draw) if draw.random() < 0.5 else draw.choice(ODD)
            # Of another day's accesses, each would be a window; what is good here is left to the other test.
            yield odd.replace(b"\n", b"") if read_line(odd) is None else b"junk"
            continue
        hour, minute, second = second // 3600, second // 60 % 60, second % 60
        client = draw.choice(REFUSED) if draw.random() < 0.1 else draw.choice(CLIENTS)
        form = draw.random()
        if form < 0.15:
            yield f"{1_767_225_600_000 + (hour * 60 + minute) * 60_000 + second * 1000 + part},{client}".encode()
            continue
        clock = f"{hour:02}:{minute:02}:{second:02}"
        stamp = draw.choice(
            (
                f"01/Jan/2026:{clock} +0000",
                f"01/Jan/2026:{clock} +0000",
                f"01/Jan/2026:{clock}.{part:03} +0000",
                f"2026-01-01T{clock}+00:00",
                f"2026-01-01T{clock}.{part:03}Z",
                f"01/Jan/2026:{hour + 2:02}:{minute:02}:{second:02} +0200",
                f"01/Jan/2026:{clock}",
                f"{MONTHS[number % 12]} 1 {clock} 2026" if number % 9 == 0 else f"01/Jan/2026:{clock} -0000",
            )
        )
        host = "shop.example.com:443 " if form > 0.85 else "\0" * 9 if form > 0.84 else ""
        yield f'{host}{client} {draw.choice(USERS)} [{stamp}] "{draw.choice(REQUESTS)}{draw.choice(ENDS)}'.encode()
