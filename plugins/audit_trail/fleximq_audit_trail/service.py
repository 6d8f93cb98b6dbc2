"""The service: observes the broker from its start to its stop."""

from datetime import UTC, datetime
from functools import partial

from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import LoopingCall
from twisted.internet.threads import deferToThreadPool

from fleximq.api import IExtensionContext, SettingError
from fleximq_audit_trail.choices import Choices
from fleximq_audit_trail.trail import PrivateLogFile, Trail
from fleximq_audit_trail.watcher import Watcher


class AuditTrail(Service):
    """Records the events of a running broker."""

    name = "audit_trail"

    def __init__(self, context: IExtensionContext, choices: Choices) -> None:
        self._context, self._choices = context, choices
        self._trail: Trail | None = None

    def startService(self) -> None:
        """Open the file, and start observing; raises SettingError if it cannot be opened."""
        super().startService()
        choices, reactor = self._choices, self._context.reactor
        inThread = partial(deferToThreadPool, reactor, reactor.getThreadPool())
        self._trail = Trail(_opened(choices), inThread, choices.backlog, self._lost)
        self._watcher = Watcher(self._trail.take, partial(datetime.now, UTC), choices.payloads)
        self._watcher.say("started")
        self._context.observe(self._watcher)
        self._context.wiretap(self._watcher, choices.pattern)
        self._flushing = LoopingCall(self._trail.flush)
        self._flushing.clock = reactor
        self._flushing.start(choices.every)

    def stopService(self) -> "Deferred[None]":
        """Write pending lines; fires when they are on disk."""
        super().stopService()
        trail, self._trail = self._trail, None
        if trail is None:
            return succeed(None)
        self._flushing.stop()
        self._watcher.say("stopped")
        return trail.close()

    def _lost(self, number: int) -> str:
        return self._watcher.line("lost", count=number)


def _opened(choices: Choices) -> PrivateLogFile:
    try:
        file: PrivateLogFile = PrivateLogFile.fromFullPath(
            choices.path, rotateLength=choices.rotate, maxRotatedFiles=choices.keep
        )
    except OSError as error:
        raise SettingError(f"path is {choices.path!r}, but cannot be opened: {error.strerror}") from error
    return file
