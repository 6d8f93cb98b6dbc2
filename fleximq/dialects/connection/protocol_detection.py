"""Detects the dialect of a connection from its first bytes (docs/reference/dialects.rst, "One port for all").

:func:`decide` is the rule; plug-ins may claim beginnings that it leaves free.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from twisted.internet.interfaces import IAddress, IProtocolFactory
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure

from fleximq.broker.deadlines import Clock, Deadlines
from fleximq.dialects.connection.handover import Handover, HandoverFactory, isPlain
from fleximq.security.peer_address import peerAddress
from fleximq.values.counted_event import CountedEvent, EventFamily
from fleximq.values.log_limit import LogLimits

_log = Logger()

#: An upper-case word followed by a space is HTTP if it is one of these methods.
HTTP_METHODS = frozenset({b"CONNECT", b"DELETE", b"GET", b"HEAD", b"OPTIONS", b"PATCH", b"POST", b"PUT", b"TRACE"})
#: A longer upper-case word is always MiniMQ.
LONGEST_WORD = 16

#: The longest beginning that a plug-in may claim, in bytes.
LONGEST_CLAIM = 16

_WORD = re.compile(rb"[A-Z]*")
#: The first byte of a TLS handshake.
_TLS = b"\x16"
_ENDS = frozenset(b": \r\n")


class Decision(StrEnum):
    """The result of detection: the key of a factory. Dialects of plug-ins add their own keys."""

    UNDECIDED = ""
    FLEXIMQ = "fleximq"
    BLIPMQ = "blipmq"
    MINIMQ = "minimq"
    HTTP = "http"
    NONE = "none"


def decide(first: bytes, allowed: frozenset[str], claims: Mapping[bytes, str] = MappingProxyType({})) -> str:
    """Return which of the allowed dialects, or ``"http"``, a connection with these first bytes speaks.

    For a prefix the result is either the same or undecided. A single allowed stream dialect receives everything, to
    answer errors itself, except HTTP and TLS: a web page can make a browser send either, with lines of its choice.

    :param claims: beginnings of further dialects, none a prefix of another; see :func:`mayBeClaimed`.
    """
    decision = _recognised(first)
    if decision is Decision.NONE:
        decision = _claimed(first, claims)
    streams = allowed - {Decision.HTTP}
    if decision == Decision.UNDECIDED:
        if len(streams) == 1 and first and not any(method.startswith(first) for method in HTTP_METHODS):
            return next(iter(streams))
        return decision
    if decision in allowed:
        return decision
    foreign = decision == Decision.HTTP or first[:1] == _TLS
    return next(iter(streams)) if len(streams) == 1 and not foreign else Decision.NONE


def mayBeClaimed(beginning: bytes) -> bool:
    """Return whether a plug-in may claim this beginning: neither the broker's own dialects nor HTTP can start so."""
    return len(beginning) <= LONGEST_CLAIM and _recognised(beginning) is Decision.NONE


def _claimed(first: bytes, claims: Mapping[bytes, str]) -> str:
    for beginning, name in claims.items():
        if first.startswith(beginning):
            return name
        if beginning.startswith(first):
            return Decision.UNDECIDED
    return Decision.NONE


def _recognised(first: bytes) -> str:
    if first[:1] == b"\x01":
        return Decision.FLEXIMQ
    if first[:1] == b"\x00":
        return Decision.BLIPMQ
    found = _WORD.match(first, 0, LONGEST_WORD + 1)
    word = found[0] if found else b""
    if len(word) > LONGEST_WORD:
        return Decision.MINIMQ
    if len(word) == len(first):
        return Decision.UNDECIDED
    if not word or first[len(word)] not in _ENDS:
        return Decision.NONE
    isHttp = word in HTTP_METHODS and first[len(word)] == ord(" ")
    return Decision.HTTP if isHttp else Decision.MINIMQ


class SniffingProtocol(Handover):
    """Reads the first bytes until the dialect is known; closes connections with unknown bytes or none."""

    factory: "SniffingFactory"

    def __init__(self, address: IAddress | None) -> None:
        self._address = address
        self._first = b""
        self._undecided = True

    def connectionMade(self) -> None:
        """Read the first bytes, which most clients have sent by now; if they have not, start the handshake deadline."""
        self.connectedAt = self.factory.clock.seconds()
        transport: Any = self.transport
        if isPlain(transport):
            try:
                transport.doRead()  # the reactor reads again, and meets the end of the input or an error itself
            except Exception:
                _log.failure("the first read of a connection could not be processed")
                transport.abortConnection()
        if self._undecided:
            self._timer = self.factory.clock.callLater(self.factory.deadline, self._tooSlow)

    def dataReceived(self, data: bytes) -> None:
        """Add bytes and decide. At most one word is buffered; bytes after the decision to close are dropped."""
        if not self._undecided:
            return
        self._first += data
        decision = decide(self._first, self.factory.allowed, self.factory.claims)
        if decision == Decision.UNDECIDED:
            return
        self._stopClock()
        if decision == Decision.NONE:
            self._refuse("no dialect begins with these bytes", first=self._first[0])
            return
        first, self._first = self._first, b""
        factory: Any = self.factory.factories[decision]
        self.handOver(factory.buildProtocol(self._address), first)

    def readConnectionLost(self) -> None:
        """Close a connection whose input ended before its dialect was known."""
        self._stopClock()
        if self._first:
            self._refuse("closed before its dialect was known", first=self._first[0])
        else:
            self._endAll()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Stop the deadline. A connection without any byte is a health check and is not logged above debug."""
        if self._undecided:
            self._stopClock()
            more = self.factory.logLimits["left early"].ending(self.factory.clock.seconds())
            if more is not None:
                _log.debug("{peer} left before its dialect was known{more}", peer=peerAddress(self._peer()), more=more)

    def _stopClock(self) -> None:
        self._undecided = False
        super()._stopClock()

    def _tooSlow(self) -> None:
        self._stopClock()
        self._refuse("said too little before the handshake deadline", first=self._first[0] if self._first else None)

    def _refuse(self, reason: str, first: int | None) -> None:
        self.factory.counted(CountedEvent(EventFamily.REFUSED_CONNECTIONS, reason), 1)
        more = self.factory.logLimits[reason].ending(self.factory.clock.seconds())
        if more is not None:
            _log.warn(
                "Closing the connection from {peer}: {reason} (first byte {first}){more}",
                peer=peerAddress(self._peer()),
                reason=reason,
                first="none" if first is None else f"0x{first:02x}",
                more=more,
            )
        self._endAll()


@dataclass(eq=False, repr=False)
class SniffingFactory(HandoverFactory):
    """Builds the protocols of a port that several dialects share, without ``http`` no HTTP and WebSockets.

    The dialect must be known within ``deadline`` seconds. ``counted`` is called with the reason and 1 for every refused
    connection. ``claims`` are the beginnings of plug-ins' dialects.
    """

    streams: Mapping[str, IProtocolFactory]
    http: IProtocolFactory | None
    clock: Clock | Deadlines
    deadline: float
    counted: Callable[[str, int], object] = lambda event, number: None
    claims: Mapping[bytes, str] = field(default_factory=dict)
    logLimits: LogLimits = field(default_factory=LogLimits)

    def __post_init__(self) -> None:
        """Collect the factories of all dialects."""
        self.factories = dict(self.streams)
        if self.http is not None:
            self.factories[Decision.HTTP] = self.http
        super().__init__(self.factories.values())
        self.allowed = frozenset(self.factories)

    def buildProtocol(self, addr: IAddress | None) -> SniffingProtocol:
        """Return a protocol that detects the dialect of a new connection."""
        protocol = SniffingProtocol(addr)
        protocol.factory = self
        return protocol
