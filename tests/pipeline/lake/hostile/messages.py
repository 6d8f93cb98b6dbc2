"""Random messages that were seen to break lakes: their keys, numbers, times and texts, as JSON or MessagePack."""

import json
from base64 import b64encode
from random import Random
from typing import Any, NamedTuple

import msgpack
import pyarrow as pa

from fleximq.pipeline.payloads import ddl
from fleximq.values.message import Content
from tests.pipeline.lake.tables import DAY, TIME

#: Keys that differ in case only, look like paths, signs, or columns of a table, and keys that are no names at all.
TWINS = ("userId", "userid", "USERID", "ß", "ẞ", "K", "k", "\u212a")
DOTTED = ("a.b", "a", "list.element", "list", "m.key", "m", "a..b", ".", "u.s")
RESERVED = (
    *("select", "from", "order", "null", "true", "date", "topic", "offset", "offset_", "metadata", "reason", "value"),
    *("key", "headers", "fleximq_topic", "_metadata", "_file", "_pos", "_change_type", "filename", "rowid", "journal"),
    *("__index_level_0__", "file_row_number", "timestamp", "content", "element", "_fleximq"),
)
SIGNS = (
    *(" ", " a", "a ", "a b", "`", "``", "a`b", '"', "'", "\\", "a/b", "%41", "a=b", "?", "#", ";", ",", "()", "{}"),
    *("[0]", "$", "*", "^a$", "\n", "\t", "\0", "e\u0301", "\u00e9", "\U0001f600", "\ud7ff", "名前", "-1", "1e5", "--"),
)
LONG = ("n" * 255, "n" * 256, "ä" * 127, "ä" * 128, "")
KEYS = (*TWINS, *DOTTED, *RESERVED, *SIGNS, *LONG, "x", "y", "z", "celsius")

#: The 16th character of a text is the last of a bound in Iceberg's metadata; nothing directly follows U+D7FF.
TEXTS = (
    *("", "a", "b", "\0", "a\0b", "NULL", "NaN", "é", "e\u0301", "ä" * 20, "\ud7ff", "\ud7ff" * 17, "\uffff" * 17),
    *("x" * 15 + "\ud7ff" + "y", "x" * 15 + "\ud7ff", "\U0010ffff" * 17, "z" * 15 + "\U0010ffff" + "y", "~" * 100_000),
)
SURROGATES = ("\ud800", "a\udfff", "\udc00\ud800")
TOPICS = ("t", "größe", "a/c", "007", "__HIVE_DEFAULT_PARTITION__", "x" * 13 + "\ud7ff\ud7ff", "a b=c%", "[1]?#")
#: The topic whose messages expire.
GONE = "gone"
FLOATS = (0.0, -0.0, 1.5, -1.5, 49.0, 1e308, 5e-324, 2.0**53, -(2.0**63), 0.1, 1e16, 100.0)
NOT_FINITE = (float("nan"), float("nan"), float("inf"), float("-inf"))
WHOLE = (0, 1, -1, 49, 100, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 2**31)
LARGE = (2**63, 2**64 - 1)
TOKENS = ("1E+2", "-0", "-0.0", "1.10", "0.1", "12345678901234567890123", "1e-400", "1.0", "49e0")
MOMENTS = (
    *("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59.999999Z", "1969-12-31T23:59:59.999999Z"),
    *("1582-10-10T00:00:00Z", "1883-11-18T12:03:58Z", "1900-01-01T00:00:00+01:00", "2024-03-10T02:30:00-08:00"),
    *("2024-11-03T01:30:00-07:00", "2024-03-31T02:30:00+01:00", "2024-02-29T23:59:59.5Z", "1970-01-01T00:00:00Z"),
)
#: Beyond the years 1 to 9999 in UTC.
FAR_MOMENTS = ("9999-12-31T23:59:59-05:00", "0001-01-01T00:00:00+14:00")
STAMPS = ((0, 0), (-1, 999_999_000), (-62_135_596_800, 0), (253_402_300_799, 999_999_000), (1_700_000_000, 1_000))
FAR_STAMPS = ((253_402_300_800, 0), (-62_135_596_801, 0), (2**40, 0), (253_402_300_799, 999_999_999))
DATES = ("0001-01-01", "9999-12-31", "1582-10-10", "1969-12-31", "2024-02-29", "1970-01-01")
DECIMALS = ("1E+2", "1.10", "-0", "99999999.99", "-99999999.99", "0.01", "0E+5")
DDL = (
    *("BIGINT", "INT", "TINYINT", "DOUBLE", "DOUBLE", "FLOAT", "STRING", "STRING", "BOOLEAN", "BINARY", "TIMESTAMP"),
    *("TIMESTAMP", "DATE", "DECIMAL(10,2)", "DECIMAL(38,18)", "ARRAY<DOUBLE>", "ARRAY<TIMESTAMP>", "ARRAY<STRING>"),
    *("MAP<STRING, STRING>", "MAP<STRING, DOUBLE>", "STRUCT<at: TIMESTAMP, `a b`: DOUBLE, s: STRING>"),
)


class Token(str):
    """The digits of a number in JSON; in MessagePack the number that they mean."""


class Pairs(list[tuple[str, Any]]):
    """A map, in which a key may be repeated."""


class HostileMessage(NamedTuple):
    """One message; ``time`` is in microseconds since 1970."""

    topic: str
    time: int
    content: Content
    payload: bytes


class HostileMessages:
    """Makes messages whose keys and types are chosen once, so that several messages share a column."""

    def __init__(self, random: Random, types: dict[str, pa.DataType], odd: float = 0.04) -> None:
        self._random = random
        self._types = types
        self._odd = odd

    def make(self) -> HostileMessage:
        """Return the next message."""
        random = self._random
        topic = GONE if self._rarely(2) else random.choice(TOPICS)
        isPacked = random.random() < 0.5
        if self._rarely():
            payload = random.choice((b"", b"null", b"[1]", b"1", b"{", b'{"x":1}x', b"\xff", b"\x80", b"\xc1", b"{}"))
        else:
            keys = random.sample(list(self._types), min(len(self._types), random.randint(0, 8)))
            pairs = Pairs((key, self.value(self._types[key], isPacked)) for key in keys)
            if pairs and self._rarely():
                pairs.append((pairs[0][0], self.value(self._types[pairs[0][0]], isPacked)))
            payload = packed(pairs) if isPacked else written(pairs).encode()
        content = Content.MESSAGEPACK if isPacked else random.choice((Content.BYTES, Content.TEXT))
        time = TIME + random.choice((0, 0, DAY)) + random.randrange(1000)
        return HostileMessage(topic, time, content, payload)

    def _rarely(self, times: float = 1) -> bool:
        return self._random.random() < self._odd * times

    def value(self, dataType: pa.DataType, isPacked: bool) -> Any:
        """Return a value for a column of a type, rarely one that does not fit."""
        random = self._random
        if self._rarely(2):
            return None
        if self._rarely():
            return self._odd_(isPacked)
        if pa.types.is_list(dataType):
            return [self.value(dataType.value_type, isPacked) for _ in range(random.randint(0, 3))]
        if pa.types.is_map(dataType):
            keys = random.sample(("a.b", "key", "value", "", " ", "k"), random.randint(0, 3))
            return Pairs((key, self.value(dataType.item_type, isPacked)) for key in keys)
        if pa.types.is_struct(dataType):
            return Pairs((field.name, self.value(field.type, isPacked)) for field in dataType if random.random() < 0.8)
        return self._scalar(dataType, isPacked)

    def _scalar(self, dataType: pa.DataType, isPacked: bool) -> Any:
        random = self._random
        if pa.types.is_floating(dataType):
            if isPacked:
                return random.choice((*FLOATS, *NOT_FINITE, *WHOLE, *LARGE, random.uniform(-100, 100)))
            return random.choice((*FLOATS, *WHOLE, *LARGE, *map(Token, TOKENS), random.randint(0, 49)))
        if pa.types.is_integer(dataType):
            top = 1 << dataType.bit_width - 1
            return random.choice((0, 1, -1, 49, top - 1, -top, random.randint(-100, 100)))
        if pa.types.is_decimal(dataType):
            return random.choice((Token, str))(random.choice(DECIMALS)) if not isPacked else random.choice(DECIMALS)
        if dataType == pa.bool_():
            return random.random() < 0.5
        if dataType == pa.date32():
            return random.choice(DATES)
        if pa.types.is_timestamp(dataType):
            if isPacked and random.random() < 0.5:
                return msgpack.Timestamp(*random.choice(STAMPS))
            return random.choice(MOMENTS)
        if dataType == pa.binary():
            found = random.choice((b"", b"\0", b"\xff" * 20, b"abc"))
            return found if isPacked else b64encode(found).decode()
        return random.choice(TEXTS)

    def _odd_(self, isPacked: bool) -> Any:
        """Return a value of another type, or one that no table can have."""
        far: tuple[Any, ...] = (*FAR_MOMENTS, *SURROGATES, *LARGE, 2**53, True, 1.5, "x", [], {}, [[[]]], [None])
        if isPacked:
            far += (*(msgpack.Timestamp(*each) for each in FAR_STAMPS), *NOT_FINITE, b"\xff")
        else:
            far += (Token("1e400"), Token("-1e400"), 10**400)
        return self._random.choice(far)


def typesOf(random: Random, number: int) -> dict[str, pa.DataType]:
    """Return so many hostile keys, each with the type that most of its values have."""
    keys = random.sample(KEYS, min(number, len(KEYS)))
    return {key: ddl.parsed(f"c {random.choice(DDL)}").field(0).type for key in keys}


def written(value: Any) -> str:
    """Return JSON, in which a key may be repeated, and a lone surrogate is an escape."""
    if isinstance(value, Pairs | dict):
        pairs = value if isinstance(value, Pairs) else value.items()
        return "{" + ", ".join(f"{json.dumps(key)}: {written(each)}" for key, each in pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    return (
        str(value)
        if isinstance(value, Token)
        else json.dumps(value, ensure_ascii=isinstance(value, str) and _lone(value))
    )


def _lone(text: str) -> bool:
    return any("\ud800" <= each <= "\udfff" for each in text)


def packed(value: Any) -> bytes:
    """Return MessagePack, in which a key may be repeated, and a lone surrogate is three bytes."""
    packer = msgpack.Packer(unicode_errors="surrogatepass")
    if isinstance(value, Pairs | dict):
        pairs = value if isinstance(value, Pairs) else list(value.items())
        return bytes(packer.pack_map_header(len(pairs))) + b"".join(packed(key) + packed(each) for key, each in pairs)
    if isinstance(value, list):
        return bytes(packer.pack_array_header(len(value))) + b"".join(map(packed, value))
    return bytes(packer.pack(value))
