"""Runs the extensions: each is a separate service, and a failing one affects no other.

Registrations at the broker are removed when an extension stops, even after a failure. Its exceptions are logged; only a
:exc:`SettingError` at the start, which rejects the configuration, ends the broker's start.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IProtocolFactory
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from fleximq.broker.broker import Broker
from fleximq.client.settings import PREFETCH_BYTES, Codec
from fleximq.config.settings import Settings
from fleximq.errors import SettingError
from fleximq.in_process.client import InProcessClient
from fleximq.in_process.clients import InProcessClients
from fleximq.interfaces import (
    IBrokerExtension,
    IBrokerObserver,
    IExtensionContext,
    IQueueWatcher,
    IRecordWatcher,
    IRights,
    ISubscriber,
)

_log = Logger()

#: Seconds within which an extension must stop; the broker does not wait longer.
STOP_TIMEOUT = 10.0


@implementer(IExtensionContext)
class ExtensionContext:
    """The broker's interface for one extension, and its registrations."""

    def __init__(
        self,
        broker: Broker,
        settings: Settings,
        reactor: Any,
        clients: InProcessClients,
        makeFactory: Callable[[str], IProtocolFactory],
    ) -> None:
        self.broker = broker
        self.settings = settings
        self.reactor = reactor
        self._clients = clients
        self._makeFactory = makeFactory
        self._undo: list[Callable[[], None]] = []

    def connect(
        self,
        rights: IRights | str,
        name: str | None = None,
        prefetch: int = PREFETCH_BYTES,
        codec: Codec | None = None,
    ) -> InProcessClient:
        """Return a client of the broker, which ends when the extension stops."""
        return self._clients.connect(rights, name, prefetch, codec)

    def observe(self, observer: IBrokerObserver) -> None:
        """Notify an observer of events until the extension stops."""
        self.broker.observers.add(observer)
        self._undo.append(lambda: self.broker.observers.remove(observer))

    def wiretap(self, subscriber: ISubscriber, pattern: str) -> None:
        """Deliver a copy of each publication to matching topics until the extension stops; raises InvalidTopic."""
        self.broker.wiretap(subscriber, pattern)
        self._undo.append(lambda: self.broker.endWiretap(subscriber, pattern))

    def watch(self, watcher: IRecordWatcher) -> None:
        """Notify a watcher of journal records until the extension stops."""
        self.broker.recordWatchers.add(watcher)
        self._undo.append(lambda: self.broker.recordWatchers.remove(watcher))

    def watchQueues(self, watcher: IQueueWatcher) -> None:
        """Notify a watcher of the deliveries of named queues until the extension stops."""
        self.broker.queueWatchers.add(watcher)
        self._undo.append(lambda: self.broker.queueWatchers.remove(watcher))

    def factory(self, dialect: str = "") -> IProtocolFactory:
        """Return a factory of connections for any endpoint of Twisted."""
        return self._makeFactory(dialect)

    def release(self) -> None:
        self._clients.closeAll()
        while self._undo:
            with suppress(ValueError):  # the observer may have removed itself
                self._undo.pop()()


@dataclass(eq=False, repr=False)
class ExtensionService(Service):
    """One extension with its checked options; ``abortStart`` is called with a sentence if it rejects them."""

    extension: IBrokerExtension
    _configuration: Any
    _context: ExtensionContext
    _abortStart: Callable[[str], NoReturn]
    _inner: Any = field(default=None, init=False)
    _made = False

    def privilegedStartService(self) -> None:
        """Create its service, and run the privileged part of its start."""
        super().privilegedStartService()
        self._make()
        if self._inner is not None:
            self._try(self._inner.privilegedStartService)

    def startService(self) -> None:
        super().startService()
        if not self._made:
            self._make()
        if self._inner is not None:
            self._try(self._inner.startService)
        if self._inner is not None:
            _log.info("The extension {name} is on", name=self.extension.name)

    def stopService(self) -> Deferred[None]:
        """Stop it; the Deferred fires after that or after the timeout, and never fails."""
        super().stopService()
        inner, self._inner, self._made = self._inner, None, False
        if inner is None:
            return maybeDeferred(self._context.release)
        ending: Deferred[Any] = maybeDeferred(inner.stopService)
        ending.addTimeout(STOP_TIMEOUT, self._context.reactor)
        ending.addErrback(self._failed, "stop well")
        ending.addCallback(lambda ignored: self._context.release())
        return ending

    def _make(self) -> None:
        def makeInner() -> None:
            self._inner = self.extension.makeService(self._context, self._configuration)

        self._made = True
        self._try(makeInner)

    def _try(self, step: Callable[[], object]) -> None:
        try:
            step()
        except SettingError as error:
            self._disable()
            self._abortStart(f"extension {self.extension.name}: {error}")
        except Exception:
            self._failed(Failure(), "start: the broker runs without it")
            self._disable()

    def _disable(self) -> None:
        self._inner = None
        self._context.release()

    def _failed(self, failure: Failure, what: str) -> None:
        _log.failure("The extension {name} did not {what}", failure, name=self.extension.name, what=what)
