"""A consumer of a named queue: a client that gets deliveries as soon as there are some, and settles each of them.

It has at most ``prefetch`` unsettled deliveries, and none is added while these have :data:`UNSETTLED_BYTES`. One that
asks (:mod:`fleximq.broker.consumers.takes`) has a prefetch of 0, and gets what it asks for.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from fleximq.broker.consumers.lanes import STEP
from fleximq.broker.envelope import ConnectedClient, QueueDelivery, RunDeliveries
from fleximq.broker.queues.numbered_runs import NumberedRuns
from fleximq.errors import BadRequest, BrokerError
from fleximq.values import message_loops
from fleximq.values.message_run import MessageRun
from fleximq.values.queue_keys import MOST_PREFETCH

#: A consumer gets no further deliveries while the payloads of its unsettled ones have so many bytes.
UNSETTLED_BYTES = 16 << 20

#: Seconds of the lease of a delivery to a consumer that asks, if neither it nor the queue's definition names others.
LEASE = 30.0

#: Receives deliveries; each has the tag by which the consumer settles it.
Deliver = Callable[[Sequence[QueueDelivery]], None]


class Ask(NamedTuple):
    """What a consumer asks for: up to ``number`` deliveries, each with a ``lease`` of so many seconds; 0: the queue's,
    or :data:`LEASE`.
    """

    number: int
    lease: float


class QueueConsumer:
    """One client at one queue, which gets no deliveries while it ``isPaused``.

    ``ask`` is what it asks for, None if it gets as many deliveries as its prefetch permits. ``unsettled`` has the sizes
    of the payloads of its deliveries by tag; ``size`` is the sum of these, ``count`` their number. ``since`` is when it
    became a consumer, in seconds of the clock.
    ``leaseEnded`` is called with the tag of a delivery whose lease has ended, if it is not None.

    :param prefetch: maximum number of unsettled deliveries, up to :data:`MOST_PREFETCH`, 0: it gets no further ones;
        raises BadRequest.
    :param deliver: called with deliveries, at most ``prefetch`` at once; it may call :meth:`QueueConsumers.leave`.
    :param ended: called once if the client may not consume from the queue any more.
    """

    __slots__ = (
        "_prefetch", "ask", "client", "closed", "count", "deliver", "ended", "isPaused", "leaseEnded", "since", "size",
        "unsettled",
    )  # fmt: skip

    def __init__(
        self,
        client: ConnectedClient,
        prefetch: int,
        deliver: Deliver,
        ended: Callable[[BrokerError], None],
        since: float = 0.0,
    ) -> None:
        self.since = since
        self.client = client
        self.deliver = deliver
        self.ended = ended
        self.ask: Ask | None = None
        self.leaseEnded: Callable[[int], object] | None = None
        self.setPrefetch(prefetch)
        self.unsettled = NumberedRuns[int](STEP, _sizesOf)
        self.count = self.size = 0
        self.closed = self.isPaused = False

    def setPrefetch(self, number: int) -> None:
        """Change the maximum number of unsettled deliveries; raises BadRequest."""
        if not 0 <= number <= MOST_PREFETCH:
            raise BadRequest(f"prefetch is {number}, but must be between 0 and {MOST_PREFETCH}")
        self._prefetch = number

    @property
    def prefetch(self) -> int:
        """The maximum number of unsettled deliveries."""
        return self._prefetch

    @property
    def name(self) -> str:
        """The name that its client has given itself, else that of its connection."""
        return self.client.service or self.client.name

    @property
    def room(self) -> int:
        """How many more deliveries it may get now."""
        if self.closed or self.isPaused:
            return 0
        if self.ask is not None:
            return self.ask.number
        return self._prefetch - self.count if self.size < UNSETTLED_BYTES else 0

    @property
    def space(self) -> int:
        """How many bytes of payloads it may get now."""
        return UNSETTLED_BYTES if self.ask is not None else UNSETTLED_BYTES - self.size

    def lease(self, usual: float) -> float:
        """Return the seconds of its leases in a queue where they ``usual``ly have so many; 0: until it leaves."""
        return usual if self.ask is None else self.ask.lease or usual or LEASE

    def add(self, deliveries: Sequence[QueueDelivery]) -> None:
        """Count deliveries as unsettled; 0.1 us each, nothing for those of a run."""
        self.count += len(deliveries)
        if type(deliveries) is RunDeliveries:
            self.unsettled.putRun(deliveries.tags, deliveries.messages)
            self.size += deliveries.messages.size
        else:
            self.size += message_loops.addSizes(self.unsettled.single, deliveries)

    def removeRuns(self, tags: range) -> bool:
        """Stop counting deliveries that were made in runs; False, and nothing changes, if others are among them."""
        runs = self.unsettled.popRuns(tags)
        if runs is None:
            return False
        self.count -= len(tags)
        for run in runs:
            self.size -= run.size
        return True

    def remove(self, tags: Sequence[int]) -> tuple[Sequence[int], list[int]]:
        """Stop counting deliveries; return those tags that it had, and the others. 0.1 us each."""
        sizes = self.unsettled.popEach(tags)
        if None not in sizes:
            self.count -= len(sizes)
            self.size -= sum(sizes)  # type: ignore[arg-type]  # there is no None
            return tags, []
        found = [*zip(tags, sizes, strict=True)]
        self.count -= len(sizes) - sizes.count(None)
        self.size -= sum(size for _, size in found if size is not None)
        return [tag for tag, size in found if size is not None], [tag for tag, size in found if size is None]


def _sizesOf(run: MessageRun) -> list[int]:
    return [*map(len, run.payloads)]
