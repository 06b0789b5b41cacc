"""A second reader of log lines, written from the formats' documentation: character by character, without `re`.

It shares no code with the lab, and neither `datetime` nor `ipaddress`: what both read alike was not misread by one.
Times without an offset are UTC. `read_line` returns (epoch milliseconds, client), or None for a line that is bad.
"""

from __future__ import annotations

MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
LAST_MS = 99_999_999_989_999  # 14 digits, less the 10 s of the closing record
LONGEST = 65_536
DIGITS = "0123456789"
HEX = "0123456789abcdefABCDEF"
LETTERS = "abcdefghijklmnopqrstuvwxyz"
BLANKS = "\t\n\v\f\r "


class Bad(Exception):
    """The line is none that is understood."""


class Cursor:
    """A text and a place in it."""

    def __init__(self, text: str):
        self.text, self.at = text, 0

    @property
    def left(self) -> str:
        return self.text[self.at :]

    def skip(self, expected: str) -> bool:
        """Go behind `expected` if it is next; tell whether it was."""
        found = self.text.startswith(expected, self.at)
        self.at += len(expected) * found
        return found

    def need(self, expected: str) -> None:
        if not self.skip(expected):
            raise Bad(f"{expected!r} expected at {self.at}")

    def digits(self, least: int, most: int) -> str:
        start = self.at
        while self.at < len(self.text) and self.text[self.at] in DIGITS and self.at - start < most:
            self.at += 1
        if self.at - start < least:
            raise Bad(f"digits expected at {start}")
        return self.text[start : self.at]


def read_line(line: bytes) -> tuple[int, str] | None:
    """Return (epoch milliseconds, client), or None. The line comes without its newline."""
    text = line.decode("latin-1").lstrip("\0")
    if len(text) > LONGEST or "\n" in text:
        return None
    if text.startswith("\xef\xbb\xbf"):
        text = text[3:]
    text = text.rstrip("\r")
    if "\r" in text:
        return None
    try:
        return _csv(text) if _begins_as_csv(text) else _log(text)
    except Bad:
        return None


def _begins_as_csv(text: str) -> bool:
    before, comma, _ = text.partition(",")
    return bool(comma) and bool(before) and all(c in DIGITS for c in before.removeprefix("-")) and before != "-"


def _csv(text: str) -> tuple[int, str]:
    millis, _, client = text.partition(",")
    if len(millis) > 15 or not 0 <= int(millis) <= LAST_MS:
        raise Bad("csv")
    return int(millis), _client(client)


def _log(text: str) -> tuple[int, str]:
    # A user may hold brackets: the time is in the first ones that a request, a status and a size follow.
    quote = text.find('] "')
    while quote >= 0:
        start = text.rfind("[", 0, quote)
        if start > 0 and text[start - 1] == " " and "]" not in text[start:quote] and _ends_well(text[quote + 3 :]):
            if text.count(" ", 0, start - 1) < 2:
                raise Bad("client, identity and user expected")
            before = text[: start - 1]
            if '"' in before and not _quotes_in_words_only(before):
                raise Bad("a quote")
            if _holds_another(text[text.find('] "') + 3 :]):
                raise Bad("two accesses")
            return _time(text[start + 1 : quote]), _client_of(before)
        quote = text.find('] "', quote + 1)
    raise Bad("no time")


def _holds_another(behind: str) -> bool:
    """Tell whether client, identity, user, time and the beginning of a request stand here, behind whatever else."""
    for mark in ('] "', '] \\"'):
        place = behind.find(mark)
        while place >= 0:
            start = behind.rfind("[", 0, place)
            words, stamp = behind[: max(start, 0)].split(" "), behind[start + 1 : place]
            if start > 0 and 0 < len(stamp) <= 40 and "]" not in stamp and len(words) > 3 and not words[-1]:
                client, *others = words[-4:-1]
                if all(word and not set(word) & set(BLANKS) for word in others) and _ends_in_address(client):
                    return True
            place = behind.find(mark, place + 1)
    return False


def _ends_in_address(word: str) -> bool:
    numbers = word[len(word.rstrip(DIGITS + ".")) :]
    first, dot, rest = numbers.partition(".")
    if first and dot and rest:
        return True
    groups = word[len(word.rstrip(HEX + ":.")) :]
    first, colon, rest = groups.partition(":")
    return bool(colon and rest) and "." not in first


def _quotes_in_words_only(before: str) -> bool:
    """Quotes are no part of a user with spaces."""
    words = before.split(" ")
    return '"' not in "".join(words[2:]) if len(words) > 3 else True


def _ends_well(after: str) -> bool:
    """Tell whether a request ends here in its quote, a status and a size follow, and then a blank or nothing."""
    place = after.find('"')
    while place >= 0:
        cursor = Cursor(after)
        cursor.at = place
        try:
            cursor.need('" ')
            if not cursor.skip("-"):
                cursor.digits(3, 3)
            cursor.need(" ")
            if not cursor.skip("-"):
                cursor.digits(1, LONGEST)
            if not cursor.left or cursor.left[0] == " ":
                return True
        except Bad:
            pass
        place = after.find('"', place + 1)
    return False


def _time(stamp: str) -> int:
    cursor = Cursor(stamp)
    iso = len(stamp) > 4 and stamp[4] == "-"
    if iso:
        year = int(cursor.digits(4, 4))
        cursor.need("-")
        month = int(cursor.digits(2, 2))
        cursor.need("-")
        day = int(cursor.digits(2, 2))
        if not cursor.skip("T"):
            cursor.need(" ")
    else:
        day = int(cursor.digits(2, 2))
        cursor.need("/")
        name = cursor.left[:3]
        if name not in MONTHS:
            raise Bad("month")
        month = MONTHS.index(name) + 1
        cursor.at += 3
        cursor.need("/")
        year = int(cursor.digits(4, 4))
        cursor.need(":")
    hour, minute, second = (_part(cursor, colon) for colon in ("", ":", ":"))
    millis = int((cursor.digits(1, 9) + "00")[:3]) if cursor.skip(".") else 0
    offset = _offset(cursor, iso)
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    lengths = [31, 29 if leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    if not (
        year >= 1 and 1 <= month <= 12 and 1 <= day <= lengths[month - 1] and hour < 24 and minute < 60 and second < 60
    ):
        raise Bad("no such day or time")
    before = year - 1
    days = 365 * before + before // 4 - before // 100 + before // 400 + sum(lengths[: month - 1]) + day - 1 - 719_162
    time_ms = ((days * 24 + hour) * 60 + minute - offset) * 60_000 + second * 1000 + millis
    if not 0 <= time_ms <= LAST_MS:
        raise Bad("time out of range")
    return time_ms


def _part(cursor: Cursor, colon: str) -> int:
    cursor.need(colon)
    return int(cursor.digits(2, 2))


def _offset(cursor: Cursor, iso: bool) -> int:
    """Return the minutes east of UTC that the end of a time says."""
    if not cursor.left or (iso and cursor.left == "Z"):
        return 0
    blank = cursor.skip(" ")
    if not blank and not iso:
        raise Bad("offset")
    east = cursor.skip("+")
    if not east:
        cursor.need("-")
    hours = int(cursor.digits(2, 2))
    cursor.skip(":")
    minutes = int(cursor.digits(2, 2))
    if cursor.left or hours > 23 or minutes > 59:
        raise Bad("offset")
    return (hours * 60 + minutes) * (1 if east else -1)


def _client_of(before: str) -> str:
    """Return the client of `client identity user`; Bad where another word may be the client."""
    words = before.split(" ")
    if any(_is_control(c) for word in words[1:] for c in word):
        raise Bad("control code")
    # Words that are empty are blanks in the user; the first two words must not be.
    if any(not word or any(c in BLANKS for c in word) for word in words[:2]):
        raise Bad("blank")
    first, *rest = words
    user = " ".join(rest[1:])
    if user.find(" [", user.rfind("]") + 1) >= 0:
        raise Bad("a time without its end")
    if (address := _address(first)) is not None:
        if rest[0] != "-" and _holds_address(" ".join(rest)):
            raise Bad("two addresses")
        return address
    host = _host_of_port(first)
    if host is not None and len(rest) > 2:
        if _address(rest[0]) is None and (rest[0] == "-" or _name(host) is None):
            raise Bad("no client after the virtual host")
        return _client_of(" ".join(rest))
    name = _name(first)
    if name is None or _holds_address(" ".join(rest)):
        raise Bad("no client")
    if len(rest) == 2 and "." not in rest[0]:
        return name
    if rest[0] == "-" and "-" not in rest[1:]:
        return name
    raise Bad("a prefix")


def _is_control(c: str) -> bool:
    return (ord(c) < 32 and c not in "\t\n\v\f\r") or ord(c) == 127


def _client(text: str) -> str:
    found = _address(text)
    if found is None:
        found = _name(text)
    if found is None:
        raise Bad("client")
    return found


def _host_of_port(word: str) -> str | None:
    host, colon, port = word.rpartition(":")
    if not colon or not 1 <= len(port) <= 5 or any(c not in DIGITS for c in port) or not host:
        return None
    if host[0] == "[" and host[-1] == "]" and len(host) > 2:
        return host if all(c in HEX + ":." for c in host[1:-1]) else None
    return host if all(c.lower() in LETTERS + DIGITS + "._-" for c in host) else None


def _holds_address(text: str) -> bool:
    """Tell whether a text holds four numbers with dots, or two colons with nothing but hexadecimal between them."""
    for at, c in enumerate(text):
        if c in DIGITS and (at == 0 or text[at - 1] not in DIGITS) and _dotted(text, at):
            return True
        if c == ":":
            end = at + 1
            while end < len(text) and text[end] in HEX and end - at <= 4:
                end += 1
            if end < len(text) and text[end] == ":":
                return True
    return False


def _dotted(text: str, at: int) -> bool:
    cursor = Cursor(text)
    cursor.at = at
    try:
        for _ in range(3):
            cursor.digits(1, 3)
            cursor.need(".")
        cursor.digits(1, 1)
    except Bad:
        return False
    return True


def _address(word: str) -> str | None:
    if ":" not in word:
        four = _ipv4(word)
        return None if four is None else ".".join(map(str, four))
    word, percent, scope = word.partition("%")
    if percent and (not scope or any(c.lower() not in LETTERS + DIGITS + ":._-" for c in scope)):
        return None
    groups = _ipv6(word)
    if groups is None:
        return None
    if groups[:5] == [0] * 5 and groups[5] == 0xFFFF:
        return ".".join(str(each) for group in groups[6:] for each in divmod(group, 256))
    written = _shortest(groups) + percent + scope
    return written if len(word + percent + scope) <= 254 else None


def _ipv4(word: str) -> list[int] | None:
    parts = word.split(".")
    if len(parts) != 4:
        return None
    for part in parts:
        if not 1 <= len(part) <= 3 or any(c not in DIGITS for c in part) or int(part) > 255:
            return None
        if len(part) > 1 and part[0] == "0":
            return None
    return [int(part) for part in parts]


def _ipv6(word: str) -> list[int] | None:
    if word.count("::") > 1 or ":::" in word:
        return None
    before, gap, after = word.partition("::")
    left, right = _groups(before, not gap), _groups(after, True) if gap else []
    if left is None or right is None:
        return None
    missing = 8 - len(left) - len(right)
    if (missing < 1) if gap else (missing != 0):
        return None
    return [*left, *[0] * missing, *right]


def _groups(text: str, at_end: bool) -> list[int] | None:
    groups: list[int] = []
    parts = text.split(":") if text else []
    for number, part in enumerate(parts, 1):
        if "." in part and at_end and number == len(parts):
            four = _ipv4(part)
            if four is None:
                return None
            groups += [four[0] * 256 + four[1], four[2] * 256 + four[3]]
        elif 1 <= len(part) <= 4 and all(c in HEX for c in part):
            groups.append(int(part, 16))
        else:
            return None
    return groups


def _shortest(groups: list[int]) -> str:
    """Write eight groups with the first of the longest runs of zeros, of two or more, as `::`."""
    best, length = 0, 1
    for start in range(8):
        run = 0
        while start + run < 8 and groups[start + run] == 0:
            run += 1
        if run > length:
            best, length = start, run
    if length < 2:
        return ":".join(f"{group:x}" for group in groups)
    ends = [":".join(f"{group:x}" for group in part) for part in (groups[:best], groups[best + length :])]
    return "::".join(ends)


def _name(word: str) -> str | None:
    if not 1 <= len(word) <= 254:
        return None
    name = word.lower().removesuffix(".")
    labels = name.split(".")
    for label in labels:
        if (
            not 1 <= len(label) <= 63
            or any(c not in LETTERS + DIGITS + "_-" for c in label)
            or "-" in label[0] + label[-1]
        ):
            return None
    last = labels[-1]
    if all(c in DIGITS for c in last) or (last.startswith("0x") and all(c in HEX for c in last[2:])):
        return None
    return name
