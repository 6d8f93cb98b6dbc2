"""The journal as a service: when it opens and closes, and what is said about it."""

import signal
from collections.abc import Callable
from typing import Any, NoReturn, cast

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import formatEvent
from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.settings import Settings
from fleximq.dialects.connection.write_turn import WriteTurn
from fleximq.errors import JournalError
from fleximq.journal.broker_journal import BrokerJournal
from fleximq.journal.recovery.recovered_state import NoQueueState
from fleximq.journal.retention.segment_removal import FreedSpace
from fleximq.services.journal_service import CLEANING_INTERVAL, JournalService, journalFolder, restore
from fleximq.services.process.wakeup import Wakeup
from fleximq.values.state_records import ClientIdsReserved
from tests.broker.parts import makeBroker
from tests.log_observer import observeLog


class Left(Exception):
    """Stands for the end of the process."""


def leave(sentence: str) -> NoReturn:
    """Depart as far as a test can."""
    raise Left(sentence)


class Found:
    """What a journal says it found."""

    snapshot = None
    clean = True
    nextClientId = 3000
    records = 7
    torn = ("the end was torn",)
    lost = ("two are lost",)

    def replay(self, batches: Callable[[Any], None], notes: Callable[[Any], None]) -> None:
        """There is nothing behind the snapshot."""


class Steps:
    """A folder, its opened journal and its writing, which note what is done with them."""

    recovered = Found()

    def __init__(self, steps: list[Any], fault: str | None = None, repair: str | None = None) -> None:
        self.steps = steps
        self.fault = fault
        self.repair = repair
        self.freed = 0
        self.unstored: str | None = None
        self.isRetried = False
        self.isSettled = True
        self.writing = self

    def open(self, queues: Any, onFault: Callable[[], None]) -> "Steps":
        """Open, or say why not."""
        self.steps.append("open")
        self.onFault = onFault
        if self.fault:
            raise JournalError(self.fault)
        return self

    def begin(self) -> None:
        """Begin."""
        self.steps.append("begin")

    def close(self) -> str | None:
        """Close."""
        self.steps.append("close")
        return self.unstored

    def settle(self) -> bool:
        """Store and deliver all records."""
        return self.isSettled

    def look(self) -> None:
        """Look whether the files are there."""
        self.steps.append("look")

    def clean(self, done: Callable[[FreedSpace], None]) -> bool:
        """Clean."""
        self.steps.append("clean")
        done(FreedSpace(0, 0, self.freed))
        return True

    def appendState(self, event: Any) -> None:
        """Take a note."""
        self.steps.append(event)

    def reopen(self, found: Callable[[str | None], None]) -> None:
        """Try again."""
        self.steps.append("reopen")
        found(self.repair)


class Inner(Service):
    """A service that needs the journal, and ends when it is told so."""

    def __init__(self, steps: list[Any]) -> None:
        self.steps = steps
        self.ended: Deferred[None] = Deferred()

    def startService(self) -> None:
        """Start."""
        self.steps.append("start")

    def stopService(self) -> "Deferred[None]":
        """Stop by and by."""
        self.steps.append("stop")
        return self.ended


class JournalServiceTests(SynchronousTestCase):
    """Start, end and signals."""

    def setUp(self) -> None:
        """Steps are noted, and so is the log."""
        self.steps: list[Any] = []
        self.signals: dict[int, Any] = {}
        self.texts: list[str] = []
        self.failures: list[str] = []
        self.reactor = cast(Any, MemoryReactorClock())
        self.reactor.callFromThread = lambda call: call()

        def observe(event: Any) -> None:
            if event.get("log_namespace") == "fleximq.services.journal_service":
                self.texts.append(formatEvent(event))

        observeLog(self, observe)

    def service(self, restore: Callable[[Any], None] | None = None, **journal: Any) -> JournalService:
        """Return a service with a journal of steps and another service in it."""
        self.kept = kept = cast(Any, Steps(self.steps, **journal))
        service = JournalService(
            self.reactor,
            kept,
            BrokerJournal(),
            NoQueueState(),
            restore or (lambda found: self.steps.append("restore")),
            leave,
            Wakeup(self.reactor),
            self.failures.append,
            self.onSignal,
        )
        self.inner = Inner(self.steps)
        self.inner.setServiceParent(service)
        return service

    def onSignal(self, number: int, call: Any) -> Any:
        """Install what a signal calls, and return what it called before."""
        before = self.signals.get(number, signal.SIG_DFL)
        self.signals[number] = call
        return before

    def test_order(self) -> None:
        """Opened and restored before anything starts, closed when all has ended."""
        service = self.service()
        self.assertEqual(self.steps, [])
        service.startService()
        self.assertEqual(self.steps, ["open", "restore", "begin", "look", "clean", "start"])
        ended = service.stopService()
        self.assertEqual(self.steps[6:], ["stop"])
        self.assertNoResult(ended)
        self.inner.ended.callback(None)
        self.successResultOf(ended)
        self.assertEqual(self.steps[7:], ["close"])
        self.assertEqual(self.signals, {signal.SIGUSR2: signal.SIG_DFL})

    def test_lastRecords(self) -> None:
        """It is closed when all records are stored and delivered to queues, or 10 s after that has not succeeded."""
        for seconds in (0.02, 11):
            service = self.service()
            self.kept.isSettled = False
            service.startService()
            self.inner.ended.callback(None)
            ended = service.stopService()
            self.reactor.advance(9)
            self.assertNotIn("close", self.steps)
            self.kept.isSettled = seconds < 1
            self.reactor.advance(seconds)
            self.successResultOf(ended)
            self.assertEqual(self.steps.pop(), "close")

    def test_notOpened(self) -> None:
        """A journal that cannot be opened is why the process ends, in its own sentence; nothing else starts."""
        service = self.service(fault="/x is not a journal")
        self.assertEqual(str(self.assertRaises(Left, service.startService)), "/x is not a journal")
        self.assertEqual((self.steps, self.signals), (["open"], {}))
        self.inner.ended.callback(None)
        self.successResultOf(service.stopService())
        self.assertEqual(self.steps, ["open", "stop"])

    def test_notRestored(self) -> None:
        """What cannot be understood ends it too; the journal is closed and unlocked again."""

        def fail(found: Any) -> None:
            raise KeyError("odd")

        service = self.service(fail)
        self.assertIn("could not be restored: 'odd'", str(self.assertRaises(Left, service.startService)))
        self.assertEqual(self.steps, ["open", "close"])
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)

    def test_log(self) -> None:
        """The log says what was cut, what is lost, and that it is ready."""
        self.service().startService()
        self.assertEqual(self.texts[:2], ["Journal: the end was torn", "Journal: two are lost"])
        self.assertRegex(self.texts[2], r"^The journal is ready in \d+ ms with 7 records$")

    def test_reopened(self) -> None:
        """SIGUSR2 opens it again, and the log says how that went."""
        for repair, words in (
            (None, "The journal was reopened and stores messages again"),
            ("no space left on device", "The journal could not be reopened: no space left on device"),
        ):
            self.service(repair=repair).startService()
            self.signals[signal.SIGUSR2](signal.SIGUSR2, None)
            self.assertEqual((self.steps[-1], self.texts[-1]), ("reopen", words))

    def test_retried(self) -> None:
        """After a shortage it is reopened with growing pauses; the log has a line when it stores messages again."""
        service = self.service(repair="no space left on device")
        service.startService()
        kept = self.kept
        kept.isRetried = True
        lines = len(self.texts)
        kept.onFault()
        kept.onFault()
        for number, pause in enumerate((0.5, 1, 2, 4, 8, 16, 30, 30), 1):
            self.reactor.advance(pause - 0.01)
            self.assertEqual(self.steps.count("reopen"), number - 1)
            self.reactor.advance(0.01)
            self.assertEqual(self.steps.count("reopen"), number)
        self.assertEqual(self.texts[lines:], [])
        kept.repair = None
        self.reactor.advance(30)
        self.assertEqual(self.texts[lines:], ["The journal was reopened and stores messages again"])
        kept.isRetried = False
        self.reactor.advance(300)
        self.assertEqual(self.steps.count("reopen"), 9)

    def test_notRetried(self) -> None:
        """What an operator must mend is not tried again; nor is what an operator has reopened meanwhile."""
        service = self.service()
        service.startService()
        kept = self.kept
        kept.onFault()
        kept.isRetried = True
        kept.onFault()
        kept.isRetried = False
        self.reactor.advance(300)
        self.assertNotIn("reopen", self.steps)

    def test_worseMeanwhile(self) -> None:
        """If the disk fails at an attempt, the log says so, and there is none after it."""
        service = self.service(repair="input/output error")
        service.startService()
        kept = self.kept
        kept.isRetried = True
        kept.onFault()

        def reopen(found: Callable[[str | None], None]) -> None:
            kept.isRetried = False
            found("input/output error")

        kept.reopen = reopen
        self.reactor.advance(0.5)
        self.assertEqual(self.texts[-1], "The journal could not be reopened: input/output error")
        self.assertEqual(self.reactor.getDelayedCalls(), [service._cleaning.call])

    def test_stoppedWhileRetried(self) -> None:
        """A stop ends the attempts; if the last state could not be stored, it says so."""
        service = self.service()
        service.startService()
        kept = self.kept
        kept.isRetried, kept.unstored = True, "no space left on device"
        kept.onFault()
        service.stopService()
        self.inner.ended.callback(None)
        self.assertEqual(self.reactor.getDelayedCalls(), [])
        self.assertEqual(
            self.failures,
            [
                "the journal could not be written at the stop (no space left on device): messages that were "
                "acknowledged or purged since its last write will be delivered again"
            ],
        )

    def test_cleaned(self) -> None:
        """What has expired is looked for at the start and every minute, until the end; the log says what was freed."""
        service = self.service()
        service.startService()
        kept = self.kept
        kept.freed = 4096
        self.reactor.advance(CLEANING_INTERVAL)
        self.assertEqual(self.steps.count("clean"), 2)
        self.assertEqual(self.texts[-1], "Expired records were removed from the journal: 4096 bytes")
        service.stopService()
        self.inner.ended.callback(None)
        self.reactor.advance(3 * CLEANING_INTERVAL)
        self.assertEqual(self.steps.count("clean"), 2)

    def test_clientIds(self) -> None:
        """Client ids go on behind those that the last run may have given."""
        journal: Any = BrokerJournal()
        broker = makeBroker(Clock(), journal)
        journal.become(Steps(self.steps))
        found: Any = Found()
        restore(broker, found)
        self.assertEqual((broker.join("any").id, self.steps), (4000, [ClientIdsReserved(6000)]))

    def test_theSnapshotDoesNotStayInMemory(self) -> None:
        broker = makeBroker(Clock(), BrokerJournal())
        found: Any = Found()
        found.snapshot = {**broker.checkpointer.snapshot()}
        restore(broker, found)
        self.assertIsNone(found.snapshot)


class JournalFolderTests(SynchronousTestCase):
    """Which folder the settings ask for."""

    def make(self, **settings: Any) -> Any:
        """Return the folder for these settings."""
        reactor: Any = MemoryReactorClock()
        reactor.callFromThread = lambda call, *arguments: call(*arguments)
        return journalFolder(Wakeup(reactor), Settings(**settings), WriteTurn(reactor), lambda event, number: None)

    def test_memory(self) -> None:
        """None, and the journal is in memory."""
        self.assertIsNone(self.make())

    def test_disk(self) -> None:
        """A folder, and nothing is opened yet."""
        folder = self.make(journal="/no/such/folder", fsync="interval:5")
        self.assertEqual(folder.context.folder, "/no/such/folder")
