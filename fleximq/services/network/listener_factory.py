"""Which factory stands behind a listener: what it serves, and to whom. docs/dialects.rst, "One port".

What a listener speaks: the factories of its dialects, made of what is installed.

A plug-in that cannot be loaded is logged and left out where several dialects are served; where a listener names it,
the broker does not start.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from twisted.internet.interfaces import IProtocolFactory, IReactorTime
from twisted.logger import Logger

from fleximq.dialects.connection.protocol_detection import SniffingFactory
from fleximq.dialects.context import Context
from fleximq.dialects.http.origins import Origins
from fleximq.dialects.http.request_router import RequestRouterFactory
from fleximq.dialects.registry import OWN, Registry
from fleximq.endpoints.listen import Listen
from fleximq.errors import SettingError
from fleximq.interfaces import IAdmission, IDialect
from fleximq.web.welcome_page import WelcomeEntry

_log = Logger("fleximq.services.spoken")


class ListenerDialects(NamedTuple):
    """The dialects of one listener, by name.

    ``claims`` says which first bytes belong to which stream, ``ways`` is what the welcome page tells.
    """

    streams: Mapping[str, IProtocolFactory]
    webSockets: Mapping[str, IProtocolFactory]
    claims: Mapping[bytes, str]
    ways: tuple[WelcomeEntry, ...]


def dialectsOf(registry: Registry, context: Context, only: str | None = None) -> ListenerDialects:
    """Return what a listener with this context speaks.

    :param only: the one dialect that it names.
    :raises SettingError: that dialect is not installed or cannot be loaded.
    """
    if only is not None and only not in registry.dialects:
        raise SettingError(f"the dialect {only} is not installed")
    dialects = registry.dialects if only is None else {only: registry.dialects[only]}
    streams: dict[str, IProtocolFactory] = {}
    webSockets: dict[str, IProtocolFactory] = {}
    for name, stream, webSocket in _loaded(dialects, context, only):
        if stream is not None:
            streams[name] = stream
        if webSocket is not None:
            webSockets[name] = webSocket
    claims = {beginning: name for beginning, name in registry.claims().items() if name in streams}
    ways = tuple(
        WelcomeEntry(each.title, each.purpose, each.reach)
        for name, each in dialects.items()
        if each.title and (name in streams or name in webSockets)
    )
    return ListenerDialects(streams, webSockets, claims, ways)


def _loaded(dialects: Mapping[str, IDialect], context: Context, only: str | None) -> Iterator[tuple[str, Any, Any]]:
    for name, dialect in dialects.items():
        try:
            yield name, dialect.stream(context), dialect.webSocket(context)
        except Exception as error:
            if name in OWN:
                raise
            if only is not None:
                raise SettingError(f"the dialect {name} cannot be loaded: {error}") from error
            _log.failure("The dialect {name} cannot be loaded and is left out", name=name)


@dataclass(frozen=True, slots=True)
class ListenerFactory:
    """Makes the factory of a listener.

    ``admission`` says who may come, ``behindProxy`` the same of those for whom a proxy speaks. ``deadline`` is in
    seconds; ``counted`` is told of every connection that is turned away.
    """

    reactor: IReactorTime
    admission: IAdmission
    behindProxy: IAdmission
    origins: Origins
    deadline: float
    counted: Callable[[str, int], object]
    site: Callable[[tuple[WelcomeEntry, ...]], IProtocolFactory]

    def factoryFor(self, listen: Listen, dialects: ListenerDialects) -> IProtocolFactory:
        """Return what serves the connections of a listener: its one dialect, or all, told apart by first bytes."""
        streams = {} if listen.onlyWebSockets else dialects.streams
        if listen.dialect is not None and listen.dialect in streams and not dialects.webSockets:
            return streams[listen.dialect]
        door = None if listen.isStdio else self._door(dialects, listen)
        if door is not None and not streams:
            return door
        return SniffingFactory(streams, door, self.reactor, self.deadline, self.counted, dialects.claims)

    def _door(self, dialects: ListenerDialects, listen: Listen) -> RequestRouterFactory:
        site = self.site(dialects.ways)
        return RequestRouterFactory(
            dialects.webSockets,
            site,
            self.admission,
            self.behindProxy,
            self.origins,
            self.reactor,
            self.deadline,
            self.counted,
            listen.url.path if listen.url is not None and listen.onlyWebSockets else "",
        )
