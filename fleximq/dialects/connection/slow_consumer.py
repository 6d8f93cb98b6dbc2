"""Policies for consumers that read more slowly than messages arrive (docs/guides/operating.rst).

A policy is called only while the peer does not read. A message that begins below the mark is always taken; the policy
decides about a run that would exceed it.

:class:`Drop` never drops answers; at twice the mark they close the connection. Under :class:`Block` a consumer that
publishes itself is never blocked by its own backlog, but disconnected at twice the mark too.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from fleximq.config.option_values import SlowConsumer
from fleximq.dialects.connection.read_pauses import ReadPauses
from fleximq.values.counted_event import CountedEvent, EventFamily

#: Seconds for which a consumer may pause its publishers.
MAX_BLOCK_SECONDS = 10.0
#: Counter event: deliveries dropped by the policy.
DROPPED = CountedEvent(EventFamily.DROPPED, "slow consumer")


class ReaderBacklog(Protocol):
    """The part of an outbox that a policy uses."""

    limit: int
    messagesWithin: Callable[[bytes | memoryview, int], tuple[int, int]]

    @property
    def space(self) -> int:
        """Free bytes up to the mark; negative above it."""

    @property
    def reader(self) -> "PausablePublisher | None":
        """The connection whose read is being processed, that is, the publisher, if any."""

    def hold(self, chunk: bytes | memoryview) -> None:
        """Buffer these bytes until the peer has read all earlier ones."""

    def overflow(self) -> None:
        """Report that the consumer is too slow."""

    def whenRelieved(self, call: Callable[[], None]) -> None:
        """Call once, when the peer has read all buffered bytes or the connection is lost."""


class PausablePublisher(Protocol):
    """The part of a publishing connection that a policy uses."""

    @property
    def outbox(self) -> ReaderBacklog:
        """The publisher's own outbox."""

    @property
    def readPauses(self) -> ReadPauses:
        """Pauses reading from the publisher."""


class Disconnect:
    """Disconnects a slow consumer."""

    #: Answers may use the mark times this factor.
    answerFactor = 1

    def deliver(self, outbox: ReaderBacklog, chunk: bytes | memoryview, count: int) -> None:
        """Buffer a run that fits; a larger one ends the connection."""
        space = outbox.space
        if space > 0 and (count == 1 or len(chunk) <= space):
            outbox.hold(chunk)
        else:
            outbox.overflow()


DISCONNECT = Disconnect()


@dataclass(slots=True, eq=False)
class Drop:
    """Drops the newest deliveries; ``counted`` is called with :data:`DROPPED` and their number."""

    counted: Callable[[str, int], None]
    answerFactor: ClassVar[int] = 2

    def deliver(self, outbox: ReaderBacklog, chunk: bytes | memoryview, count: int) -> None:
        """Buffer the messages of a run that fit; drop and count the others."""
        space = outbox.space
        if space > 0 and len(chunk) > space and count > 1:
            end, taken = outbox.messagesWithin(chunk, space)
            outbox.hold(chunk[:end])
            count -= taken
        elif space > 0:
            outbox.hold(chunk)
            return
        self.counted(DROPPED, count)


@dataclass(slots=True, eq=False)
class Block:
    """Pauses publishers until the consumer has caught up; disconnects it after ``longest`` seconds."""

    clock: IReactorTime
    longest: float = MAX_BLOCK_SECONDS
    answerFactor: ClassVar[int] = 2
    _waiting: dict[ReaderBacklog, IDelayedCall] = field(default_factory=dict, init=False)

    def deliver(self, outbox: ReaderBacklog, chunk: bytes | memoryview, count: int) -> None:
        """Buffer the run, and pause its publisher while the backlog exceeds the mark."""
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
            self._waiting[outbox] = self.clock.callLater(self.longest, self._giveUp, outbox)
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
