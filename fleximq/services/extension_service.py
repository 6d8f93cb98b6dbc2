"""Runs what others add to the broker: each extension is a service of its own, and a broken one hurts nobody.

What an extension registers at the broker is taken back when it stops, whether it stopped well or not. What it raises
is logged; only a :exc:`SettingError` at the start, by which it says that it cannot do what was asked of it, ends the
start of the broker.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from fleximq.broker.broker import Broker
from fleximq.config.settings import Settings
from fleximq.errors import SettingError
from fleximq.interfaces import (
    IBrokerExtension,
    IBrokerObserver,
    IExtensionContext,
    IRecordWatcher,
    ISubscriber,
)

_log = Logger("fleximq.services.extensions")

#: Seconds that an extension has for its end; the broker does not wait longer.
STOP_TIMEOUT = 10.0


@implementer(IExtensionContext)
class ExtensionContext:
    """What one extension is given of the broker, and what it has registered there."""

    def __init__(self, broker: Broker, settings: Settings, reactor: Any) -> None:
        self.broker = broker
        self.settings = settings
        self.reactor = reactor
        self._undo: list[Callable[[], None]] = []

    def observe(self, observer: IBrokerObserver) -> None:
        """Tell an observer what happens, until the extension stops."""
        self.broker.observers.add(observer)
        self._undo.append(lambda: self.broker.observers.remove(observer))

    def tap(self, subscriber: ISubscriber, pattern: str) -> None:
        """Bring a copy of what is published to topics that match to a subscriber, until the extension stops.

        :raises InvalidTopic: the pattern is empty or too long.
        """
        self.broker.tap(subscriber, pattern)
        self._undo.append(lambda: self.broker.untap(subscriber, pattern))

    def watch(self, watcher: IRecordWatcher) -> None:
        """Tell a watcher what goes through the journal, until the extension stops."""
        self.broker.recordWatchers.add(watcher)
        self._undo.append(lambda: self.broker.recordWatchers.remove(watcher))

    def release(self) -> None:
        """Take back all that was registered."""
        while self._undo:
            with suppress(ValueError):  # an observer that took itself off is not there any more
                self._undo.pop()()


class ExtensionService(Service):
    """One extension, between its start and its end.

    :param configuration: its options, as it has checked them.
    :param abortStart: called with a sentence if it says that it cannot start; does not return.
    """

    def __init__(
        self,
        extension: IBrokerExtension,
        configuration: Any,
        context: ExtensionContext,
        abortStart: Callable[[str], NoReturn],
    ) -> None:
        self.extension = extension
        self._configuration = configuration
        self._context = context
        self._abortStart = abortStart
        self._inner: Any = None

    def privilegedStartService(self) -> None:
        """Make its service, and let it do what wants privileges."""
        super().privilegedStartService()
        self._make()
        if self._inner is not None:
            self._try(self._inner.privilegedStartService)

    def startService(self) -> None:
        """Let it begin."""
        super().startService()
        if not self._made:
            self._make()
        if self._inner is not None:
            self._try(self._inner.startService)
        if self._inner is not None:
            _log.info("The extension {name} is on", name=self.extension.name)

    def stopService(self) -> Deferred[None]:
        """Let it end; what is returned fires when it has, or its time is over, and never fails."""
        super().stopService()
        inner, self._inner, self._made = self._inner, None, False
        if inner is None:
            return maybeDeferred(self._context.release)
        ending: Deferred[Any] = maybeDeferred(inner.stopService)
        ending.addTimeout(STOP_TIMEOUT, self._context.reactor)
        ending.addErrback(self._failed, "stop well")
        ending.addCallback(lambda ignored: self._context.release())
        return ending

    _made = False

    def _make(self) -> None:
        self._made = True
        self._try(self._makeInner)

    def _makeInner(self) -> None:
        self._inner = self.extension.makeService(self._context, self._configuration)

    def _try(self, step: Callable[[], object]) -> None:
        """Take one step of its start; if that fails, put it aside."""
        try:
            step()
        except SettingError as error:
            self._putAside()
            self._abortStart(f"extension {self.extension.name}: {error}")
        except Exception:
            self._failed(Failure(), "start: the broker runs without it")
            self._putAside()

    def _putAside(self) -> None:
        self._inner = None
        self._context.release()

    def _failed(self, failure: Failure, what: str) -> None:
        _log.failure("The extension {name} did not {what}", failure, name=self.extension.name, what=what)
