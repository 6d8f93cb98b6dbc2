"""The protocol factory of a listener: its dialects and access rules (docs/reference/dialects.rst, "One port for all").

A plug-in that cannot be loaded is logged and skipped on listeners of several dialects; if a listener names it, the
broker does not start.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from twisted.internet.interfaces import IProtocolFactory
from twisted.logger import Logger

from fleximq.dialects.connection.protocol_detection import Decision, SniffingFactory
from fleximq.dialects.context import ListenerContext
from fleximq.dialects.http.routing.origins import Origins
from fleximq.dialects.http.routing.request_router import RequestRouterFactory
from fleximq.dialects.registry import OWN, Registry
from fleximq.endpoints.listen import Listen
from fleximq.errors import SettingError
from fleximq.interfaces import IAdmission, IDialect
from fleximq.web.welcome_page import WelcomeEntry

_log = Logger()


class ListenerDialects(NamedTuple):
    """The dialects of a listener, by name; ``claims`` maps first bytes to streams, ``ways`` is for the welcome page.

    ``http`` is plain HTTP, if the listener serves it.
    """

    streams: Mapping[str, IProtocolFactory]
    webSockets: Mapping[str, IProtocolFactory]
    claims: Mapping[bytes, str]
    ways: tuple[WelcomeEntry, ...]
    http: IProtocolFactory | None = None


def dialectsOf(registry: Registry, context: ListenerContext, only: str | None = None) -> ListenerDialects:
    """Return the dialects of a listener, or the ``only`` one that it names; raises SettingError if that is missing."""
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
    return ListenerDialects(streams, webSockets, claims, ways, streams.pop(Decision.HTTP, None))


def _loaded(
    dialects: Mapping[str, IDialect], context: ListenerContext, only: str | None
) -> Iterator[tuple[str, Any, Any]]:
    for name, dialect in dialects.items():
        try:
            yield name, dialect.stream(context), dialect.webSocket(context)
        except Exception as error:
            if name in OWN:
                raise
            if only is not None:
                raise SettingError(f"the dialect {name} cannot be loaded: {error}") from error
            _log.failure("The dialect {name} cannot be loaded and is left out", name=name)


def factoryOf(
    listen: Listen,
    dialects: ListenerDialects,
    context: ListenerContext,
    behindProxy: IAdmission,
    origins: Origins,
    site: Callable[[tuple[WelcomeEntry, ...]], IProtocolFactory],
) -> IProtocolFactory:
    """Return the factory of a listener, which detects the dialect; ``behindProxy`` replaces the context's admission."""
    clock, counted = context.broker.deadlines, context.broker.observers.counted
    deadline = context.settings.handshakeTimeout
    streams = {} if listen.onlyWebSockets else dialects.streams
    alone = listen.dialect in streams and not dialects.webSockets
    router = None
    if not (listen.isStdio or alone):
        path = listen.url.path if listen.url is not None and listen.onlyWebSockets else ""
        router = RequestRouterFactory(
            dialects.webSockets, site(dialects.ways), context.admission, behindProxy, origins, clock, deadline, counted,
            path, context.logLimits, context.unadmitted,
        )  # fmt: skip
        router.audit = context.broker.audit
        router.plain = None if listen.onlyWebSockets else dialects.http
        if not streams:
            return router
    return SniffingFactory(streams, router, clock, deadline, counted, dialects.claims, context.logLimits)
