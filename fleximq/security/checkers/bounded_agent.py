"""HTTP requests to services of an operator, whose answers have a size limit, their header fields included.

Twisted's agent limits a line, but neither the number of fields nor that of interim answers, and would collect them
until the deadline.
"""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS
from twisted.internet.interfaces import IProtocolFactory, IStreamClientEndpoint
from twisted.internet.protocol import connectionDone
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.python.failure import Failure
from twisted.web.client import URI, Agent, BrowserLikePolicyForHTTPS
from twisted.web.iweb import IAgentEndpointFactory
from zope.interface import implementer

from fleximq.errors import SettingError
from fleximq.limits import KIBIBYTE
from fleximq.security.checkers.claims import WrongClaim

#: Maximum size of an answer's body, and of all bytes on its connection.
MAX_ANSWER_BYTES, MAX_RECEIVED_BYTES = 64 * KIBIBYTE, 256 * KIBIBYTE

TOO_LARGE = "the answer is too large"


def agentOf(reactor: Any, timeout: float, policy: Any) -> Agent:
    """Return an agent that connects in so many seconds; ``policy`` None: trust as browsers do."""
    endpoints = _Endpoints(reactor, timeout, policy or BrowserLikePolicyForHTTPS())
    agent: Agent = Agent.usingEndpointFactory(reactor, endpoints)
    return agent


def withoutQuery(url: str) -> str:
    """Return a URL as it may be shown: its query may hold a key."""
    return url.partition("?")[0]


def reasonOf(error: BaseException | None) -> str:
    """Return the reason why a request failed: a sentence of ours, or the name of the error."""
    reasons = (each.value for each in getattr(error, "reasons", ()))
    found = next((each for each in reasons if isinstance(each, WrongClaim)), error)
    return str(found) if isinstance(found, WrongClaim | SettingError) else type(found).__name__


@implementer(IAgentEndpointFactory)
class _Endpoints:
    """Connects as Twisted's agent does by itself, with bounded connections."""

    def __init__(self, reactor: Any, timeout: float, policy: Any) -> None:
        self._reactor, self._timeout, self._policy = reactor, timeout, policy

    def endpointForURI(self, uri: URI) -> "_BoundedEndpoint":
        host = uri.host.decode("ascii")
        endpoint: Any = HostnameEndpoint(self._reactor, host, uri.port, timeout=self._timeout)
        if uri.scheme == b"https":
            endpoint = wrapClientTLS(self._policy.creatorForNetloc(uri.host, uri.port), endpoint)
        return _BoundedEndpoint(endpoint)


@implementer(IStreamClientEndpoint)
class _BoundedEndpoint:
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[Any]:
        """Connect; fires with the factory's protocol."""
        connected: Deferred[Any] = self._inner.connect(_BoundedFactory(protocolFactory))
        return connected.addCallback(lambda wrapper: wrapper.wrappedProtocol)


class _BoundedConnection(ProtocolWrapper):
    _left = MAX_RECEIVED_BYTES

    def dataReceived(self, data: bytes) -> None:
        """Pass a read on within the limit; abort beyond it."""
        self._left -= len(data)
        if self._left >= 0:
            super().dataReceived(data)
        else:
            transport: Any = self.transport
            transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Report the end, with the true reason."""
        super().connectionLost(Failure(WrongClaim(TOO_LARGE)) if self._left < 0 else reason)


class _BoundedFactory(WrappingFactory[Any]):
    protocol = _BoundedConnection
    noisy = False
