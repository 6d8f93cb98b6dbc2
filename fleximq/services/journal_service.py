"""The journal as a service: opened before the listeners, closed after the last client has left.

A journal that cannot be opened ends the process with one sentence, and one whose last state cannot be stored at the
stop gives it another exit code. After a shortage the journal is reopened by itself, after any other fault by SIGUSR2.
docs/guides/operating.rst, "When the disk is full or fails".
"""

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import LoopingCall, deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from fleximq.broker.broker import Broker
from fleximq.config.journal_options import fsyncOf, retentionOf, timeToLiveOf
from fleximq.config.settings import Settings
from fleximq.dialects.connection.write_turn import WriteTurn
from fleximq.errors import JournalError
from fleximq.interfaces import IQueueState
from fleximq.journal.retention.retention_rules import RetentionPolicy
from fleximq.journal.retention.segment_removal import FreedSpace
from fleximq.services.process.wakeup import Wakeup
from fleximq.values.patterns import anyOf
from fleximq.values.state_records import ClientIdsReserved

if TYPE_CHECKING:
    from fleximq.journal.broker_journal import BrokerJournal
    from fleximq.journal.journal_folder import JournalFolder
    from fleximq.journal.opened_journal import OpenedJournal
    from fleximq.journal.recovery.recovered_state import RecoveredJournal

_log = Logger()

#: Seconds between two checks for expired records and for missing journal files.
CLEANING_INTERVAL = 60.0
#: Seconds from a fault that may pass to the first attempt to reopen the journal, and the longest between two attempts.
FIRST_RETRY, LAST_RETRY = 0.5, 30.0
#: Seconds that the end waits at most for the last records to be delivered, and between two looks at them.
_SETTLED, _LOOK = 10.0, 0.01


_UNSTORED = (
    "the journal could not be written at the stop ({reason}): messages that were acknowledged or purged since its last "
    "write will be delivered again"
)


def journalFolder(
    wakeup: Wakeup, settings: Settings, turn: WriteTurn, counted: Callable[[str, int], None]
) -> "JournalFolder | None":
    """Return the journal's folder for these settings, not open yet; None without one."""
    if settings.journal is None:
        return None
    # Not loaded by a broker without a journal.
    from fleximq.journal.files.file_system import Files
    from fleximq.journal.files.journal_context import JournalContext
    from fleximq.journal.journal_folder import JournalFolder
    from fleximq.journal.opened_journal import JournalLimits

    context = JournalContext(
        files=Files(),
        folder=settings.journal,
        callFromThread=partial(wakeup.call, _inTurn, turn),
        now=lambda: time.time_ns() // 1000,
        onEvent=counted,
        log=warn,
        onError=_failed,
    )
    rules = RetentionPolicy(
        patterns=(*settings.durable, *settings.retain),
        durable=anyOf((*settings.durable, *settings.retain)),
        retained=anyOf(settings.retain),
        retentions=tuple(map(retentionOf, settings.retention)),
        timesToLive=tuple(map(timeToLiveOf, settings.messageTtl)),
    )
    limits = JournalLimits(
        segmentBytes=settings.journalSegment,
        maxBytes=settings.journalMaxBytes,
        maxTopics=settings.limits.durableTopics,
        rules=rules,
    )
    return JournalFolder(context, fsyncOf(settings.fsync), limits)


@dataclass(eq=False, repr=False)
class JournalService(MultiService):
    """Holds the services that need the journal: they start after it is open, and it closes after they have stopped.

    :param journal: the broker's; it becomes the one that ``folder`` opens.
    :param queues: the broker's side of the journal; ``restore`` is called with the recovered state before it writes.
    :param abortStart: called with a sentence if the journal cannot be opened or restored; does not return.
    :param failStop: called with a sentence if the last state could not be stored at the stop.
    """

    _reactor: Any
    _folder: "JournalFolder"
    journal: "BrokerJournal"
    _queues: "IQueueState"
    _restore: Callable[["RecoveredJournal"], None]
    _abortStart: Callable[[str], NoReturn]
    _wakeup: Wakeup
    _failStop: Callable[[str], None]
    _onSignal: Callable[[int, Any], Any] | None = signal.signal
    _retry: Any = field(default=None, init=False)
    _pause: float = FIRST_RETRY
    _before: Any = field(default=None, init=False)
    _opened: "OpenedJournal | None" = field(default=None, init=False)

    def __post_init__(self) -> None:
        super().__init__()
        self._cleaning = LoopingCall(self._clean)
        self._cleaning.clock = self._reactor

    def startService(self) -> None:
        """Open the journal, restore the broker from it, and start the inner services. Blocks meanwhile."""
        began = time.monotonic()
        try:
            self._opened = opened = self._folder.open(self._queues, self._faulted)
        except JournalError as error:
            self._abortStart(str(error))
        self.journal.become(opened)
        self._wakeup.start()
        self._begin(opened)
        state = opened.recovered
        # A signal may arrive at any point in the code.
        if self._onSignal is not None:
            self._before = self._onSignal(signal.SIGUSR2, lambda *_: self._reactor.callFromThread(self.reopen))
        for sentence in (*state.torn, *state.lost):
            warn(sentence)
        milliseconds = round((time.monotonic() - began) * 1000)
        words = "The journal is ready in {milliseconds} ms with {records} records"
        _log.info(words, milliseconds=milliseconds, records=state.records)
        words = "Expired records cannot be removed from the journal any more"
        self._cleaning.start(CLEANING_INTERVAL).addErrback(lambda failure: _log.failure(words, failure))
        super().startService()

    def stopService(self) -> "Deferred[None]":
        """Stop the inner services, then write pending records and close the journal; the Deferred fires after that."""
        ending: Deferred[Any] = maybeDeferred(super().stopService)
        ending.addBoth(lambda ignored: Deferred.fromCoroutine(self._settled()).addTimeout(_SETTLED, self._reactor))
        return ending.addBoth(lambda ignored: self._close())

    async def _settled(self) -> None:
        """Wait until all records are stored and delivered to the queues: before, there is no last checkpoint."""
        while self._opened is not None and not self._opened.settle():
            await deferLater(self._reactor, _LOOK)

    def reopen(self) -> None:
        """Reopen the journal after a fault, and log the result."""
        self.journal.reopen(_reopened)

    def _faulted(self) -> None:
        if self._retry is None:
            self._pause = FIRST_RETRY
            self._retryLater()

    def _retryLater(self) -> None:
        """Reopen the journal after a pause if the cause of its fault may pass, without a log line for each attempt."""
        if self._isRetried:
            self._retry = self._reactor.callLater(self._pause, self._tryAgain)
            self._pause = min(2 * self._pause, LAST_RETRY)

    def _tryAgain(self) -> None:
        self._retry = None
        if self._isRetried:
            self.journal.reopen(self._tried)

    def _tried(self, reason: str | None) -> None:
        if reason is None:
            _reopened(None)
        elif self._isRetried:
            self._retryLater()
        else:
            _reopened(reason)

    @property
    def _isRetried(self) -> bool:
        return self._opened is not None and self._opened.writing.isRetried

    def beat(self, answered: Callable[[], None]) -> None:
        """Call back when the journal's writing thread has finished its present work; never, if it hangs."""
        if self._opened is not None:
            self._opened.writing.beat(answered)

    def _begin(self, opened: "OpenedJournal") -> None:
        try:
            self._restore(opened.recovered)
            opened.begin()
        except JournalError as error:
            self._giveUp(str(error))
        except Exception as error:
            _log.failure("The content of the journal could not be restored", Failure())
            self._giveUp(f"the content of the journal could not be restored: {error}")

    def _giveUp(self, sentence: str) -> None:
        self._close()
        self._abortStart(sentence)

    def _close(self) -> None:
        if self._cleaning.running:
            self._cleaning.stop()
        opened, self._opened = self._opened, None
        if opened is not None:
            if self._retry is not None:
                self._retry.cancel()
                self._retry = None
            if self._before is not None and self._onSignal is not None:
                self._onSignal(signal.SIGUSR2, self._before)
                self._before = None
            reason = opened.close()
            if reason is not None:
                self._failStop(_UNSTORED.format(reason=reason))
            self._wakeup.stop()

    def _clean(self) -> None:
        if self._opened is not None:
            self._opened.writing.look()
            self._opened.clean(_cleaned)


def restore(broker: Broker, state: "RecoveredJournal") -> None:
    """Restore a broker's queues and their messages, and the next free client id; forget the snapshot."""
    broker.checkpointer.restore(state)
    state.snapshot = None  # the journal keeps its recovered state, and a snapshot may be large
    broker.clients.continueFrom(state.nextClientId, lambda until: broker.journal.appendState(ClientIdsReserved(until)))


def _inTurn(turn: WriteTurn, call: Callable[..., object], *arguments: object) -> None:
    """Call a function for another thread, then write the output that it caused."""
    turn.open = True
    try:
        call(*arguments)
    finally:
        turn.flush()


def _failed(error: Exception) -> None:
    _log.failure("A callback from the journal failed", failure=Failure(error))


def _cleaned(freed: FreedSpace) -> None:
    if freed.bytes:
        _log.info("Expired records were removed from the journal: {bytes} bytes", bytes=freed.bytes)


def warn(sentence: str) -> None:
    """Log a warning of the journal."""
    _log.warn("Journal: {sentence}", sentence=sentence)


def _reopened(reason: str | None) -> None:
    if reason is None:
        _log.info("The journal was reopened and stores messages again")
    else:
        _log.error("The journal could not be reopened: {reason}", reason=reason)
