"""Updates the copy of a node that does not own the shard from the stream (/explanation/cluster, Copies)."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from fleximq.cluster.interfaces import AHEAD, ClusterError, ICluster, Piece
from fleximq.cluster.stream_replica import ReplicaError, StreamBehind, StreamReplica

_log = Logger()

#: Seconds between two attempts to join a stream.
RETRY = 1.0
#: A stream that has less than the copy in so many looks in succession is another one, or was set back.
_LOOKS = 5


@dataclass(eq=False)
class Follower:
    """Follows a stream from :meth:`start` to :meth:`stop`; ``heard`` is called for each message, with whether it was
    appended since then. ``reason`` says why the copy is not updated, "" while it is.
    """

    cluster: ICluster
    shard: int
    copy: StreamReplica
    clock: IReactorTime
    _: KW_ONLY
    heard: Callable[[bool], None] = lambda isLater: None

    def __post_init__(self) -> None:
        self.reason = "it has not joined the stream"
        self._stop: Callable[[], None] | None = None
        self._isBehind = self._hasFailed = False
        self._last = self._less = 0
        self._run = 0

    @property
    def applied(self) -> int | None:
        """The last sequence in the copy, for the node's key; None if it is unusable, AHEAD if the stream has less."""
        copy = self.copy
        if self._isBehind or (not self.reason and copy.ahead and copy.sequence >= self._last):
            return AHEAD
        return copy.sequence if not self.reason and copy.usable else None

    @property
    def isCurrent(self) -> bool:
        """Whether the copy has all that the stream had when it was joined."""
        return not self.reason and self.copy.usable and self.copy.sequence >= self._last

    def start(self) -> None:
        """Begin to follow, after the last commit in the copy."""
        self.stop()
        Deferred.fromCoroutine(self._join(self._run)).addErrback(
            lambda failure: _log.failure("following the stream failed", failure)
        )

    def stop(self) -> None:
        """End it; the copy is not changed any more."""
        self._run += 1
        self._hasFailed = False
        if self._stop is not None:
            self._stop()
            self._stop = None

    async def _join(self, run: int) -> None:
        behind = 0
        while run == self._run:
            try:
                bounds = await self.cluster.bounds(self.shard)
                last = await self.cluster.slot(self.shard, bounds.last) if bounds.last >= bounds.first else None
                if run == self._run:
                    end = last.end if last is not None else 0
                    first = self.copy.join(bounds, end)
                    if behind >= _LOOKS:  # not an old answer: its messages may have other numbers now
                        self.copy.readAgain()
                        first = self.copy.join(bounds, end)
                    self.reason, self._isBehind, self._last = "", False, bounds.last
                    self._stop = self.cluster.follow(self.shard, first, self._received)
                return
            except StreamBehind as error:
                self.reason, self._isBehind = str(error), True
                behind += 1
            except ClusterError:
                pass  # the store does not answer at present
            await deferLater(self.clock, RETRY)

    async def look(self) -> None:
        """Join again if the stream was set back, or another one was put in its place: it would never continue here."""
        run, copy, sequence = self._run, self.copy, self.copy.sequence
        if self._stop is None and not self._hasFailed:
            return
        with suppress(ClusterError):
            bounds = await self.cluster.bounds(self.shard)
            isLess = bounds.first > copy.received + 1 if self._hasFailed else bounds.last < max(sequence, bounds.first)
            self._less = self._less + 1 if isLess else 0
            isOther = bounds.created != copy.created or self._less >= _LOOKS
            if isOther and run == self._run:
                self._less = 0
                if self._hasFailed:
                    copy.readAgain()
                self.start()

    def _received(self, messages: Sequence[tuple[int, Piece]]) -> None:
        self.heard(messages[-1][0] > self._last)
        try:
            self.copy.receiveAll(messages)
        except ReplicaError as error:
            self.reason = str(error)
            _log.error("the copy of shard {shard} is not continued: {reason}", shard=self.shard, reason=self.reason)
            self.stop()
            self._hasFailed = True
