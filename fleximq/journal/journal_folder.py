"""The folder of a journal that is not open. :meth:`JournalFolder.open` locks, checks and repairs it."""

import secrets
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from fleximq.config.journal_options import Fsync
from fleximq.errors import JournalError
from fleximq.interfaces import IQueueState
from fleximq.journal.disk_writing import DiskWriting, MakeWorker
from fleximq.journal.files.folder_files import Lock, checkFolder, identify
from fleximq.journal.files.journal_context import JournalContext
from fleximq.journal.files.segment_table import SegmentTable
from fleximq.journal.format.control_frames import LostRange
from fleximq.journal.opened_journal import JournalLimits, OpenedJournal
from fleximq.journal.reading.reader_thread import ReaderThread
from fleximq.journal.recovery.recovered_state import NoQueueState
from fleximq.journal.recovery.recovery import recover
from fleximq.journal.retention.former_patterns import withFormer
from fleximq.journal.writing.writer_thread import WriterThread, reasonOf

_ALWAYS = Fsync("always")
_NO_LIMITS = JournalLimits()


class JournalFolder:
    """The folder of a journal, and the settings with which to open it. It neither opens nor reads a file before
    :meth:`open`.

    :param context: the folder's path and files, and the clock and log of the journal.
    :param fsync: when commits are synced to the disk.
    :param limits: the sizes in bytes, and the rules for the removal of records.
    :param makeWorker: makes the worker that writes, by default a thread; ``makeReader`` the one that reads.
    """

    def __init__(
        self,
        context: JournalContext,
        fsync: Fsync = _ALWAYS,
        limits: JournalLimits = _NO_LIMITS,
        makeWorker: MakeWorker = WriterThread,
        makeReader: Callable[..., ReaderThread] = ReaderThread,
    ) -> None:
        self.context = context
        self.limits = limits
        self._fsync = fsync
        self._makeWorker = makeWorker
        self._makeReader = makeReader

    def open(self, queues: IQueueState | None = None, onFault: Callable[[], None] = lambda: None) -> OpenedJournal:
        """Lock and check the folder, cut off a torn tail, and return the journal; blocks.

        :param queues: the broker's queues, of which the journal stores snapshots; by default there are none. Restore
            them from ``recovered`` before :meth:`OpenedJournal.begin`.
        :param onFault: called when the journal becomes read-only.
        :raises JournalError: another process holds the lock, or the folder cannot be used; it is unlocked again.
        """
        files, folder = self.context.files, self.context.folder
        checkFolder(files, folder)
        files.reserve()
        lock = Lock(files, folder)
        try:
            return self._opened(lock, queues or NoQueueState(), onFault)
        except OSError as error:
            lock.release()
            raise JournalError(f"the journal in {folder} cannot be opened: {reasonOf(error)}") from error
        except BaseException:
            lock.release()
            raise

    def _opened(self, lock: Lock, queues: IQueueState, onFault: Callable[[], None]) -> OpenedJournal:
        context = self.context
        journalId = identify(context.files, context.folder, lambda: secrets.token_hex(16))
        notices: list[str] = []
        recovered = recover(context.files, context.folder, journalId, notices.append)
        return OpenedJournal(
            context,
            self.limitsFor(recovered.segments, notices),
            recovered,
            self.reader(recovered.segments, partial(recovered.reportLost, context)),
            queues,
            partial(DiskWriting, context, self._fsync, self._makeWorker, lock),
            journalId=journalId,
            notices=notices,
            onFault=onFault,
        )

    def limitsFor(self, segments: SegmentTable, notices: list[str]) -> JournalLimits:
        """Return the limits, with rules also for stored messages of topics that are not durable any more.

        :param notices: gets a sentence for the operator about these topics.
        """
        limits, context = self.limits, self.context
        if limits.rules is None:
            return limits
        rules, topics = withFormer(limits.rules, context.files, context.folder, segments)
        if topics:
            notices.append(
                f"topics with stored messages that are not durable any more: {topics}; their messages so far are not "
                "deleted, but expire as --retention says"
            )
        return replace(limits, rules=rules)

    def reader(self, segments: SegmentTable, lost: Callable[[LostRange, str], None]) -> ReaderThread:
        """Return a reader of these segments; ``lost`` is called with new damage and its reason."""
        context = self.context
        return self._makeReader(context.files, context.folder, segments, context.callFromThread, lost, context.log)
