"""One port for all dialects: the first bytes of a connection say which one it speaks.

docs/dialects.rst, "One port". :func:`decide` is the rule, in which dialects of plug-ins may claim beginnings that it
leaves free; :class:`SniffingProtocol` feeds it until it knows, hands
the connection with all its bytes to that dialect's protocol and is out of the way from then on.
"""

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from twisted.internet.interfaces import IAddress, IProtocolFactory, IReactorTime
from twisted.internet.protocol import Factory, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure

from fleximq.dialects.connection.handover import Handover
from fleximq.security.peer_address import peerAddress
from fleximq.values.counted_event import CountedEvent, EventFamily

_log = Logger("fleximq.dialects.sniffing")

#: Methods that make a word followed by a space the begin of HTTP.
HTTP_METHODS = frozenset({b"CONNECT", b"DELETE", b"GET", b"HEAD", b"OPTIONS", b"PATCH", b"POST", b"PUT", b"TRACE"})
#: More letters than this are a word of MiniMQ, however it goes on.
LONGEST_WORD = 16

#: No plug-in may claim longer beginnings.
LONGEST_CLAIM = 16

_WORD = re.compile(rb"[A-Z]*")
_ENDS = frozenset(b": \r\n")


class Decision(StrEnum):
    """What the first bytes say: the key of the factory that takes over. Dialects of plug-ins have keys beside these."""

    UNDECIDED = ""
    FLEXIMQ = "fleximq"
    BLIPMQ = "blipmq"
    MINIMQ = "minimq"
    HTTP = "http"
    NONE = "none"


def decide(first: bytes, allowed: frozenset[str], claims: Mapping[bytes, str] = MappingProxyType({})) -> str:
    """Say which of the allowed dialects begins with these bytes.

    However the bytes were cut, the answer is the same: a prefix of what is decided is undecided or decided alike.
    Where only one stream dialect is allowed it is given all that is not HTTP, so that it answers errors itself.

    :param allowed: names of dialects, and ``"http"`` if HTTP is served.
    :param claims: beginnings of further dialects, none of which begins with another; see :func:`mayBeClaimed`.
    """
    decision = _recognised(first)
    if decision is Decision.NONE:
        decision = _claimed(first, claims)
    streams = allowed - {Decision.HTTP}
    if decision == Decision.UNDECIDED:
        if len(streams) == 1 and first and not _mayBecomeHttp(first, allowed):
            return next(iter(streams))
        return decision
    if decision in allowed:
        return decision
    return next(iter(streams)) if len(streams) == 1 else Decision.NONE


def mayBeClaimed(beginning: bytes) -> bool:
    """Tell whether a plug-in may claim this beginning: the broker's own dialects and HTTP cannot begin so."""
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


def _mayBecomeHttp(first: bytes, allowed: frozenset[str]) -> bool:
    return Decision.HTTP in allowed and any(method.startswith(first) for method in HTTP_METHODS)


class SniffingProtocol(Handover):
    """Waits for the bytes that tell the dialects apart; closes a connection that speaks none, or says nothing."""

    factory: "SniffingFactory"

    def __init__(self, address: IAddress | None) -> None:
        self._address = address
        self._first = b""

    def connectionMade(self) -> None:
        """Start the clock."""
        self.connectedAt = self.factory.clock.seconds()
        self._timer = self.factory.clock.callLater(self.factory.deadline, self._tooSlow)

    def dataReceived(self, data: bytes) -> None:
        """Look at what came so far. Never more than a word is kept, whatever is fed after the end is dropped."""
        if self._timer is None:
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
        self.handOver(self.factory.protocolFor(decision, self._address), first)

    def readConnectionLost(self) -> None:
        """Close a connection whose end came before its dialect was known."""
        self._stopClock()
        if self._first:
            self._refuse("closed before its dialect was known", first=self._first[0])
        else:
            self._endAll()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Forget the connection. One that never said a word is a health check, and no news."""
        if self._timer is not None:
            self._stopClock()
            _log.debug("{peer} left before its dialect was known", peer=peerAddress(self._peer()))

    def _tooSlow(self) -> None:
        self._timer = None
        self._refuse("said too little before the handshake deadline", first=self._first[0] if self._first else None)

    def _refuse(self, reason: str, first: int | None) -> None:
        self.factory.counted(CountedEvent(EventFamily.REFUSED_CONNECTIONS, reason), 1)
        _log.warn(
            "Closing the connection from {peer}: {reason} (first byte {first})",
            peer=peerAddress(self._peer()),
            reason=reason,
            first="none" if first is None else f"0x{first:02x}",
        )
        self._endAll()


class SniffingFactory(Factory[SniffingProtocol]):
    """Makes the protocols of a port that several dialects share.

    :param streams: the factories of the stream dialects served here, by name.
    :param http: takes HTTP and WebSocket connections, None where they are not served.
    :param clock: the reactor's time.
    :param deadline: how many seconds a connection may take to show its dialect.
    :param counted: called with the reason and 1 for every connection that is refused.
    :param claims: which beginnings belong to the streams of plug-ins.
    """

    noisy = False

    def __init__(
        self,
        streams: Mapping[str, IProtocolFactory],
        http: IProtocolFactory | None,
        clock: IReactorTime,
        deadline: float,
        counted: Callable[[str, int], object] = lambda event, number: None,
        claims: Mapping[bytes, str] = MappingProxyType({}),
    ) -> None:
        self._factories = dict(streams)
        if http is not None:
            self._factories[Decision.HTTP] = http
        self.allowed = frozenset(self._factories)
        self.clock = clock
        self.deadline = deadline
        self.counted = counted
        self.claims = claims

    def buildProtocol(self, addr: IAddress | None) -> SniffingProtocol:
        """Return a protocol that finds out what the peer at this address speaks."""
        protocol = SniffingProtocol(addr)
        protocol.factory = self
        return protocol

    def protocolFor(self, decision: str, address: IAddress | None) -> Any:
        """Return the protocol of the dialect that was found, None if its factory wants no more connections."""
        factory: Any = self._factories[decision]
        return factory.buildProtocol(address)

    def startFactory(self) -> None:
        """Start the dialects' factories with the first port."""
        for factory in self._factories.values():
            factory.doStart()

    def stopFactory(self) -> None:
        """Stop the dialects' factories with the last port."""
        for factory in self._factories.values():
            factory.doStop()
