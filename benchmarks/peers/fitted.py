"""Our broker with schemas: one document in JSON, Avro and Protocol Buffers, each checked by a schema of its kind."""

import struct
from collections.abc import Sequence
from typing import ClassVar

from benchmarks.peers.fleximq import FlexiMQ, frame
from benchmarks.peers.line import Line

_PING, _PONG = 8, 9
#: The fields of the document besides the last one, which is a number.
_TEXTS = {"customer": b"c-0815", "city": b"Graz", "article": b"lamp, 40 cm", "at": b"2026-01-02"}
_TOTAL = struct.pack("<d", 129.5)
_JSON = b'{%s, "total": 129.5}' % b", ".join(b'"%s": "%s"' % (name.encode(), text) for name, text in _TEXTS.items())
_NUMBER = '{"type": "number", "minimum": 0}'


class Unchecked(FlexiMQ):
    """A broker without schemas."""

    document: ClassVar[bytes] = _JSON
    #: The file that has the schema, its text, and the pattern of its topics.
    file: ClassVar[str] = ""
    schema: ClassVar[str] = ""
    pattern: ClassVar[str] = "bench.#"

    def command(self) -> Sequence[str]:
        if not self.file:
            return super().command()
        (self.folder / self.file).write_text(self.schema)
        return [*super().command(), "--schema", f"{self.pattern}={self.file}"]

    def answers(self, line: Line) -> bytes:
        """Return what the broker says to the publications of a connection: nothing, or which of them do not fit."""
        assert isinstance(line.who, int)
        line.send(frame(_PING, line.who, {"keepalive": {"timestamp": 1}}))
        return line.readUntil(pong := frame(_PONG, 1, {"keepalive": {"timestamp": 1}})).removesuffix(pong)


class CheckedJson(Unchecked):
    """JSON Schema."""

    broker, file = "json-schema", "order.json"
    _properties = ", ".join(f'"{name}": {{"type": "string"}}' for name in _TEXTS)
    schema = f'{{"type": "object", "properties": {{{_properties}, "total": {_NUMBER}}}, "required": ["total"]}}'


class CheckedElsewhere(CheckedJson):
    """JSON Schema, but for topics that the benchmark does not use."""

    broker, pattern = "schema-elsewhere", "checked.#"


class CheckedAvro(Unchecked):
    """Avro."""

    broker, file = "avro", "order.avsc"
    document = b"".join(bytes([2 * len(text)]) + text for text in _TEXTS.values()) + _TOTAL
    _fields = ", ".join(f'{{"name": "{name}", "type": "string"}}' for name in _TEXTS)
    schema = f'{{"type": "record", "name": "Order", "fields": [{_fields}, {{"name": "total", "type": "double"}}]}}'


class CheckedProtobuf(Unchecked):
    """Protocol Buffers."""

    broker, file = "protobuf", "order.proto"
    document = (
        b"".join(bytes([number << 3 | 2, len(text)]) + text for number, text in enumerate(_TEXTS.values(), start=1))
        + bytes([len(_TEXTS) + 1 << 3 | 1])
        + _TOTAL
    )
    _fields = " ".join(f"string {name} = {number};" for number, name in enumerate(_TEXTS, start=1))
    schema = f'syntax = "proto3"; message Order {{ {_fields} double total = {len(_TEXTS) + 1}; }}'
