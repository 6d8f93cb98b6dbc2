"""Headers as columns."""

import msgpack
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.nightly import repetitions
from tests.pipeline.installed import missing as skip

if not skip:
    import pyarrow as pa

    from fleximq.pipeline.files.record_headers import headersColumn, keyColumn
    from fleximq.pipeline.files.schema import SCHEMA


class HeadersTests(SynchronousTestCase):
    """Texts by name, and the key."""

    def headers(self, *headers: object) -> list[dict[str, str] | None]:
        """Return the column for these values, packed unless they are bytes."""
        column = headersColumn(
            pa.array([h if isinstance(h, bytes) else msgpack.packb(h) for h in headers], pa.binary())
        )
        self.assertEqual(column.type, SCHEMA.field("headers").type)
        return [None if row is None else dict(row) for row in column.to_pylist()]

    def key(self, *headers: object) -> list[bytes | None]:
        """Return the keys of these headers."""
        column = keyColumn(pa.array([h if isinstance(h, bytes) else msgpack.packb(h) for h in headers], pa.binary()))
        self.assertEqual(column.type, pa.binary())
        found: list[bytes | None] = column.to_pylist()
        return found

    def test_recordWithoutAHeaderHasNoMapAndNoKey(self) -> None:
        self.assertEqual(self.headers(b"", b""), [None, None])
        self.assertEqual(self.key(b"", b""), [None, None])

    def test_textsStayAndOtherValuesBecomeJson(self) -> None:
        self.assertEqual(
            self.headers({"a": "x", "n": 5, "l": [1, None], "b": b"\0", 7: True}, b""),
            [{"a": "x", "n": "5", "l": "[1,null]", "b": '"AA=="', "7": "true"}, None],
        )

    def test_keyIsBytesWhateverItsType(self) -> None:
        self.assertEqual(
            self.key({"key": "é"}, {"key": b"\xff"}, {"key": 7}, {"k": 1}, b"", {"key": None}),
            ["é".encode(), b"\xff", b"7", None, None, None],
        )

    def test_headerThatIsNoMapIsAnEmptyMap(self) -> None:
        self.assertEqual(self.headers([1], b"\xc1", b"\x81", 5), [{}, {}, {}, {}])
        self.assertEqual(self.key([1], b"\xc1", b"\x81"), [None, None, None])

    def test_equalHeadersAreEqualRowsInTheirPlaces(self) -> None:
        self.assertEqual(
            self.headers({"a": "1"}, b"", {"a": "2"}, {"a": "1"}), [{"a": "1"}, None, {"a": "2"}, {"a": "1"}]
        )

    @given(st.lists(st.binary(max_size=20), max_size=5))
    @settings(max_examples=repetitions(80, 1000), deadline=None)
    def test_anyHeaderHasARow(self, headers: list[bytes]) -> None:
        self.assertEqual(len(self.headers(*headers)), len(headers))
        self.assertEqual(len(self.key(*headers)), len(headers))
