"""What is written becomes a value, and what comes is shown."""

from datetime import UTC, datetime

import msgpack
from twisted.trial.unittest import SynchronousTestCase

from fleximq.cli.client_commands.texts import FORMATTERS, PARSERS, asJson, deliveryAsJson
from fleximq.client.events import Delivery
from fleximq.errors import SettingError


class ReadingTests(SynchronousTestCase):
    """:func:`readerOf`."""

    def test_good(self) -> None:
        """Each way makes its kind of value."""
        for name, written, value in (
            ("text", "grün".encode(), "grün"),
            ("json", b'{"a": [1, null]}', {"a": [1, None]}),
            ("hex", b"00 ff", b"\x00\xff"),
        ):
            self.assertEqual(PARSERS[name](written), value)

    def test_bad(self) -> None:
        """What cannot be understood is one sentence."""
        for name, written, words in (
            ("text", b"\xff", "not UTF-8"),
            ("json", b"{", "not JSON"),
            ("json", b"[" * 100_000, "not JSON"),
            ("hex", b"0", "not hex"),
            ("hex", b"\xff", "not hex"),
        ):
            self.assertIn(words, str(self.assertRaises(SettingError, PARSERS[name], written)))


class ShowingTests(SynchronousTestCase):
    """:func:`shown` and its like."""

    def test_formats(self) -> None:
        """The table of values and formats."""
        for value, text, json, hex, raw in (
            ("ü", b"\xc3\xbc\n", b'"\xc3\xbc"\n', b"c3bc\n", b"\xc3\xbc"),
            (b"\x00\xff", b"AP8=\n", b'"AP8="\n', b"00ff\n", b"\x00\xff"),
            ({"a": 1}, b'{"a":1}\n', b'{"a": 1}\n', b"81a16101\n", b"\x81\xa1a\x01"),
        ):
            payload = msgpack.packb(value)
            found = tuple(FORMATTERS[each](payload) for each in ("text", "json", "hex", "raw"))
            self.assertEqual(found, (text, json, hex, raw), value)

    def test_odd(self) -> None:
        """An empty payload, and one that is no MessagePack, are shown too."""
        formats = ("text", "json", "hex", "raw")
        self.assertEqual([FORMATTERS[each](b"") for each in formats], [b"\n", b"null\n", b"\n", b""])
        self.assertEqual(FORMATTERS["json"](b"\xc1"), b"wQ==\n")
        self.assertEqual((asJson(b""), asJson(b"\xc1")), (None, None))

    def test_time(self) -> None:
        """The time of a stored message is in RFC 3339, whatever else its publisher calls so."""
        header = {"topic": "t", "time": "mine", "stored_at": 1_795_719_600_005, "offset": 7}
        delivery = Delivery("t", b"\x01", 1000, header)
        self.assertEqual(delivery.time, datetime(2026, 11, 26, 19, 0, 0, 5000, tzinfo=UTC))
        found = {"topic": "t", "publisher": 1000, "value": 1, "time": "2026-11-26T19:00:00.005Z", "offset": 7}
        self.assertEqual(deliveryAsJson(delivery), found)
        for wrong in ({"stored_at": 5}, {"stored_at": -1, "offset": 7}, {"stored_at": 1 << 63, "offset": 7},
                      {"stored_at": "5", "offset": 7}, {"offset": 7}):  # fmt: skip
            self.assertIsNone(Delivery("t", b"", 1000, wrong).time)

    def test_describe(self) -> None:
        """All there is to know of a delivery, as something that JSON can hold."""
        header = {"topic": "t", "routing": [], "offset": 7, "key": b"k"}
        self.assertEqual(
            deliveryAsJson(Delivery("t", msgpack.packb([1]), 1000, header)),
            {"topic": "t", "publisher": 1000, "value": [1], "offset": 7, "key": "b'k'"},
        )
