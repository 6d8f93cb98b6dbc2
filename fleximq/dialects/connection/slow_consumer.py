"""What happens when a consumer reads more slowly than its subscriptions bring (docs/operating.rst).

Asked only while a connection's peer does not keep up. A message that comes below the mark is taken whole; of a run
that would go over it, the policy decides.

- ``disconnect``: the consumer is cut off, as soon as it would go over the mark.
- ``drop``: what is newest is left out and counted; answers are never left out, and at twice the mark they end it.
- ``block``: publishers are not read until the consumer has caught up, for at most :data:`MAX_BLOCK_SECONDS` seconds;
then it
  is cut off. A consumer that publishes itself is never blocked by its own backlog, and at twice the mark it is cut
  off as well.
"""

from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from fleximq.config.settings import SlowConsumer
from fleximq.dialects.connection.read_pauses import ReadPauses
from fleximq.values.counted_event import CountedEvent, EventFamily

#: Seconds for which a consumer may hold up its publishers.
MAX_BLOCK_SECONDS = 10.0
#: What is left out is counted under this name.
DROPPED = CountedEvent(EventFamily.DROPPED, "slow consumer")


class ReaderBacklog(Protocol):
    """What a policy sees of an outbox."""

    limit: int
    cut: Callable[[bytes | memoryview, int], tuple[int, int]]

    @property
    def space(self) -> int:
        """How many bytes there are up to the mark; negative above it."""

    @property
    def reader(self) -> "PausablePublisher | None":
        """Whose read is being worked through: who publishes, if somebody does."""

    def hold(self, chunk: bytes | memoryview) -> None:
        """Keep these bytes until the peer has read what came before them."""

    def overflow(self) -> None:
        """Say that the consumer is too slow."""

    def whenRelieved(self, call: Callable[[], None]) -> None:
        """Call once, when the peer has read all that is held, or is gone."""


class PausablePublisher(Protocol):
    """What a policy sees of a connection that publishes."""

    @property
    def outbox(self) -> ReaderBacklog:
        """Its own outbox."""

    @property
    def readPauses(self) -> ReadPauses:
        """Whether it is read."""


class Disconnect:
    """Cuts a slow consumer off."""

    #: How many times the mark answers may take up.
    answerFactor = 1

    def deliver(self, outbox: ReaderBacklog, chunk: bytes | memoryview, count: int) -> None:
        """Take what fits; more ends the connection."""
        space = outbox.space
        if space > 0 and (count == 1 or len(chunk) <= space):
            outbox.hold(chunk)
        else:
            outbox.overflow()


DISCONNECT = Disconnect()


class Drop:
    """Leaves the newest deliveries out.

    :param counted: is told how many messages were left out.
    """

    answerFactor = 2

    def __init__(self, counted: Callable[[str, int], None]) -> None:
        self._counted = counted

    def deliver(self, outbox: ReaderBacklog, chunk: bytes | memoryview, count: int) -> None:
        """Take what fits, at the end of a message, and count the rest."""
        space = outbox.space
        if space > 0 and len(chunk) > space and count > 1:
            end, taken = outbox.cut(chunk, space)
            outbox.hold(chunk[:end])
            count -= taken
        elif space > 0:
            outbox.hold(chunk)
            return
        self._counted(DROPPED, count)


class Block:
    """Holds the publishers up instead.

    :param longest: seconds for which a consumer may do that.
    """

    answerFactor = 2

    def __init__(self, clock: IReactorTime, longest: float = MAX_BLOCK_SECONDS) -> None:
        self._clock = clock
        self._longest = longest
        self._waiting: dict[ReaderBacklog, IDelayedCall] = {}

    def deliver(self, outbox: ReaderBacklog, chunk: bytes | memoryview, count: int) -> None:
        """Take it, and read no more from whoever published it while the backlog is over the mark."""
        outbox.hold(chunk)
        if outbox.space >= 0:
            return
        reader = outbox.reader
        if reader is not None and reader.outbox is not outbox:
            reader.readPauses.pause(outbox)
            outbox.whenRelieved(lambda: reader.readPauses.resume(outbox))
        elif -outbox.space > outbox.limit:
            outbox.overflow()
        if outbox not in self._waiting:
            self._waiting[outbox] = self._clock.callLater(self._longest, self._giveUp, outbox)
            outbox.whenRelieved(lambda: self._relieved(outbox))

    def _relieved(self, outbox: ReaderBacklog) -> None:
        timer = self._waiting.pop(outbox, None)
        if timer is not None and timer.active():
            timer.cancel()

    def _giveUp(self, outbox: ReaderBacklog) -> None:
        if self._waiting.pop(outbox, None) is not None:
            outbox.overflow()


Policy = Disconnect | Drop | Block


def policyOf(setting: SlowConsumer, clock: IReactorTime, counted: Callable[[str, int], Any]) -> Policy:
    """Return the policy that a setting names."""
    if setting is SlowConsumer.DROP:
        return Drop(counted)
    return Block(clock) if setting is SlowConsumer.BLOCK else Disconnect()
