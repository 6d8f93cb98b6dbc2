"""Limits connections before authentication: how many have not joined yet, and how many and how often of an address.

A connection occupies memory and a file descriptor from the start, so it is counted when accepted. An excess connection
is closed without an answer, since its dialect is unknown. Peers on this machine are not counted by address; clients of
a proxy are by the address that it names (:mod:`fleximq.services.network.proxy_protocol`).
"""

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import InitVar, dataclass, field
from functools import partial
from typing import Any

from twisted.internet.interfaces import IAddress, IProtocolFactory, IProtocolNegotiationFactory, IReactorTime
from twisted.internet.protocol import Protocol
from twisted.logger import Logger
from twisted.protocols.policies import WrappingFactory
from zope.interface import implementer

from fleximq.config.settings import Settings
from fleximq.dialects.connection.handover import callWhenLost
from fleximq.limits import Limits
from fleximq.security.peer_address import addressKey, peerAddress
from fleximq.security.rates.rate_limits import BANNED, FLAPS, RateLimits
from fleximq.values.counted_event import CountedEvent, EventFamily

_log = Logger()

#: Counter events for connections closed at once.
TOO_MANY_WAIT = CountedEvent(EventFamily.REFUSED_CONNECTIONS, "too many connections wait to be let in")
TOO_MANY_THERE = CountedEvent(EventFamily.REFUSED_CONNECTIONS, "too many connections from one address")
TOO_MANY_NEW = CountedEvent(EventFamily.REFUSED_CONNECTIONS, "too many new connections a second from one address")
#: Seconds between two log lines about refusals, so that a flood of connections does not flood the log.
LOG_INTERVAL = 1.0

_OPTIONS = {
    TOO_MANY_WAIT: "--max-waiting",
    TOO_MANY_THERE: "--max-clients-per-address",
    TOO_MANY_NEW: "--max-connect-rate",
    FLAPS: "--max-disconnects",
    BANNED: "/broker/bans",
}


@dataclass(eq=False, repr=False)
class ConnectionLimit:
    """Counts the connections of all listeners.

    ``clients`` returns the number of joined clients; ``counted`` is called with the reason and 1 for every connection
    closed at once, which ``audit`` records. ``rates`` limit how often an address may connect, and know those that are
    flapping or banned.
    """

    _clock: IReactorTime
    limits: Limits
    _clients: Callable[[], int]
    _counted: Callable[[str, int], object]
    rates: InitVar[RateLimits | None] = None
    _audit: Callable[..., None] = lambda event, **fields: None
    #: Number of connections closed at once.
    refused = 0
    _open = 0
    _perAddress: Counter[Hashable] = field(default_factory=Counter, init=False)
    _suppressed: Counter[str] = field(default_factory=Counter, init=False)
    _quietUntil = 0.0

    def __post_init__(self, rates: RateLimits | None) -> None:
        self._rates = rates or RateLimits.of(Settings(), self._clock)
        self._leaveOne = partial(self._leave, _nothing)

    @property
    def waiting(self) -> int:
        """Number of connections that have not joined yet."""
        return max(0, self._open - self._clients())

    def limited(self, factory: IProtocolFactory, proxied: bool = False) -> IProtocolFactory:
        """Return a factory with these limits; if ``proxied``, a client's address is known at :meth:`enterFrom`."""
        return _LimitedFactory(factory, self, proxied)

    def enter(self, address: object, proxied: bool = False) -> Callable[[], None] | None:
        """Count a connection, and its address unless that is a proxy's; return a function that uncounts it, or None."""
        if self.waiting >= self.limits.waiting:
            self._refuse(TOO_MANY_WAIT, address)
            return None
        leave = _nothing if proxied else self.enterFrom(address)
        if leave is None:
            return None
        self._open += 1
        return self._leaveOne if leave is _nothing else partial(self._leave, leave)

    def _leave(self, leave: Callable[[], None]) -> None:
        self._open -= 1
        leave()

    def enterFrom(self, address: object) -> Callable[[], None] | None:
        """Count a connection by its address alone; return a function that uncounts it, None if it exceeds a limit."""
        key = addressKey(address)
        if key is None:
            return _nothing
        if self._rates.bans.waits(key):
            self._refuse(BANNED, address)
        elif self._rates.flapping.waits(key):
            self._refuse(FLAPS, address)
        elif self._perAddress[key] >= self.limits.clientsPerAddress:
            self._refuse(TOO_MANY_THERE, address)
        elif not self._rates.connects.passes(key, self._clock.seconds()):
            self._refuse(TOO_MANY_NEW, address)
        else:
            self._perAddress[key] += 1
            return partial(self._leaveFrom, key)
        return None

    def _leaveFrom(self, key: Hashable) -> None:
        self._perAddress[key] -= 1
        if not self._perAddress[key]:
            del self._perAddress[key]

    def _refuse(self, reason: CountedEvent, address: object) -> None:
        self.refused += 1
        self._counted(reason, 1)
        self._audit("refused", address=peerAddress(address), reason=reason.label)
        now = self._clock.seconds()
        if now < self._quietUntil:
            self._suppressed[reason] += 1
            return
        self._quietUntil = now + LOG_INTERVAL
        _log.warn(
            "Closing the connection from {peer}: {reason} (see {option}; {more} more since the last such line)",
            peer=peerAddress(address), reason=reason.label, option=_OPTIONS[reason],
            more=self._suppressed.pop(reason, 0),
        )  # fmt: skip


class _Closed(Protocol):
    """Closes its connection at once."""

    def makeConnection(self, transport: Any) -> None:
        transport.abortConnection() if hasattr(transport, "abortConnection") else transport.loseConnection()


@implementer(IProtocolNegotiationFactory)
class _LimitedFactory(WrappingFactory[Any]):
    """Builds the inner factory's protocols while the limits allow it."""

    noisy = False

    def __init__(self, inner: IProtocolFactory, connectionLimit: ConnectionLimit, proxied: bool) -> None:
        super().__init__(inner)
        self._limit = connectionLimit
        self._proxied = proxied

    def logPrefix(self) -> str:
        return "FlexiMQ"

    def acceptableProtocols(self) -> list[bytes]:
        """Return the protocol names of a TLS handshake (ALPN): browsers, Prometheus and curl need one they offer."""
        return [b"http/1.1"]

    def buildProtocol(self, addr: IAddress | None) -> Any:
        """Build a protocol whose end is reported to the limit, or one that closes at once."""
        leave = self._limit.enter(addr, self._proxied)
        if leave is None:
            return _Closed()
        protocol: Any = self.wrappedFactory.buildProtocol(addr)
        if protocol is None:
            leave()
            return None
        callWhenLost(protocol, leave)
        return protocol


def _nothing() -> None:
    """Do nothing for an address that is not counted."""
