"""The table of payloads across dialects."""

from base64 import b64encode
from functools import partial

import msgpack
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.values.message import Content, Message
from fleximq.wire.payload_conversion import (
    JSON_BYTES,
    JSON_VALUES,
    toBytes,
    toLine,
    toMessagePack,
    toText,
    toUtf8,
)
from tests.processor_time import Measured, processorSeconds

LENGTHS = [0, 1, 31, 32, 255, 256, 65535, 65536]


def packed(value: object) -> Message:
    return Message(msgpack.packb(value), Content.MESSAGEPACK)


def raw(payload: bytes) -> Message:
    """A FlexiMQ message with this payload, MessagePack or not."""
    return Message(payload, Content.MESSAGEPACK)


class FromFlexiTests(SynchronousTestCase):
    """MessagePack payloads."""

    def test_verbatimToFlexi(self) -> None:
        """FlexiMQ gets the payload as it came, whatever it is."""
        for payload in (b"", b"\xa1a", b"\xc1", b"\x01\x02", b"\xa1\xff"):
            self.assertEqual(toMessagePack(raw(payload)), payload)

    def test_noPayloadIsEmptyBytesAndEmptyText(self) -> None:
        """No payload is empty bytes and empty text."""
        self.assertEqual((toBytes(raw(b"")), toUtf8(raw(b"")), toText(raw(b""))), (b"", b"", ""))

    def test_strIsItsBytesAndItsTextAtEveryWidthOfLength(self) -> None:
        """A str is its bytes and its text, at every width of length."""
        for text in ["你好é😀", "two\nlines", *("x" * length for length in LENGTHS)]:
            self.assertEqual(toBytes(packed(text)), text.encode())
            self.assertEqual(toText(packed(text)), text)

    def test_binIsItsBytesAtEveryWidthOfLength(self) -> None:
        """A bin is its bytes, at every width of length; as text too if it is UTF-8."""
        for length in LENGTHS:
            self.assertEqual(toBytes(packed(b"x" * length)), b"x" * length)
            self.assertEqual(toText(packed(b"x" * length)), "x" * length)

    def test_binaryBin(self) -> None:
        """A bin that is not UTF-8 is its bytes, and base64 with padding as text."""
        self.assertEqual(toBytes(packed(b"\xff\x00")), b"\xff\x00")
        self.assertEqual(toText(packed(b"\xff\x00")), "/wA=")

    def test_otherValues(self) -> None:
        """Other values are their MessagePack bytes, and compact JSON as text."""
        for value, text in [
            ({"k": [1, None, b"\xff\x00"]}, '{"k":[1,null,"/wA="]}'),
            ({1: "é"}, '{"1":"é"}'),
            ([], "[]"),
            (5, "5"),
            (None, "null"),
            (True, "true"),
            (msgpack.Timestamp(0), '"1970-01-01T00:00:00Z"'),
            (msgpack.ExtType(4, b"\xff"), '"/w=="'),
        ]:
            self.assertEqual(toBytes(packed(value)), msgpack.packb(value))
            self.assertEqual(toText(packed(value)), text)

    def test_notOneValue(self) -> None:
        """What is not exactly one value is taken as a bin of all its bytes: text if it is UTF-8, else base64."""
        for payload in (b"hello", b"\x01\x02", b"\x31"):
            self.assertEqual(toBytes(raw(payload)), payload)
        self.assertEqual(toText(raw(b"hello")), "hello")
        for payload in (b"\xc1", b"\xa5abcd", b"\xa1ab", b"\xd9\x05abcd", b"\xc4", b"\xc6\xff\xff\xff\xffa", b"\xdb\0"):
            self.assertEqual(toBytes(raw(payload)), payload)
            self.assertEqual(toText(raw(payload)), b64encode(payload).decode())

    def test_stringsNotUtf8(self) -> None:
        """A value that is or holds a str that is not UTF-8 is taken as a bin of all its bytes."""
        for payload in (b"\xa1\xff", b"\xd9\x01\xff", b"\x91\xa1\xff", b"\x81\xa1\xff\x01", b"\xa3\xed\xa0\x80"):
            self.assertEqual(toBytes(raw(payload)), payload)
            self.assertEqual(toText(raw(payload)), b64encode(payload).decode())

    def test_deepNestingAndAnnouncedSizesEndAsBinInTimeThatGrowsWithBytes(self) -> None:
        """Deep nesting and announced sizes end as a bin, in a time that grows with the bytes alone."""
        with Measured() as measured:
            for bomb in (
                b"\x91" * 1_000_000 + b"\xc0",
                b"\x81" * 1_000_000,
                b"\x81\x01" * 500_000 + b"\x01",
                b"\xdd\xff\xff\xff\xff" * 200_000,
                b"\xdf\x7f\xff\xff\xff" * 200_000,
                b"\xdd\xff\xff\xff\xff" + b"\xc0" * 100_000,
            ):
                self.assertEqual(toUtf8(raw(bomb)), b64encode(bomb))
        self.assertLess(measured.seconds, 5)


class FromBytesTests(SynchronousTestCase):
    """BlipMQ payloads."""

    def test_toFlexi(self) -> None:
        """FlexiMQ gets a MessagePack bin, at every width of length."""
        for length in LENGTHS:
            content = b"\xff" * length
            self.assertEqual(toMessagePack(Message(content, Content.BYTES)), msgpack.packb(content))

    def test_toBytes(self) -> None:
        """BlipMQ gets them as they are."""
        self.assertEqual(toBytes(Message(b"\xff\x00", Content.BYTES)), b"\xff\x00")

    def test_toText(self) -> None:
        """Text dialects get text if it is UTF-8, else base64; bytes that look like MessagePack are not unpacked."""
        for content, text in [(b"", ""), ("é".encode(), "é"), (b"\xff\x00", "/wA="), (b"\x01", "\x01")]:
            self.assertEqual(toText(Message(content, Content.BYTES)), text)


class FromTextTests(SynchronousTestCase):
    """MiniMQ and Identity payloads."""

    def test_toFlexi(self) -> None:
        """FlexiMQ gets a MessagePack str, at every width of length."""
        for length in LENGTHS:
            message = Message(b"x" * length, Content.TEXT)
            self.assertEqual(toMessagePack(message), msgpack.packb("x" * length))
        self.assertEqual(toMessagePack(Message("é".encode(), Content.TEXT)), msgpack.packb("é"))

    def test_toOthers(self) -> None:
        """BlipMQ gets its UTF-8, text dialects the text."""
        message = Message("你好\n".encode(), Content.TEXT)
        self.assertEqual((toBytes(message), toText(message)), ("你好\n".encode(), "你好\n"))


class AnyPayloadTests(SynchronousTestCase):
    """Whatever the bytes."""

    @given(st.sampled_from([Content.MESSAGEPACK, Content.BYTES]), st.binary(max_size=40))
    def test_alwaysSomething(self, content: Content, payload: bytes) -> None:
        """Every payload has a form for every dialect, and the text form is text."""
        message = Message(payload, content)
        self.assertIsInstance(toBytes(message), bytes)
        self.assertIsInstance(toMessagePack(message), bytes)
        self.assertEqual(toText(message).encode(), toUtf8(message))


def filled(size: int, item: bytes) -> bytes:
    """An array of this packed item, of about this many bytes."""
    count = size // len(item)
    return b"\xdd" + count.to_bytes(4, "big") + item * count


class BoundTests(SynchronousTestCase):
    """JSON takes the reactor for a bounded time, beyond the bounds base64 takes its place."""

    def test_65536ValuesAreJSONOneMoreIsBase64(self) -> None:
        """65,536 values are JSON, one more is base64; small payloads of any kind are JSON."""
        most = filled(JSON_VALUES, b"\x01")
        self.assertEqual(toUtf8(raw(most)), b"[" + b",".join([b"1"] * JSON_VALUES) + b"]")
        more = filled(JSON_VALUES + 1, b"\x01")
        self.assertEqual(toUtf8(raw(more)), b64encode(more))

    def test_payloadOf1MiBIsJSONOneWithByteMoreIsBase64(self) -> None:
        """A payload of 1 MiB is JSON, one with a byte more is base64."""
        most = msgpack.packb(["x" * (JSON_BYTES - 6)])
        self.assertEqual(len(most), JSON_BYTES)
        self.assertEqual(toUtf8(raw(most)), b'["%b"]' % (b"x" * (JSON_BYTES - 6)))
        more = msgpack.packb(["x" * (JSON_BYTES - 5)])
        self.assertEqual(toUtf8(raw(more)), b64encode(more))

    def test_textWithLineBreakIsJSONStringUpTo1MiBThenBase64(self) -> None:
        """A text with a line break is a JSON string up to 1 MiB, then base64; other text is itself at every size."""
        text = b"a\n" * (JSON_BYTES // 2)
        self.assertEqual(toLine(Message(text, Content.TEXT)), b'"%b"' % text.replace(b"\n", b"\\n"))
        self.assertEqual(toLine(Message(text + b"a", Content.TEXT)), b64encode(text + b"a"))
        self.assertEqual(toLine(Message(b"a" * (JSON_BYTES + 1), Content.TEXT)), b"a" * (JSON_BYTES + 1))

    def test_reactor(self) -> None:
        """The slowest payloads of 16 MiB, and of just below the bounds, take less than a quarter of a second.

        Measured: at most 45 ms, at 16 MiB for base64 alone.
        """
        stairs = (b"\xdc\x04\x01" + b"\x01" * 1024) * 999 + b"\x90"
        keys = b"".join(b"\xcf" + (number << 44).to_bytes(8, "big") + b"\x00" for number in range(32_767))
        payloads = [
            stairs,
            b"\xde\x7f\xff" + keys,
            *(
                filled(size, item)
                for size in (JSON_VALUES, JSON_BYTES - 5, 1 << 24)
                for item in (b"\x90", b"\x80", b"\xc4\x00")
            ),
            filled(JSON_BYTES - 5, b"\xd6\xff" + bytes(4)),
            *(msgpack.packb(["\x01" * (size - 10)]) for size in (JSON_BYTES, 1 << 24)),
            *(msgpack.packb("\n" + "\x01" * (size - 10)) for size in (JSON_BYTES, 1 << 24)),
            msgpack.packb(b"\xff" * (1 << 24)),
        ]
        for payload in payloads:
            self.assertLess(processorSeconds(partial(toLine, raw(payload))), 0.25, payload[:20])
