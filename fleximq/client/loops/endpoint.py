"""Clients on connections that Twisted's own classes make: endpoints, factories and services.

These clients have an :class:`EndpointUrl` instead of a URL. A :class:`JoiningProtocol` is one connection, which joins
as soon as it is connected. The protocols of one :class:`JoiningFactory` share a client, which continues on each next
connection with the same subscriptions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress, IStreamClientEndpoint
from twisted.internet.protocol import Factory, connectionDone
from twisted.python.failure import Failure

from fleximq.client.errors import ConnectionLost
from fleximq.client.loops.connection import Connection
from fleximq.client.loops.deferred import DeferredClient
from fleximq.client.loops.link import LoopLink
from fleximq.client.loops.reactor import ReactorLoop, Stream
from fleximq.client.protocol.completion import Pending, resolveAll
from fleximq.client.settings import ClientSettings, State
from fleximq.values.urls import Url, addressesOf

C = TypeVar("C", bound=DeferredClient[Any])
L = TypeVar("L", bound=LoopLink)
#: The first argument of ``connect``: a URL, several URLs, or an endpoint.
Place = str | Sequence[str] | IStreamClientEndpoint


@dataclass(frozen=True, slots=True)
class EndpointUrl(Url):
    """Replaces the URL of a client that connects by an endpoint; the address and the use of TLS are not known."""

    scheme: str = "tcp"

    def __str__(self) -> str:
        return "an endpoint"


def reached(reactor: Any, place: Place) -> tuple[ReactorLoop, tuple[Url, ...]]:
    """Return the loop and the addresses for a client of the broker at ``place``; raises SettingError."""
    if IStreamClientEndpoint.providedBy(place):
        return ReactorLoop(reactor, place), (EndpointUrl(),)
    return ReactorLoop(reactor), addressesOf(place)


class _GivenStream(ReactorLoop):
    """The loop of a client that does not make connections; ``stream`` is the connection that it uses next."""

    dials = False
    stream: Stream

    async def dial(self, url: Url, settings: ClientSettings, connection: Connection) -> None:
        self.stream.attach(connection)


class JoiningProtocol(Stream, Generic[C]):
    """One connection of ``client``; it joins as soon as it is connected."""

    def __init__(self, client: C, link: LoopLink, loop: _GivenStream) -> None:
        self.client = client
        self._link = link
        self._loop = loop
        self._joining: Pending[None] = Pending()
        self._waiters: list[Pending[None]] = []

    def connectionMade(self) -> None:
        self._loop.stream = self
        joining = Deferred.fromCoroutine(self._link._joinOnce())
        joining.addCallbacks(self._joining.succeed, self._refused)
        joining.addBoth(lambda _: resolveAll(self._waiters))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self.isAttached:
            super().connectionLost(reason)

    def _refused(self, failure: Failure) -> None:
        self._joining.fail(failure.value)  # type: ignore[arg-type]
        if not self.isAttached:
            self.transport.abortConnection()

    def joined(self) -> "Deferred[C]":
        """Fire with the client when this connection has joined, with all subscriptions restored.

        :raises JoinRefused: the broker refused to admit the client.
        :raises ConnectionLost: the connection ended before it joined, or the client has another connection.
        """

        async def wait() -> C:
            if not self._joining.done:
                await self._loop.waitAmong(self._waiters, None, "")
            self._joining.result()
            return self.client

        return Deferred.fromCoroutine(wait())


class JoiningFactory(Factory, Generic[C]):
    """Makes the connections of ``client``, one at a time, for an endpoint or a ``ClientService``."""

    noisy = False

    def __init__(self, client: C, link: LoopLink, loop: _GivenStream) -> None:
        self.client = client
        self._link = link
        self._loop = loop

    def buildProtocol(self, addr: IAddress | None) -> JoiningProtocol[C]:
        """Return the next connection; raises ConnectionLost if the client was closed or has given up."""
        if self._link.state is State.CLOSED:
            raise ConnectionLost(f"{self.client!r} will not connect again")
        return JoiningProtocol(self.client, self._link, self._loop)


def given(
    reactor: Any,
    kind: Callable[[L], C],
    make: Callable[[ReactorLoop, Sequence[Url], ClientSettings], L],
    settings: ClientSettings,
) -> tuple[C, L, _GivenStream]:
    """Return a client without a connection, its link and its loop, for a :class:`JoiningProtocol` or
    :class:`JoiningFactory`.

    :param kind: makes the client from its link.
    :param make: makes the link from the loop, the addresses and the settings.
    """
    loop = _GivenStream(reactor)
    link = make(loop, (EndpointUrl(),), settings)
    return kind(link), link, loop
