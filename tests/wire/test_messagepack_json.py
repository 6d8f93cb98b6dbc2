"""MessagePack as JSON: what JSON cannot say, and values made to hurt."""

import json
import math
import struct
from base64 import b64encode
from typing import Any

import msgpack
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.values.nesting import NESTING
from fleximq.wire.messagepack_json import toJson
from tests.processor_time import Measured, processorSeconds

INTEGERS = [0, 1, 127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**64 - 1]
INTEGERS += [-1, -32, -33, -128, -129, -32768, -32769, -(2**31), -(2**31) - 1, -(2**63)]

plainValues = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=40),
    lambda values: st.lists(values, max_size=20) | st.dictionaries(st.text(max_size=5), values, max_size=20),
    max_leaves=40,
)


def timestamp(content: bytes) -> str:
    """The JSON of an extension of the timestamps' kind."""
    return toJson(b"\xc7" + bytes([len(content), 0xFF]) + content).decode()


def array(item: bytes, count: int) -> bytes:
    """An array of this packed item so many times."""
    return b"\xdd" + count.to_bytes(4, "big") + item * count


def collidingKeys(count: int) -> bytes:
    """A map whose keys are integers with one and the same hash in Python, as far as there are such of 64 bits.

    Hashes are modulo 2**61 - 1; the others are equal in the bits that dictionaries of this size look at.
    """
    step = 1 << 44
    keys = b"".join(b"\xcf" + (number * step).to_bytes(8, "big") + b"\x00" for number in range(count))
    return b"\xdf" + count.to_bytes(4, "big") + keys


class CostTests(SynchronousTestCase):
    """Hostile values cost no more for each byte than others; bounds are ten times what was measured."""

    def seconds(self, packed: bytes) -> float:
        """The processor time of one conversion, the least of three."""
        return processorSeconds(lambda: toJson(packed))

    def test_65536ValuesOfSlowestKindsTakeLessThan025S(self) -> None:
        """65,536 values of the slowest kinds take less than 0.25 s."""
        for item in (
            b"\x90",
            b"\x80",
            b"\xc4\x00",
            b"\xca\x7f\xc0\x00\x00",
            b"\xcb?\xb9\x99\x99\x99\x99\x99\x9a",
            b"\x81\x01\x02",
        ):
            self.assertLess(self.seconds(array(item, 1 << 16)), 0.25)

    def test_collidingKeys(self) -> None:
        """Integer keys that Python would put into one place cost as much as others."""
        self.assertLess(self.seconds(collidingKeys(32_768)), 0.25)

    def test_keysThatAreContainers(self) -> None:
        """A key's cost does not depend on the depth of its map."""
        keys = b"\xde\x40\x00" + b"\x90\x01" * 0x4000
        self.assertLess(self.seconds(b"\x91" * 250 + keys), 0.25)


class ValueTests(SynchronousTestCase):
    """One kind of value each."""

    def becomes(self, value: Any, text: str) -> None:
        """Expect this JSON for this value."""
        self.assertEqual(toJson(msgpack.packb(value)).decode(), text)

    def test_nilAndBooleans(self) -> None:
        """Nil and the booleans."""
        self.becomes([None, True, False], "[null,true,false]")

    def test_integersOfEveryWidthKeepAllTheirDigits(self) -> None:
        """Integers of every width keep all their digits."""
        self.becomes(INTEGERS, json.dumps(INTEGERS, separators=(",", ":")))

    def test_floatsAreWrittenSoThatTheyReadBackSame(self) -> None:
        """Floats are written so that they read back the same; float 32 is the number it is as a double."""
        self.becomes([0.1, -2.0, 1e300], "[0.1,-2.0,1e300]")
        self.assertEqual(toJson(b"\xca" + struct.pack(">f", 0.5)), b"0.5")

    def test_notNumbers(self) -> None:
        """NaN and the infinities are null."""
        self.becomes([math.nan, math.inf, -math.inf], "[null,null,null]")

    def test_textStaysAsItIsButForQuotesBackslashesAndControlCharactersAt(self) -> None:
        """Text stays as it is but for quotes, backslashes and control characters, at every width of length."""
        self.becomes(["你好é😀", 'a"b\\c\n\x00'], '["你好é😀","a\\"b\\\\c\\n\\u0000"]')
        for length in (0, 31, 32, 255, 256, 65535, 65536):
            self.becomes(["x" * length], '["%s"]' % ("x" * length))

    def test_binIsBase64WithPaddingAtEveryWidthOfLengthAlsoWhereItIsText(self) -> None:
        """Bin is base64 with padding, at every width of length, also where it is text."""
        self.becomes({"k": [1, None, b"\xff\x00"]}, '{"k":[1,null,"/wA="]}')
        for length in (0, 1, 255, 256, 65535, 65536):
            content = b"x" * length
            self.becomes([content], f'["{b64encode(content).decode()}"]')

    def test_extensions(self) -> None:
        """An extension is base64 of its bytes, whatever its type, at every width of length."""
        for length in (0, 1, 2, 3, 4, 8, 16, 17, 255, 256, 65536):
            content = b"\xfe" * length
            self.becomes(msgpack.ExtType(5, content), f'"{b64encode(content).decode()}"')

    def test_arraysAndMapsOfEveryWidthOfSizeEmptyOnesAndOneInsideOther(self) -> None:
        """Arrays and maps of every width of size, empty ones and one inside the other."""
        self.becomes([[], {}, [[]], {"a": {}, "b": [{}]}], '[[],{},[[]],{"a":{},"b":[{}]}]')
        for size in (15, 16, 65535, 65536):
            self.becomes([0] * size, "[" + ",".join("0" * size) + "]")
            entries = {str(number): number for number in range(size)}
            self.becomes(entries, json.dumps(entries, separators=(",", ":")))

    def test_keysThatAreNoStringsBecomeStrings(self) -> None:
        """Keys that are no strings become strings."""
        self.becomes(
            {1: 1, -1: 0, None: 0, 1.5: 0, b"\xff": 0, msgpack.ExtType(1, b"a"): 0, "s": 0, msgpack.Timestamp(0): 0},
            '{"1":1,"-1":0,"null":0,"1.5":0,"/w==":0,"YQ==":0,"s":0,"1970-01-01T00:00:00Z":0}',
        )
        self.becomes({math.nan: 0}, '{"null":0}')
        self.assertEqual(toJson(b"\x81\xc2\x01"), b'{"false":1}')

    def test_containersAsKeys(self) -> None:
        """An array or map as a key is the string of its JSON."""
        self.assertEqual(toJson(b'\x82\x92\x01\xa1"\x02\x90\x03'), b'{"[1,\\"\\\\\\"\\"]":2,"[]":3}')
        self.assertEqual(toJson(b"\x81\x81\xa1a\x01\x02"), b'{"{\\"a\\":1}":2}')

    def test_keysTwice(self) -> None:
        """Of equal keys the last counts."""
        self.assertEqual(toJson(b"\x82\xa1a\x01\xa1a\x02"), b'{"a":2}')
        self.assertEqual(toJson(b"\x82\x01\x01\xa11\x02"), b'{"1":2}')

    @given(plainValues)
    def test_asJsonDoes(self, value: Any) -> None:
        """What JSON can say reads back as the same value."""
        self.assertEqual(json.loads(toJson(msgpack.packb(value))), value)


class TimestampTests(SynchronousTestCase):
    """Extension type -1."""

    def test_threeFormsOfTimestampAreReadAlike(self) -> None:
        """The three forms of a timestamp are read alike."""
        for moment, text in [
            (msgpack.Timestamp(0), "1970-01-01T00:00:00Z"),
            (msgpack.Timestamp(1704164645, 0), "2024-01-02T03:04:05Z"),
            (msgpack.Timestamp(1704164645, 120_000_000), "2024-01-02T03:04:05.12Z"),
            (msgpack.Timestamp(1704164645, 1), "2024-01-02T03:04:05.000000001Z"),
            (msgpack.Timestamp(-1, 999_999_999), "1969-12-31T23:59:59.999999999Z"),
        ]:
            self.assertEqual(toJson(msgpack.packb([moment])).decode(), f'["{text}"]')

    def test_years1To9999AreWrittenMomentsBeyondThemAreBase64OfTheirBytes(self) -> None:
        """The years 1 to 9999 are written, moments beyond them are base64 of their bytes."""
        for seconds, text in [(-62135596800, "0001-01-01T00:00:00Z"), (253402300799, "9999-12-31T23:59:59Z")]:
            self.assertEqual(timestamp(bytes(4) + struct.pack(">q", seconds)), f'"{text}"')
        for seconds in (-62135596801, 253402300800, 2**63 - 1, -(2**63)):
            content = bytes(4) + struct.pack(">q", seconds)
            self.assertEqual(timestamp(content), f'"{b64encode(content).decode()}"')

    def test_otherLengthsAreRefused(self) -> None:
        """Other lengths, and nanoseconds of a second or more, are refused."""
        for content in (b"", b"a", bytes(5), bytes(11), bytes(13), struct.pack(">Iq", 10**9, 0), b"\xff" * 8):
            self.assertRaises(ValueError, timestamp, content)


class RefusalTests(SynchronousTestCase):
    """What is not one good value."""

    def test_notOneValue(self) -> None:
        """Nothing, more than one value, and the byte that begins none."""
        for packed in (b"", b"\x01\x02", b"\xa1ab", b"\xc1", b"\x91\xc1"):
            self.assertRaises(ValueError, toJson, packed)

    def test_everyTruncation(self) -> None:
        """A value cut anywhere is refused."""
        value = [1, 2**40, -5, 1.5, "text", b"bin", {"a": None}, msgpack.ExtType(3, b"abc"), "x" * 300, [0] * 20]
        packed = msgpack.packb(value)
        for end in range(len(packed)):
            self.assertRaises(ValueError, toJson, packed[:end])

    def test_notUtf8(self) -> None:
        """A string that is not UTF-8, anywhere; surrogates and overlong forms included."""
        for text in (b"\xff", b"\xed\xa0\x80", b"\xc0\x80"):
            string = bytes([0xA0 | len(text)]) + text
            for packed in (string, b"\x91" + string, b"\x81" + string + b"\x01", b"\x81\x01" + string):
                self.assertRaises(ValueError, toJson, packed)

    def test_valuesMayNestSoDeepAsArraysAndAsMapsAndNoDeeper(self) -> None:
        """Values may nest so deep, as arrays and as maps, and no deeper."""
        for opening, inner, text in [
            (b"\x91", b"\x90", "[" * NESTING + "]" * NESTING),
            (b"\x81\xa1a", b"\x80", '{"a":' * (NESTING - 1) + "{}" + "}" * (NESTING - 1)),
        ]:
            self.assertEqual(toJson(opening * (NESTING - 1) + inner).decode(), text)
            for depth in (NESTING, 1100, 100_000):
                self.assertRaises(ValueError, toJson, opening * depth + inner)

    def test_keysOfKeys(self) -> None:
        """A key among the keys of a key is refused: quoting again and again would grow without measure."""
        self.assertRaises(ValueError, toJson, b"\x81\x81\x90\x01\x02")
        self.assertRaises(ValueError, toJson, b"\x81" * 100 + b"\x90" + b"\x01" * 100)

    def test_announcedSizes(self) -> None:
        """Announced sizes that never come cost the bytes that are there."""
        with Measured() as measured:
            for marker in (0xDB, 0xC6, 0xC9, 0xDD, 0xDF):
                self.assertRaises(ValueError, toJson, bytes([marker]) + b"\xff" * 4)
                self.assertRaises(ValueError, toJson, (bytes([marker]) + b"\xff" * 4) * 200_000)
        self.assertLess(measured.seconds, 5)

    def test_manyValues(self) -> None:
        """More values than allowed are refused, however they are arranged; timestamps count as eight."""
        for item, values in [(b"\x90", 1), (b"\x80", 1), (b"\x01", 1), (b"\xc7\x00\x01", 2), (b"\x91\x01", 2)]:
            packed, most = array(item, 1000), 1000 * values
            with self.assertRaises(ValueError):
                toJson(packed, most - 1)
            toJson(packed, most)
        moments = array(b"\xd7\xff" + bytes(8), 1000)
        with self.assertRaises(ValueError):
            toJson(moments, 8999)
        toJson(moments, 9000)
        self.assertRaises(ValueError, toJson, b"\xde\x03\xe8" + b"\x01\x02" * 1000, 1999)
        stairs = b"".join([b"\xdc\x00\x65" + b"\x01" * 100] * 100) + b"\x90"
        self.assertRaises(ValueError, toJson, stairs, 10_099)
        toJson(stairs, 10_100)

    @given(st.binary(max_size=60))
    def test_anyBytes(self, packed: bytes) -> None:
        """Arbitrary bytes end in JSON or in ValueError."""
        try:
            text = toJson(packed)
        except ValueError:
            return
        json.loads(text)
