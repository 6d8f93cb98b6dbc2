"""Decoders get any bytes at all: they raise nothing, and rows do not touch each other."""

import json
from collections.abc import Callable
from typing import Any

import msgpack
from twisted.trial.unittest import SynchronousTestCase

from fleximq.values.message import Content
from tests.nightly import repetitions
from tests.pipeline.installed import missing as skip

if not skip:
    import msgspec
    from hypothesis import given, settings
    from hypothesis import strategies as st

    from fleximq.pipeline.payloads.ddl import parsed
    from fleximq.pipeline.payloads.decoder import ENCODINGS, STRUCTURED, Decoder
    from fleximq.pipeline.payloads.dialect_payloads import Identity
    from fleximq.pipeline.payloads.schema_inference import inferred
    from tests.pipeline.payloads.read import binary, codes, rowsOf, texts

    SCHEMA = parsed(
        "s STRING, d DOUBLE, f FLOAT, n BIGINT, t TINYINT, b BOOLEAN, x BINARY, at TIMESTAMP, day DATE, c DECIMAL(5,2)"
        ", a ARRAY<INT>, m MAP<STRING, FLOAT>, z ARRAY<STRUCT<c: DECIMAL(3,1), s: STRING, x: BINARY>>, "
        "u STRUCT<s: ARRAY<STRING>, m: MAP<STRING, STRUCT<d: DATE>>>"
    )
    KEYS = st.one_of(st.sampled_from(SCHEMA.names), st.text(max_size=3), st.integers(-5, 5), st.binary(max_size=2))
    NUMBERS = st.one_of(st.integers(-(2**63), 2**64 - 1), st.integers(-200, 200), st.floats(), st.floats(width=32))
    WORDS = st.sampled_from(
        [
            "1.25",
            "1E-999999999",
            "-0E+99999999999999999999",
            "NaN",
            "2026-01-02",
            "2026-01-02T03:04:05Z",
            "YWJj",
            "\ud800",
        ]
    )
    TIMES = st.builds(msgpack.Timestamp, st.integers(-(2**40), 2**40), st.integers(0, 10**9 - 1))
    EXTENSIONS = st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=20))
    SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=8), WORDS.filter(str.isascii))
    VALUES = st.recursive(
        st.one_of(SCALARS, st.binary(max_size=8), TIMES, EXTENSIONS),
        lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
        max_leaves=12,
    )
    JSONS = st.recursive(
        st.one_of(SCALARS, WORDS, st.integers()),
        lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS.map(str), inner, max_size=4)),
        max_leaves=12,
    )
    #: What is done to bytes that were right: cut, changed or followed by others.
    DAMAGE = st.one_of(
        st.just(lambda payload: payload),
        st.integers(0, 60).map(lambda at: lambda payload: payload[:at]),
        st.binary(min_size=1, max_size=3).map(lambda more: lambda payload: payload + more),
        st.tuples(st.integers(0, 60), st.integers(0, 255)).map(
            lambda change: lambda payload: payload[: change[0]] + bytes([change[1]]) + payload[change[0] + 1 :]
        ),
    )

    def _apply(values: "st.SearchStrategy[bytes]") -> "st.SearchStrategy[bytes]":
        return st.builds(lambda payload, damage: damage(payload), values, DAMAGE)

    def _maps(values: "st.SearchStrategy[Any]", keys: "st.SearchStrategy[Any]") -> "st.SearchStrategy[Any]":
        return st.one_of(values, st.dictionaries(keys, values, max_size=5))

    PAYLOADS = st.one_of(
        st.binary(max_size=40),
        _apply(_maps(VALUES, KEYS).map(lambda value: msgpack.packb(value, unicode_errors="surrogatepass"))),
        _apply(_maps(JSONS, KEYS.map(str)).map(lambda value: json.dumps(value).encode())),
        st.binary(max_size=20).map(lambda body: body + b"||a=b||\xff=c"),
        st.none(),
    )
    DIALECTS = st.sampled_from(["fleximq", "blipmq", "minimq", "identity", "broker", "other"])
    ROWS = st.lists(st.tuples(PAYLOADS, DIALECTS, st.sampled_from(Content)), max_size=6)


def _slow(payloadFormat: str) -> "Decoder":
    """Return a decoder whose quick way takes nothing, so that all is read value by value."""

    def refuse(payload: bytes) -> Any:
        raise ValueError("read it again")

    decoder = Decoder(payloadFormat, SCHEMA)
    decoder._maps._decode = refuse  # type: ignore[union-attr]
    return decoder


class AnyBytesTests(SynchronousTestCase):
    """What holds for all bytes."""

    def holds(self, check: Callable[..., None], *given_: Any, examples: int = repetitions(80, 1000)) -> None:
        """Try something with many examples."""
        settings(max_examples=examples, deadline=None)(given(*given_)(check))()

    def test_eachRowHasValuesOrAnErrorAloneAndAmongOthers(self) -> None:
        decoders = [
            Decoder(payloadFormat, SCHEMA if payloadFormat in STRUCTURED else None, identity)
            for payloadFormat in ENCODINGS
            for identity in (Identity(), Identity(True, True))
        ]

        def check(rows: Any, decoder: Any, told: int) -> None:
            payloads = [payload for payload, _, _ in rows]
            dialects = texts([dialect for _, dialect, _ in rows]) if told else None
            contents = codes([content for _, _, content in rows]) if told > 1 else None
            decoded = decoder.decode(binary(payloads), dialects, contents)
            decoded.columns.validate(full=True)
            found = rowsOf(decoded)
            self.assertEqual(len(found), len(rows))
            for place, (payload, row) in enumerate(zip(payloads, found, strict=True)):
                self.assertEqual(row is None, payload is None)
                if isinstance(row, str):
                    self.assertEqual(
                        [column[place].as_py() for column in decoded.columns.flatten()], [None] * len(decoder.schema)
                    )
                alone = decoder.decode(
                    binary([payload]),
                    None if dialects is None else dialects.slice(place, 1),
                    None if contents is None else contents.slice(place, 1),
                )
                self.assertEqual(repr(rowsOf(alone)), repr([row]))

        self.holds(check, ROWS, st.sampled_from(decoders), st.integers(0, 2), examples=repetitions(240, 3000))

    def test_fastAndSlowReadingAgree(self) -> None:
        decoders = {
            payloadFormat: (Decoder(payloadFormat, SCHEMA), _slow(payloadFormat)) for payloadFormat in STRUCTURED
        }

        def check(payload: Any, payloadFormat: str) -> None:
            [first], [second] = (rowsOf(decoder.decode(binary([payload]))) for decoder in decoders[payloadFormat])
            self.assertEqual(isinstance(first, str), isinstance(second, str), (first, second))
            if not isinstance(first, str):
                self.assertEqual(repr(first), repr(second))

        self.holds(check, PAYLOADS, st.sampled_from(STRUCTURED), examples=repetitions(400, 5000))

    def test_everyValueOfItsTypeIsReadBack(self) -> None:
        schema = parsed("n BIGINT, d DOUBLE, s STRING, b BOOLEAN, a ARRAY<BIGINT>")
        row = st.fixed_dictionaries(
            {
                "n": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
                "d": st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)),
                "s": st.one_of(st.none(), st.text()),
                "b": st.one_of(st.none(), st.booleans()),
                "a": st.one_of(st.none(), st.lists(st.integers(-(2**63), 2**63 - 1))),
            }
        )
        ways = {"messagepack": msgspec.msgpack.encode, "json": msgspec.json.encode}
        decoders = {payloadFormat: Decoder(payloadFormat, schema) for payloadFormat in ways}

        def check(rows: Any, payloadFormat: str) -> None:
            values = binary([ways[payloadFormat](each) for each in rows])
            self.assertEqual(rowsOf(decoders[payloadFormat].decode(values)), rows)

        self.holds(check, st.lists(row, max_size=5), st.sampled_from(STRUCTURED))

    def test_inferredSchemaIsStableAndADecoderTakesIt(self) -> None:
        plain = parsed("s STRING, n BIGINT, t TINYINT, b BOOLEAN, x BINARY, at TIMESTAMP, a ARRAY<INT>")

        def check(rows: Any, payloadFormat: str) -> None:
            values = binary([payload for payload, _, _ in rows])
            dialects = texts([dialect for _, dialect, _ in rows])
            contents = codes([content for _, _, content in rows])
            schema = inferred(payloadFormat, values, None, Identity(True, False), dialects, contents)
            names = [name.lower() for name in schema.names]
            self.assertEqual(len(set(names)), len(names))
            self.assertEqual(inferred(payloadFormat, values, schema, Identity(True, False), dialects, contents), schema)
            kept = inferred(payloadFormat, values, plain, widen=False)
            self.assertEqual(list(kept)[: len(plain)], list(plain))
            if len(schema) and "metadata" not in names:
                Decoder(payloadFormat, schema, Identity(True, False)).decode(values, dialects, contents)

        self.holds(check, ROWS, st.sampled_from(STRUCTURED), examples=repetitions(160, 2000))
