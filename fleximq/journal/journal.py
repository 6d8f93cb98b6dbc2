"""The journal on disk, as the reactor's thread sees it: the one door to this room."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from zope.interface import implementer

from fleximq.interfaces import IJournal
from fleximq.journal.files import Files
from fleximq.journal.fsync import Fsync
from fleximq.limits import MEBIBYTE
from fleximq.message import Message


class Keeper(Protocol):
    """What the broker tells the journal about its queues; see :attr:`DiskJournal.keeper`."""

    def snapshot(self) -> dict[str, Any]:
        """Return all that has to outlive a restart, as MessagePack can hold it; nothing in it changes later."""

    def needed(self) -> Mapping[str, int]:
        """Return, by topic, the lowest offset that a queue still needs."""


class Recovered:
    """What was found when a journal was opened.

    ``snapshot`` is the keeper's, None if there is none. ``nextClientId`` is the first that was never given out, 0 if
    none was noted. ``records`` counts all that is kept. ``torn`` and ``lost`` are sentences for the log.
    """

    snapshot: dict[str, Any] | None
    nextClientId: int
    records: int
    torn: Sequence[str]
    lost: Sequence[str]

    def replay(self, batches: Callable[[Any], None], notes: Callable[[Any], None]) -> None:
        """Give, in order, every Batch and every note from the snapshot's place on; once, before ``begin``."""
        raise NotImplementedError


@implementer(IJournal)
class DiskJournal:
    """Keeps what is durable in the files of one folder.

    :param callFromThread: runs a function on the reactor's thread; safe to call from any.
    :param now: microseconds since 1970.
    :param soon: calls back at the end of the reactor's turn, so that what one turn appends is one commit; None: as
        soon as the writer is idle.
    :param onEvent: is told what is worth counting, and how many.
    :param log: is given sentences for the operator.
    """

    onDisk = True
    keeper: Keeper

    def __init__(
        self,
        directory: str,
        *,
        callFromThread: Callable[..., Any],
        now: Callable[[], int],
        fsync: Fsync = Fsync(),
        files: Files | None = None,
        segmentBytes: int = 64 * MEBIBYTE,
        maxBytes: int = 0,
        crowdedAt: int = 32 * MEBIBYTE,
        soon: Callable[[Callable[[], None]], None] | None = None,
        onEvent: Callable[[str, int], None] = lambda event, number: None,
        log: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self.appended = self.safe = 0
        self.crowded = False
        self.end = 1

    def open(self) -> Recovered:
        """Lock and check the folder, cut off a torn tail, and say what is there. Blocks.

        :raises JournalError: it cannot be used.
        """
        raise NotImplementedError

    def begin(self) -> None:
        """Start to write; ``keeper`` has been set, and is restored."""
        raise NotImplementedError

    def close(self) -> None:
        """Write all that waits, a last checkpoint, and give the lock back. Blocks; nothing raises."""
        raise NotImplementedError

    def append(self, envelope: Any, body: Any, count: int, committed: Callable[[int, str | None], None]) -> int:
        raise NotImplementedError

    def whenSafe(self, call: Callable[[], None], number: int | None = None) -> None:
        raise NotImplementedError

    def whenRoom(self, call: Callable[[], None]) -> None:
        raise NotImplementedError

    def note(self, event: Any) -> None:
        raise NotImplementedError

    def fetch(self, offsets: Sequence[int], most: int, found: Callable[[list[Message]], None]) -> None:
        raise NotImplementedError

    def read(
        self, offset: int, wanted: Callable[[str], bool], most: int, found: Callable[[Sequence[Any], int], None]
    ) -> None:
        raise NotImplementedError

    def bounds(self) -> Mapping[str, Any]:
        raise NotImplementedError

    def offsetAt(self, time: int, found: Callable[[int], None]) -> None:
        raise NotImplementedError

    def readBytes(self, position: int, most: int, found: Callable[[int, bytes, int], None]) -> None:
        raise NotImplementedError

    def stage(
        self, query: str, batch: int, part: str, run: Any, found: Callable[[str | None, str | None], None]
    ) -> None:
        raise NotImplementedError

    def commitStaged(
        self, query: str, batch: int, tokens: Sequence[str], committed: Callable[[int, str | None], None]
    ) -> None:
        raise NotImplementedError

    def abortStaged(self, query: str, batch: int) -> None:
        raise NotImplementedError

    def reopen(self, found: Callable[[str | None], None]) -> None:
        raise NotImplementedError

    def health(self) -> Mapping[str, Any]:
        raise NotImplementedError
