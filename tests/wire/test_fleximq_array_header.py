"""Positional headers, and the maps that they stand for."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import BadRequest, BrokerError
from fleximq.wire.fleximq_array_header import openMapOrArrays
from fleximq.wire.fleximq_header import MessageType
from tests.wire.flexi_frames import NAMES, frame
from tests.wire.flexi_variants import STATUS_NAMES, arrayOf
from tests.wire.test_fleximq_header import VALUES, readHeader, smallest

NOTHING = [None] * 6


def envelope(header: Any, kind: str = "PUB") -> bytes:
    """Return the envelope of a frame with this header."""
    return frame(kind, 1000, header, reserved=b"r" * 16)[:-8]


def fromArray(values: list[Any]) -> Any:
    """Return the map of an envelope with this header."""
    return openMapOrArrays(envelope(values)).fields


class ArrayTests(SynchronousTestCase):
    """Field by field, with nil for what is absent."""

    def test_eachFieldHasItsPlace(self) -> None:
        """Each field has its place; nothing is nothing."""
        self.assertEqual(fromArray(NOTHING), {})
        self.assertEqual(
            fromArray([[[1000, "/p"]], ["request", "R"], "t", "Ok", ["token", "x"], [5, 30]]),
            {
                "routing": [{"client_id": 1000, "path": "/p"}],
                "reqrep": {"type": "request", "id": "R"},
                "topic": "t",
                "status": 200,
                "auth": {"type": "token", "token": "x"},
                "keepalive": {"timestamp": 5, "interval": 30},
            },
        )

    def test_routingEntriesAreByIdOrByNameWithIdOrWithout(self) -> None:
        """Routing entries are by id, or by name with an id or without."""
        entries = [[1000, "/p"], [1000, None], ["svc", "/p", 1000], ["svc", "/p", None], ["svc", "/p"], ["", "/p", 7]]
        self.assertEqual(
            fromArray([entries, *NOTHING[1:]])["routing"],
            [
                {"client_id": 1000, "path": "/p"},
                {"client_id": 1000},
                {"client_name": "svc", "path": "/p", "client_id": 1000},
                {"client_name": "svc", "path": "/p"},
                {"client_name": "svc", "path": "/p"},
                {"client_name": "", "path": "/p", "client_id": 7},
            ],
        )

    def test_statusIsNameOfItsCodeForEveryCodeOfDocument(self) -> None:
        """A status is the name of its code, for every code of the document; other names are left for the checks."""
        for code, name in STATUS_NAMES.items():
            self.assertEqual(fromArray([None, None, None, name, None, None]), {"status": code})
        self.assertEqual(fromArray([None, None, None, "Nonsense", None, None]), {"status": "Nonsense"})

    def test_credentials(self) -> None:
        """Three kinds; an unknown one is left for the checks."""
        for array, fields in (
            (["token", "t"], {"type": "token", "token": "t"}),
            (["basic", "u", "p"], {"type": "basic", "username": "u", "password": "p"}),
            (["api_key", "k"], {"type": "api_key", "api_key": "k"}),
            (["magic", "m"], ["magic", "m"]),
            ([], []),
        ):
            self.assertEqual(fromArray([None, None, None, None, array, None]), {"auth": fields})

    def test_intervalMayBeNil(self) -> None:
        """An interval may be nil."""
        self.assertEqual(fromArray([*NOTHING[:5], [5, None]]), {"keepalive": {"timestamp": 5}})

    def test_everyType(self) -> None:
        """What is right as a map is right as an array, for each type."""
        for kind in NAMES:
            raw, fields, *_ = openMapOrArrays(envelope(arrayOf(smallest(kind)), kind))
            header = readHeader(MessageType[kind], raw[26:])
            self.assertEqual(dict(header.fields), smallest(kind), kind)
            self.assertEqual(fields, smallest(kind), kind)


class EnvelopeTests(SynchronousTestCase):
    """Whole envelopes."""

    def test_arrayIsToldByItsMarker(self) -> None:
        """An array is told by its marker: every kind of array, and nothing else."""
        for marker in range(256):
            expected = 0x90 <= marker <= 0x9F or marker in (0xDC, 0xDD)
            self.assertEqual(openMapOrArrays(envelope(bytes((marker,)))).wasArray, expected, marker)
        self.assertFalse(openMapOrArrays(envelope(None)).wasArray)

    def test_headerIsWrittenAnewWithItsLength(self) -> None:
        """The header is written anew with its length; all before it stays."""
        self.assertEqual(openMapOrArrays(envelope(arrayOf({"topic": "t"}))).envelope, envelope({"topic": "t"}))

    def test_left(self) -> None:
        """What cannot be read, or has not six places, stays as it is, and is refused as no map."""
        for header in (
            b"\x96\xc0",
            b"\x91\xc1",
            [],
            NOTHING[:5],
            [*NOTHING, None],
            b"\x96" + b"\xc0" * 7,
            b"\xdd\xff\xff\xff\xff",
        ):
            raw = envelope(header)
            same, fields, error, _ = openMapOrArrays(raw)
            self.assertEqual((same, fields), (raw, {}))
            self.assertIsInstance(error, BadRequest)
            self.assertRaises(BrokerError, readHeader, MessageType.PUB, raw[26:])

    @given(st.lists(VALUES, min_size=6, max_size=6), st.sampled_from(list(MessageType)))
    def test_anyValues(self, values: list[Any], kind: MessageType) -> None:
        """Whatever stands in the places: a header, or one of the protocol's own errors."""
        try:
            readHeader(kind, openMapOrArrays(envelope(values)).envelope[26:])
        except BrokerError:
            pass

    @given(st.binary(max_size=60))
    def test_anyBytes(self, header: bytes) -> None:
        """Whatever the bytes behind an array's marker: no exception, and an envelope that begins as before."""
        raw = envelope(b"\x96" + header)
        self.assertEqual(openMapOrArrays(raw).envelope[:22], raw[:22])
