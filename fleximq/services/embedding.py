"""A broker inside another Twisted application, as one service that the application makes, starts and stops.

The application is an extension of this broker: it gets the same context as any extension, and its clients and observers
end with the broker. The broker does not change the process, which belongs to the application: neither signals, logs,
the garbage collector, the reactor's clock nor the limit on open files. No failure of the broker ends the process.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NoReturn

from twisted.application.service import MultiService, Service
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.interfaces import IAddress, IProtocolFactory
from twisted.logger import Logger
from zope.interface import implementer

from fleximq.client.settings import PREFETCH_BYTES, Codec
from fleximq.config.extension_options import EnabledExtension
from fleximq.config.settings import Settings
from fleximq.dialects.registry import Registry, installed
from fleximq.endpoints.listen import Listen
from fleximq.errors import Conflict, SettingError
from fleximq.in_process.client import InProcessClient
from fleximq.interfaces import IBrokerExtension, IExtensionContext, IRights
from fleximq.services.compose import compose
from fleximq.services.process.steady_reactor import SteadyReactor, steady
from fleximq.services.web_site import listenersOf
from fleximq.startup.configuration_check import faults

_log = Logger()
#: The name of the extension by which the application gets its context.
_APPLICATION = "application"
#: Variables of a service manager, which expects answers from the application and not from the broker.
_OF_MANAGER = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


def makeService(reactor: Any, **options: Any) -> "EmbeddedBroker":
    """Return a broker with its listeners, for a Twisted application to start and stop; no port or file is open yet.

    :param options: those of the settings file, with ``_`` for ``-`` in names, and the same types of values: ``listen=
        ["tcp:7890"], journal="/var/lib/app", max_clients=100``. By default it does not poll (``busy_poll=0``). With
        ``listen=[]`` it has no port, and its clients are those of this process.
    :raises SettingError: an option does not exist, or its value is wrong.
    """
    values: Mapping[str, Any] = {"busy-poll": 0} | {name.replace("_", "-"): value for name, value in options.items()}
    registry = installed()
    for sentence in faults(values, registry, embedded=True):
        raise SettingError(sentence)
    if values.get("cluster"):
        raise SettingError("cluster is set, but a node of a cluster needs a process of its own")
    return EmbeddedBroker(reactor, Settings.of(values), registry)


class EmbeddedBroker(Service):
    """A broker with its listeners; made by :func:`makeService`. It may be started again after it has stopped."""

    name = "fleximq"

    def __init__(self, reactor: Any, settings: Settings, registry: Registry) -> None:
        self._reactor = reactor
        self._settings = replace(settings, extension=(*settings.extension, EnabledExtension(_APPLICATION)))
        self._application = _Application()
        self._registry = replace(registry, extensions={**registry.extensions, _APPLICATION: self._application})
        if any(Listen.parse(each).isStdio for each in settings.listen if "stdio" in each):
            raise SettingError("listen is stdio, but standard input and output belong to the application")
        self._steady: Any = None
        self._whole: MultiService | None = self._compose()
        self._isPrivileged = False
        #: Each call of stopService that waits for the end of the same stop; None while there is none.
        self._stopping: list[Deferred[None]] | None = None

    def _compose(self) -> MultiService:
        self._steady = steady(self._reactor)
        environment = {name: value for name, value in os.environ.items() if name not in _OF_MANAGER}
        return compose(
            self._steady,
            self._settings,
            _refuse,
            self._registry,
            self._failed,
            environment,
            failStop=self._failed,
            ownsProcess=False,
        )

    # -- IService ----------------------------------------------------------------------------------

    def privilegedStartService(self) -> None:
        """Open the ports; errors as :meth:`startService`."""
        self._checkThatItMayStart()
        super().privilegedStartService()
        self._isPrivileged = True
        self._start(self._present().privilegedStartService)

    def startService(self) -> None:
        """Open the journal, then the ports unless they are open, and serve.

        :raises SettingError: the journal or a port cannot be opened. All parts that had started are stopped.
        :raises Conflict: it is running, or still stopping.
        """
        self._checkThatItMayStart()
        super().startService()
        if not self._isPrivileged:
            self._start(self._present().privilegedStartService)
        self._start(self._present().startService)

    def stopService(self) -> "Deferred[None]":
        """End all connections within ``drain_timeout`` seconds, then all other parts; fires when all have stopped."""
        super().stopService()
        ended: Deferred[None] = Deferred()
        if self._stopping is not None:
            self._stopping.append(ended)
            return ended
        self._stopping = [ended]
        whole, self._whole, self._isPrivileged = self._whole, None, False
        stopping: Deferred[Any] = succeed(None) if whole is None else maybeDeferred(whole.stopService)
        stopping.addErrback(lambda failure: _log.failure("A part of the broker did not stop well", failure))
        stopping.addCallback(lambda ignored: self._ended())
        return ended

    def _checkThatItMayStart(self) -> None:
        if self.running:
            raise Conflict("the broker is running already")
        if self._stopping is not None:
            raise Conflict("the broker is still stopping")

    def _present(self) -> MultiService:
        if self._whole is None:
            self._whole = self._compose()
        return self._whole

    def _start(self, step: Callable[[], None]) -> None:
        try:
            step()
        except BaseException:
            self.stopService()
            raise

    def _ended(self) -> None:
        if isinstance(self._steady, SteadyReactor):
            self._steady.end()
        # Connections that were aborted are lost in the next turn of the reactor.
        self._reactor.callLater(0, self._stopped)

    def _stopped(self) -> None:
        waiting, self._stopping = self._stopping or [], None
        for each in waiting:
            each.callback(None)

    def _failed(self, sentence: str, reactor: Any = None) -> None:
        """Log a failure with which a broker in a process of its own would exit, and stop."""
        _log.critical("{sentence}", sentence=sentence)
        if self.running:
            self.stopService()

    # -- for the application -----------------------------------------------------------------------

    @property
    def context(self) -> IExtensionContext:
        """The parts of the broker that extensions may use; raises Conflict while the broker does not run."""
        context = self._application.context
        if context is None:
            raise Conflict("the broker is not running")
        return context

    @property
    def addresses(self) -> list[IAddress]:
        """The addresses of the open ports, in the order of ``listen`` and ``http``; empty before the start."""
        ports = [each.port for each in listenersOf(self._whole or ())]
        return [port.getHost() for port in ports if port is not None]

    def connect(
        self,
        rights: IRights | str,
        name: str | None = None,
        prefetch: int = PREFETCH_BYTES,
        codec: Codec | None = None,
    ) -> InProcessClient:
        """Return a client in this process, which ends when the broker stops. Parameters and errors are those of
        :meth:`fleximq.interfaces.IExtensionContext.connect`; also raises Conflict while the broker does not run.
        """
        return self.context.connect(rights, name, prefetch, codec)  # type: ignore[no-any-return]

    def factory(self, dialect: str = "") -> IProtocolFactory:
        """Return a factory of connections for any endpoint of Twisted, the same as for the option ``listen``.

        :param dialect: the only dialect of its connections, by name; "": all of them, and HTTP.
        :raises SettingError: the dialect does not exist.
        :raises Conflict: the broker does not run.
        """
        return self.context.factory(dialect)  # type: ignore[no-any-return]


@implementer(IBrokerExtension)
class _Application(Service):
    """The application as an extension of the broker; ``context`` is None while the broker does not run."""

    name, words = _APPLICATION, "The program in whose process the broker runs."
    context: IExtensionContext | None = None

    def configure(self, options: Mapping[str, object]) -> None:
        """Accept no options."""

    def makeService(self, context: IExtensionContext, configuration: Any) -> Service:
        """Remember the context for :meth:`startService`, and return this service."""
        self._given = context
        return self

    def startService(self) -> None:
        super().startService()
        self.context = self._given

    def stopService(self) -> None:
        super().stopService()
        self.context = None


def _refuse(sentence: str) -> NoReturn:
    raise SettingError(sentence)
