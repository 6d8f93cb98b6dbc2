"""The protocol factory of a listener: its dialects and access rules (docs/reference/dialects.rst, "One port for all").

A plug-in that cannot be loaded is logged and skipped on listeners of several dialects; if a listener names it, the
broker does not start.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
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
from fleximq.values.log_limit import LogLimits
from fleximq.values.unadmitted_budget import UnadmittedBudget
from fleximq.web.welcome_page import WelcomeEntry

_log = Logger()


class ListenerDialects(NamedTuple):
    """The dialects of one listener, by name.

    ``claims`` maps first bytes to stream dialects, ``ways`` is for the welcome page.
    """

    streams: Mapping[str, IProtocolFactory]
    webSockets: Mapping[str, IProtocolFactory]
    claims: Mapping[bytes, str]
    ways: tuple[WelcomeEntry, ...]


def dialectsOf(registry: Registry, context: Context, only: str | None = None) -> ListenerDialects:
    """Return the dialects of a listener with this context.

    :param only: the one dialect that the listener names.
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
    """Builds the factory of a listener.

    ``admission`` decides who may connect, ``behindProxy`` the same for clients of a proxy. ``deadline`` is in seconds;
    ``counted`` is called for every refused connection, ``audit`` with refusals of HTTP. ``logLimits`` applies to the
    log lines about them, ``unadmitted`` to their input.
    """

    reactor: IReactorTime
    admission: IAdmission
    behindProxy: IAdmission
    origins: Origins
    deadline: float
    counted: Callable[[str, int], object]
    site: Callable[[tuple[WelcomeEntry, ...]], IProtocolFactory]
    logLimits: LogLimits = field(default_factory=LogLimits)
    unadmitted: UnadmittedBudget = field(default_factory=UnadmittedBudget)
    audit: Callable[..., None] = RequestRouterFactory.audit

    def factoryFor(self, listen: Listen, dialects: ListenerDialects) -> IProtocolFactory:
        """Return the factory of a listener, which detects the dialect, or that it is not the listener's."""
        streams = {} if listen.onlyWebSockets else dialects.streams
        alone = listen.dialect in streams and not dialects.webSockets
        router = None if listen.isStdio or alone else self._router(dialects, listen)
        if router is not None and not streams:
            return router
        return SniffingFactory(
            streams, router, self.reactor, self.deadline, self.counted, dialects.claims, self.logLimits
        )

    def _router(self, dialects: ListenerDialects, listen: Listen) -> RequestRouterFactory:
        site = self.site(dialects.ways)
        router = RequestRouterFactory(
            dialects.webSockets,
            site,
            self.admission,
            self.behindProxy,
            self.origins,
            self.reactor,
            self.deadline,
            self.counted,
            listen.url.path if listen.url is not None and listen.onlyWebSockets else "",
            self.logLimits,
            self.unadmitted,
        )
        router.audit = self.audit  # type: ignore[method-assign]
        return router
