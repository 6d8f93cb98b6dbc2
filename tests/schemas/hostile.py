"""Hostile payloads and schemas: deep, wide, repeating themselves, with expressions that explode, huge numbers, broken
UTF-8 and cut off in all places.
"""

import json
import random
from collections.abc import Iterator
from typing import Any

from fleximq.schemas.definition import AVRO, JSON_SCHEMA, Definition

#: A JSON Schema with all that may cost more than linear time.
TREE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "left": {"$ref": "#"},
        "right": {"anyOf": [{"$ref": "#"}, {"type": "null"}, {"type": "array", "items": {"$ref": "#"}}]},
        "name": {"type": "string", "pattern": "^(a+)+(b|ab)*(x?){20}x{20}$", "maxLength": 100000},
        "tags": {"type": "array", "uniqueItems": True, "contains": {"type": ["object", "string", "number"]}},
        "either": {"oneOf": [{"$ref": "#"}, {"type": "object", "properties": {"either": {"type": "number"}}}]},
        "at": {"type": "string", "format": "date-time"},
        "mail": {"type": "string", "format": "email"},
        "number": {"type": "number", "multipleOf": 0.01, "maximum": 1e300},
    },
    "patternProperties": {"^(x|xx)+$": {"type": "number"}},
    "propertyNames": {"maxLength": 1000},
    "dependentSchemas": {"left": {"$ref": "#"}},
    "unevaluatedProperties": False,
}
_NODE = {"type": "object", "properties": {"a": {"$ref": "#"}}}
#: A JSON Schema whose alternatives contain themselves, and one whose checks of what was evaluated do.
BRANCHES: dict[str, Any] = {
    "anyOf": [_NODE, {**_NODE, "required": ["a"]}, {"type": "array", "items": {"anyOf": [{"const": 1}, {"const": 2}]}}]
}
REPEATED: dict[str, Any] = {
    "anyOf": [
        {"type": "number"},
        {
            "properties": {"a": {"unevaluatedProperties": {"$ref": "#"}}},
            "patternProperties": {"^a": {"if": {"$ref": "#"}, "then": {"$ref": "#"}, "unevaluatedProperties": False}},
        },
    ]
}
#: JSON Schemas with patterns that are compared in many states, and with values that are compared one by one.
PATTERN: dict[str, Any] = {"items": {"pattern": "[ab]*a[ab]{3000}c"}}
VALUES: dict[str, Any] = {"items": {"enum": [{"a": each} for each in range(5000)]}}
RECORD = {
    "type": "record",
    "name": "Record",
    "fields": [
        {"name": "number", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "many", "type": {"type": "array", "items": "int"}},
        {"name": "more", "type": {"type": "map", "values": {"type": "array", "items": "boolean"}}},
        {"name": "any", "type": ["null", "string", "long", "bytes"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}


def documents(seed: int, number: int, most: int) -> Iterator[bytes]:
    """Yield payloads that begin as JSON, of up to about ``most`` bytes."""
    chance = random.Random(seed)
    deep = [lambda n: b'{"left":' * n, lambda n: b'{"either":' * n, lambda n: b"[" * n, lambda n: b'{"right":[' * n]
    kinds: list[Any] = [
        *deep,
        *(
            lambda n, open=each: open(min(n, 63)) + b"null" + (b"]}" if open is deep[3] else b"}") * min(n, 63)
            for each in deep
        ),
        lambda n: b'{"name":"%s!"}' % (b"a" * n),
        lambda n: b'{"%s":1}' % (b"x" * n),
        lambda n: b'{"tags":[%s]}' % b",".join(b"%d" % each for each in range(n // 6)),
        lambda n: b'{"tags":[%s]}' % b",".join(b'{"a":%d}' % (each % 7) for each in range(n // 8)),
        lambda n: b"{%s}" % b",".join(b'"k%d":{}' % each for each in range(n // 10)),
        lambda n: b'{"number":%s}' % (b"9" * n),
        lambda n: b'{"number":1e%d}' % n,
        lambda n: b'{"at":"%s"}' % (b"2026-" * (n // 5)),
        lambda n: b'{"mail":"%s@%s"}' % (b"a." * (n // 4), b"b." * (n // 4)),
        lambda n: b'{"name":"\xff\xfe%s"}' % (b"\\ud800" * (n // 6)),
        lambda n: chance.randbytes(n),
        lambda n: json.dumps({"left": {"name": "a" * n}, "either": {"either": n}}).encode()[: chance.randrange(n + 9)],
    ]
    for place in range(number):
        yield kinds[place % len(kinds)](int(most ** chance.random()) + 1)


def branches(seed: int, number: int, most: int) -> Iterator[bytes]:
    """Yield documents that fit, or nearly fit, schemas with work for each level, byte or value of them."""
    chance = random.Random(seed)
    kinds: list[Any] = [
        lambda n: b'{"a":' * (n % 64) + b'"x"' + b"}" * (n % 64),
        lambda n: b'{"a":' * (n % 62) + b'{"b":[]}' + b"}" * (n % 62),
        lambda n: b"[%s]" % b",".join([b"3"] * n),
        lambda n: b'["%s"]' % bytes(chance.choices(b"ab", k=n)),
        lambda n: b"[%s]" % b",".join([b'{"a":4999}'] * (n // 11)),
    ]
    for place in range(number):
        yield kinds[place % len(kinds)](int(most ** chance.random()) + 1)


def records(seed: int, number: int, most: int) -> Iterator[bytes]:
    """Yield payloads that begin as Avro or Protocol Buffers."""
    chance = random.Random(seed)
    huge = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    kinds: list[Any] = [
        lambda n: chance.randbytes(n),
        lambda n: b"\x02" + huge + b"a" * n,
        lambda n: b"\x02\x02a" + huge + b"\0" * n,
        lambda n: b"\x02\x02a\x01" + huge + b"\x02" * n,
        lambda n: b"\x80" * n,
        lambda n: b"\x02\x02a" + b"\x02\x02" * n,
        lambda n: b"\x02\x02a\0" + b"\x02\x02k\x02\x01\0" * (n // 6),
        lambda n: b"\x02\x02a\0\0\0\0\x02",
        lambda n: b"\x22\0" * (n // 2),
        lambda n: b"\x22\x02\x08\x05" * (n // 4),
        lambda n: b"\x2a\x02\x08\x05" * (n // 4),
        lambda n: b"\x0b" * n,
        lambda n: b"".join(b"\x72" + bytes([each & 0x7F]) for each in range(n // 2)),
    ]
    for place in range(number):
        yield kinds[place % len(kinds)](int(most ** chance.random()) + 1)


def schemas() -> Iterator[Definition]:
    """Yield schemas that nobody should be able to use."""
    unusable: list[Any] = [
        {"$ref": "http://127.0.0.1:1/schema.json"},
        {"$ref": "file:///etc/passwd"},
        {"$ref": "#/$defs/nothing"},
        {"pattern": "(?=a)^(a+)+$"},
        {"pattern": r"^(a|a)*\1$"},
        {"pattern": "((a{1000}){1000}){1000}"},
        {"patternProperties": {"(?<!a)b": {}}},
        {"type": 7},
        {"properties": []},
        {"$schema": "http://127.0.0.1:1/draft"},
        _nested(100),
        5,
    ]
    for schema in unusable:
        yield Definition(JSON_SCHEMA, (json.dumps(schema),))
    yield Definition(JSON_SCHEMA, ("[" * 100_000,))
    doubled: Any = "int"
    for level in range(40):
        doubled = {
            "type": "record",
            "name": f"R{level}",
            "fields": [
                {"name": "a", "type": doubled},
                {"name": "b", "type": doubled if level == 0 else f"R{level - 1}"},
            ],
        }
    for schema in (
        {"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null", "R"]}]},
        {"type": "record", "name": "R", "fields": [{"name": "all", "type": {"type": "map", "values": "R"}}]},
        {"type": "array", "items": "null"},
        {"type": "array", "items": {"type": "record", "name": "Empty", "fields": []}},
        {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}},
        doubled,
        {"type": "unknown"},
        {"type": {"type": {"type": {}}}},
        7,
    ):
        yield Definition(AVRO, (json.dumps(schema),))


def _nested(depth: int) -> Any:
    schema: Any = {}
    for _ in range(depth):
        schema = {"properties": {"a": schema}}
    return schema
