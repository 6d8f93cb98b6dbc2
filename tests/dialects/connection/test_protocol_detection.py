"""The first bytes of a connection and the dialect they choose."""

from collections import Counter
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from fleximq.dialects.connection.protocol_detection import (
    HTTP_METHODS,
    LONGEST_CLAIM,
    LONGEST_WORD,
    Decision,
    SniffingFactory,
    SniffingProtocol,
    decide,
    mayBeClaimed,
)
from tests.log_observer import observeLog

ALL = frozenset({"fleximq", "blipmq", "minimq", "http"})
FLEXIMQ_ONLY = frozenset({"fleximq", "http"})

#: First bytes, what they are on a port of all dialects, and after how many of them that is known.
TABLE: list[tuple[bytes, Decision, int]] = [
    (b"\x01\x00\x00\x00\x00\x00", Decision.FLEXIMQ, 1),
    (b"\x00\x00\x00\x0b\x01", Decision.BLIPMQ, 1),
    (b"PRODUCE:1:::t:::x", Decision.MINIMQ, 8),
    (b"PING:\n", Decision.MINIMQ, 5),
    (b"PING\n", Decision.MINIMQ, 5),
    (b"PING\r\n", Decision.MINIMQ, 5),
    (b"FOO bar\n", Decision.MINIMQ, 4),
    (b"P:", Decision.MINIMQ, 2),
    (b"GETTING:", Decision.MINIMQ, 8),
    (b"GET:x", Decision.MINIMQ, 4),
    (b"GET\r\n", Decision.MINIMQ, 4),
    (b"A" * 17, Decision.MINIMQ, 17),
    (b"GET / HTTP/1.1\r\n", Decision.HTTP, 4),
    (b"Hello", Decision.NONE, 2),
    (b"PRODUCe:", Decision.NONE, 7),
    (b"PING\t", Decision.NONE, 5),
    (b"GET/", Decision.NONE, 4),
    (b"A" * 16 + b"a", Decision.NONE, 17),
    (b"ping:\n", Decision.NONE, 1),
    (b"\x16\x03\x01\x02\x00", Decision.NONE, 1),
    (b"\xde\xad\xbe\xef", Decision.NONE, 1),
    (b"\x02\x00", Decision.NONE, 1),
    (b"\n", Decision.NONE, 1),
    (b":", Decision.NONE, 1),
    (b"[", Decision.NONE, 1),
    (b"@", Decision.NONE, 1),
    (b"\xc3\x84RGER:", Decision.NONE, 1),
]


class DecideTests(SynchronousTestCase):
    """The rule by itself."""

    def test_table(self) -> None:
        """Every beginning is undecided until the byte that decides it, and stays decided."""
        for first, decision, known in TABLE:
            for length in range(len(first) + 1):
                expected = decision if length >= known else Decision.UNDECIDED
                self.assertEqual(decide(first[:length], ALL), expected, first[:length])

    def test_methods(self) -> None:
        """Every HTTP method with a space is HTTP, and MiniMQ with a colon."""
        for method in HTTP_METHODS:
            self.assertEqual(decide(method, ALL), Decision.UNDECIDED)
            self.assertEqual(decide(method + b" ", ALL), Decision.HTTP)
            self.assertEqual(decide(method + b":", ALL), Decision.MINIMQ)

    def test_notServed(self) -> None:
        """What is not served where several are is as good as unknown."""
        for dialect, first in (("fleximq", b"\x01"), ("blipmq", b"\x00"), ("minimq", b"PING:"), ("http", b"GET ")):
            self.assertEqual(decide(first, ALL), Decision(dialect))
            self.assertEqual(decide(first, ALL - {dialect}), Decision.NONE, first)

    def test_oneStreamDialect(self) -> None:
        """Where there is one stream dialect it takes all that is not HTTP, so that it can answer it."""
        for first in (
            b"\x01",
            b"\x00",
            b"\x02",
            b"PING:",
            b"Hello",
            b"GX",
            b"GETX",
            b"GET:",
            b"X",
            b"get ",
        ):
            self.assertEqual(decide(first, FLEXIMQ_ONLY), Decision.FLEXIMQ, first)
        for method in HTTP_METHODS:
            self.assertEqual(decide(method + b" /", FLEXIMQ_ONLY), Decision.HTTP)
            for length in range(len(method) + 1):
                self.assertEqual(decide(method[:length], FLEXIMQ_ONLY), Decision.UNDECIDED)

    def test_browsers(self) -> None:
        """What a browser can be made to send is closed where a stream dialect is alone, HTTP as well as TLS."""
        for name in ("fleximq", "blipmq", "minimq", "plus"):
            alone = frozenset({name})
            for method in HTTP_METHODS:
                for length in range(len(method) + 1):
                    self.assertEqual(decide(method[:length], alone), Decision.UNDECIDED)
                self.assertEqual(decide(method + b" ", alone), Decision.NONE)
                self.assertEqual(decide(method + b":", alone), name)
            for served in (alone, alone | {"http"}):
                self.assertEqual(decide(b"\x16", served), Decision.NONE)
        self.assertEqual(decide(b"\x16", frozenset({"plus"}), {b"\x16": "plus"}), "plus")

    @given(st.binary(max_size=24) | st.text(alphabet="GETPOSX: \r\na", max_size=24).map(str.encode))
    def test_prefixes(self, data: bytes) -> None:
        """However bytes are cut, they are decided once and in the same way."""
        for allowed in (ALL, FLEXIMQ_ONLY, frozenset({"minimq"})):
            decisions = [decide(data[:length], allowed) for length in range(len(data) + 1)]
            seen = set(decisions) - {Decision.UNDECIDED}
            self.assertLessEqual(len(seen), 1)
            undecided = [each is Decision.UNDECIDED for each in decisions]
            self.assertEqual(undecided, sorted(undecided, reverse=True))
            if len(data) > LONGEST_WORD:
                self.assertNotEqual(decisions[-1], Decision.UNDECIDED)


class Recorder(Protocol):
    """Keeps what it receives."""

    def __init__(self) -> None:
        self.received = b""
        self.lost = 0

    def dataReceived(self, data: bytes) -> None:
        self.received += data

    def connectionLost(self, reason: object = None) -> None:
        self.lost += 1


class RecorderFactory(Factory[Recorder]):
    """Keeps its protocols and the addresses they were made for."""

    noisy = False

    def __init__(self) -> None:
        self.built: list[Recorder] = []
        self.addresses: list[Any] = []

    def buildProtocol(self, addr: Any) -> Recorder:
        self.addresses.append(addr)
        self.built.append(Recorder())
        return self.built[-1]


class SniffingTests(SynchronousTestCase):
    """Connections on a port of all dialects."""

    def setUp(self) -> None:
        """A port whose dialects only record."""
        self.dialects = {name: RecorderFactory() for name in ("fleximq", "blipmq", "minimq", "http")}
        self.clock = Clock()
        self.counts: Counter[str] = Counter()
        streams = {name: self.dialects[name] for name in ("fleximq", "blipmq", "minimq")}
        self.factory = SniffingFactory(
            streams, self.dialects["http"], self.clock, 10.0, lambda event, n: self.counts.update({event: n})
        )

    def connect(self) -> tuple[SniffingProtocol, StringTransport]:
        """Return a new connection, and its transport."""
        protocol, transport = self.factory.buildProtocol("here"), StringTransport()  # type: ignore[arg-type]
        protocol.makeConnection(transport)
        return protocol, transport

    def reached(self) -> dict[str, bytes]:
        """Return what the dialects received."""
        return {name: each.built[0].received for name, each in self.dialects.items() if each.built}

    def test_interface(self) -> None:
        """It takes what a half-closed connection says."""
        verifyObject(IHalfCloseableProtocol, self.connect()[0])

    def test_everySplit(self) -> None:
        """Each beginning reaches its dialect whole, wherever it is cut."""
        for first, decision, _ in TABLE:
            if decision is Decision.NONE:
                continue
            for cut in range(len(first) + 1):
                self.setUp()
                protocol, transport = self.connect()
                for piece in (first[:cut], first[cut:], b" and more"):
                    protocol.dataReceived(piece)
                self.assertEqual(self.reached(), {decision.value: first + b" and more"}, (first, cut))
                self.assertFalse(transport.disconnecting)

    def test_byteByByte(self) -> None:
        """Single bytes do as well."""
        for first, decision, _ in TABLE:
            self.setUp()
            protocol, transport = self.connect()
            for byte in first:
                protocol.dataReceived(bytes([byte]))
            expected = {} if decision is Decision.NONE else {decision.value: first}
            self.assertEqual((self.reached(), transport.value()), (expected, b""))
            self.assertEqual(transport.disconnecting, decision is Decision.NONE)

    def test_unknown(self) -> None:
        """What no dialect begins with is closed without an answer, counted, and logged without the bytes."""
        with self.capturedLog() as events:
            protocol, transport = self.connect()
            protocol.dataReceived(b"\x16\x03\x01 secret")
            protocol.dataReceived(b"\x01 too late")
        self.assertEqual((transport.value(), transport.disconnecting, self.reached()), (b"", True, {}))
        self.assertEqual(self.counts, {"refused: no dialect begins with these bytes": 1})
        self.assertIn("(first byte 0x16)", events[0])
        self.assertNotIn("secret", events[0])

    def test_silent(self) -> None:
        """A connection that says nothing is closed at the deadline, not before."""
        protocol, transport = self.connect()
        self.clock.advance(9.99)
        self.assertFalse(transport.disconnecting)
        with self.capturedLog() as events:
            self.clock.advance(0.01)
        self.assertTrue(transport.disconnecting)
        self.assertEqual(self.counts, {"refused: said too little before the handshake deadline": 1})
        self.assertIn("(first byte none)", events[0])
        protocol.dataReceived(b"\x01")
        self.assertEqual(self.reached(), {})

    def test_slow(self) -> None:
        """One letter a second does not put the deadline off."""
        protocol, transport = self.connect()
        with self.capturedLog() as events:
            for _ in range(10):
                protocol.dataReceived(b"P")
                self.clock.advance(1)
        self.assertTrue(transport.disconnecting)
        self.assertIn("(first byte 0x50)", events[0])

    def test_fewLines(self) -> None:
        """Ten connections a second are logged; later the log says how many were left out."""
        with self.capturedLog() as events:
            for _ in range(100):
                self.connect()[0].dataReceived(b"\xff")
            self.assertEqual(len(events), 10)
            self.clock.advance(1)
            self.connect()[0].dataReceived(b"\xff")
        self.assertTrue(events[10].endswith(" (90 more lines left out)"))

    def test_deadlineEnds(self) -> None:
        """Once the dialect is known, its own deadline counts, from the time of the connection."""
        protocol, transport = self.connect()
        self.clock.advance(3)
        protocol.dataReceived(b"\x01")
        self.assertEqual((protocol.connectedAt, self.clock.getDelayedCalls()), (0.0, []))

    def test_healthCheck(self) -> None:
        """A connection that is closed unused is neither counted nor warned of."""
        with self.capturedLog() as events:
            protocol, _ = self.connect()
            protocol.readConnectionLost()
            protocol.connectionLost()
            self.connect()[0].connectionLost()
        self.assertEqual((self.counts, events, self.clock.getDelayedCalls()), ({}, [], []))

    def test_flood(self) -> None:
        """A hundred at once cause ten lines."""
        lines: list[Any] = []
        observeLog(self, lines.append)
        for _ in range(100):
            self.connect()[0].connectionLost()
        self.assertEqual(len([each for each in lines if "left before" in each["log_format"]]), 10)

    def test_endOfInput(self) -> None:
        """An end in the middle of a word closes, counted."""
        protocol, transport = self.connect()
        protocol.dataReceived(b"PIN")
        with self.capturedLog():
            protocol.readConnectionLost()
        self.assertTrue(transport.disconnecting)
        self.assertEqual(self.counts, {"refused: closed before its dialect was known": 1})

    def test_readsNoMore(self) -> None:
        """A dialect learns that the peer had closed its own input before."""
        told: list[int] = []

        @implementer(IHalfCloseableProtocol)
        class Half(Recorder):
            def readConnectionLost(self) -> None: ...

            def writeConnectionLost(self) -> None:
                told.append(len(self.received))

        self.patch(RecorderFactory, "buildProtocol", lambda factory, addr: Half())
        protocol, _ = self.connect()
        protocol.writeConnectionLost()
        protocol.dataReceived(b"PING:\n")
        self.assertEqual(told, [0])

    def test_address(self) -> None:
        """The dialect's factory is asked with the peer's address."""
        self.connect()[0].dataReceived(b"PING:\n")
        self.assertEqual(self.dialects["minimq"].addresses, ["here"])

    def test_lost(self) -> None:
        """The end of the connection reaches the dialect."""
        protocol, _ = self.connect()
        protocol.dataReceived(b"\x00")
        protocol.connectionLost()
        self.assertEqual(self.dialects["blipmq"].built[0].lost, 1)

    def test_startAndStop(self) -> None:
        """The dialects' factories run as long as a port of this one does."""
        self.factory.doStart()
        self.factory.doStart()
        self.assertEqual([each.numPorts for each in self.dialects.values()], [1] * 4)
        self.factory.doStop()
        self.factory.doStop()
        self.assertEqual([each.numPorts for each in self.dialects.values()], [0] * 4)

    def capturedLog(self) -> "Captured":
        """Return a context in which the log's warnings are collected as text."""
        return Captured()


class Captured:
    """Collects what is logged as a warning or worse."""

    def __enter__(self) -> list[str]:
        from twisted.logger import ILogObserver, LogLevel, formatEvent, globalLogPublisher

        self.texts: list[str] = []

        def observe(event: Any) -> None:
            if event.get("log_level", LogLevel.debug) >= LogLevel.warn:
                self.texts.append(formatEvent(event))

        self._observer = cast(ILogObserver, observe)
        globalLogPublisher.addObserver(self._observer)
        return self.texts

    def __exit__(self, *ignored: object) -> None:
        from twisted.logger import globalLogPublisher

        globalLogPublisher.removeObserver(self._observer)


class ClaimTests(SynchronousTestCase):
    """Beginnings that plug-ins claim."""

    claims = {b"+": "plus", b"Hello": "hello", b"\x02\x00": "two"}
    all = ALL | {"plus", "hello", "two"}

    def test_table(self) -> None:
        """A claim is undecided until its last byte, and whatever parts from it is nobody's."""
        for first, decision, known in (
            (b"+topic", "plus", 1),
            (b"Hello there", "hello", 5),
            (b"\x02\x00\x00", "two", 2),
            (b"Help", Decision.NONE, 4),
            (b"\x02\x01", Decision.NONE, 2),
            *TABLE[:13],
        ):
            for length in range(len(first) + 1):
                expected = decision if length >= known else Decision.UNDECIDED
                self.assertEqual(decide(first[:length], self.all, self.claims), expected, first[:length])

    def test_oneStreamDialect(self) -> None:
        """Where there is only the plug-in it takes all that is not HTTP."""
        for first in (b"+", b"x", b"\x01", b"HX"):
            self.assertEqual(decide(first, frozenset({"plus", "http"}), {b"+": "plus"}), "plus")
        self.assertEqual(decide(b"GET ", frozenset({"plus", "http"}), {b"+": "plus"}), Decision.HTTP)

    def test_mayBeClaimed(self) -> None:
        """What an own dialect can begin with, or may still become, is not free; nor is too much."""
        for beginning in (b"+", b"He", b"\x02", b"\xff" * LONGEST_CLAIM):
            self.assertTrue(mayBeClaimed(beginning), beginning)
        for beginning in (b"", b"\x00", b"\x01", b"A", b"GET ", b"PING:", b"\xff" * (LONGEST_CLAIM + 1)):
            self.assertFalse(mayBeClaimed(beginning), beginning)

    @given(st.binary(max_size=8) | st.text(alphabet="+Helo\x02\x00A", max_size=8).map(str.encode))
    def test_prefixes(self, data: bytes) -> None:
        """However bytes are cut, they are decided once and in the same way, claims included."""
        decisions = [decide(data[:length], self.all, self.claims) for length in range(len(data) + 1)]
        self.assertLessEqual(len(set(decisions) - {Decision.UNDECIDED}), 1)
        undecided = [each == Decision.UNDECIDED for each in decisions]
        self.assertEqual(undecided, sorted(undecided, reverse=True))
