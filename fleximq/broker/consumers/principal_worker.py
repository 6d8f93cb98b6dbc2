"""The client of one principal that consumes from queues for its requests, each of which takes some deliveries.

A kick, a ban or a loss of rights ends it as another client: its unsettled deliveries return, its takes end with an
error.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from zope.interface import implementer

from fleximq.broker.consumers.queue_consumer import Ask, Deliver, QueueConsumer
from fleximq.broker.consumers.work_queues import WorkQueues
from fleximq.broker.deadlines import Deadline, Deadlines
from fleximq.broker.envelope import ConnectedClient, QueueDelivery
from fleximq.errors import BrokerError
from fleximq.interfaces import IConversation, IPeer
from fleximq.values.connection_load import ConnectionLoad

#: Seconds after which a worker and its consumers leave if nothing uses them.
IDLE_SECONDS = 60.0
#: Deliveries that are settled in one turn: up to 7 us each.
SLICE = 5000

T = TypeVar("T")


class Job(NamedTuple):
    """A delivery that was taken, with the text by which its principal settles it."""

    tag: str
    delivery: QueueDelivery


#: Receives the result of a take: its jobs, none if it waited in vain, or the error that ended it.
Done = Callable[[Sequence[Job] | BrokerError], None]


class QueueOperations(Protocol):
    """The operations of :class:`fleximq.broker.broker.Broker` that workers use."""

    queues: WorkQueues
    deadlines: Deadlines

    def join(
        self,
        dialect: str,
        peer: IPeer | None = None,
        principal: str | None = None,
    ) -> ConnectedClient:
        """Register a client."""

    def leave(self, client: ConnectedClient, reason: str) -> None:
        """Remove a client."""

    def consumeFrom(
        self,
        client: ConnectedClient,
        name: str,
        deliver: Deliver,
        ended: Callable[[BrokerError], None],
        prefetch: int = 1,
    ) -> QueueConsumer:
        """Make a client a consumer of a queue."""

    def pauseConsuming(self, client: ConnectedClient, name: str, isPaused: bool) -> None:
        """Pause or resume deliveries; resuming delivers at once if the consumer has room."""

    def stopConsuming(self, client: ConnectedClient, name: str) -> None:
        """End a client's consumption from a queue."""

    def settle(
        self,
        client: ConnectedClient,
        name: str,
        acks: Sequence[int] = (),
        retries: Sequence[tuple[int, float | None]] = (),
        rejects: Sequence[tuple[int, str]] = (),
        extends: Sequence[tuple[int, float]] = (),
    ) -> list[int]:
        """Settle deliveries."""

    def whenStored(self, call: Callable[[str | None], None], client: ConnectedClient | None = None) -> None:
        """Call when all changes so far are on disk."""


class Crowd(Protocol):
    """All workers; ``waiting`` is the number of takes that wait."""

    waiting: int

    def remove(self, worker: "Worker") -> None:
        """Forget a worker that leaves."""


class Settling(NamedTuple):
    """The settlement of deliveries by the texts of their tags; times are seconds.

    See :meth:`fleximq.broker.broker.Broker.settle`.
    """

    acks: Sequence[str] = ()
    retries: Sequence[tuple[str, float | None]] = ()
    rejects: Sequence[tuple[str, str]] = ()
    extends: Sequence[tuple[str, float]] = ()

    @property
    def tags(self) -> list[str]:
        """All tags."""
        return [*self.acks, *(tag for tag, _ in (*self.retries, *self.rejects, *self.extends))]

    def slices(self) -> "list[Settling]":
        """Split the settlement into at least one part, each small enough for one turn of the reactor; a tag that
        occurs twice in a list counts once.
        """
        acks, extends = [*dict.fromkeys(self.acks)], [*dict(self.extends).items()]
        retries, rejects = [*dict(self.retries).items()], [*dict(self.rejects).items()]
        if len(acks) + len(extends) + len(retries) + len(rejects) <= SLICE:
            return [Settling(acks, retries, rejects, extends)]
        return [
            *(Settling(acks=part) for part in _parts(acks)),
            *(Settling(retries=part) for part in _parts(retries)),
            *(Settling(rejects=part) for part in _parts(rejects)),
            *(Settling(extends=part) for part in _parts(extends)),
        ]


def _parts(items: Sequence[T]) -> Iterable[Sequence[T]]:
    return (items[place : place + SLICE] for place in range(0, len(items), SLICE))


@dataclass(eq=False, slots=True, repr=False)
class Take:
    """One request for deliveries, which may wait."""

    ask: Ask
    _at: "Place"
    _done: Done
    _deadline: Deadline | None = None

    def giveUp(self) -> None:
        """Stop waiting, with no jobs; a no-op if it does not wait."""
        if self._at.remove(self):
            self.finish(())

    def cancel(self) -> None:
        """Stop waiting without a result; a no-op if it does not wait."""
        if self._at.remove(self):
            self._stopWaiting()

    def wait(self, deadlines: Deadlines, seconds: float) -> None:
        """Wait for so many seconds."""
        self._deadline = deadlines.callLater(seconds, self.giveUp)

    def finish(self, result: Sequence[Job] | BrokerError) -> None:
        """Report the result, and stop waiting."""
        self._stopWaiting()
        self._done(result)

    def _stopWaiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()


@dataclass(eq=False, slots=True, repr=False)
class Place:
    """The takes of one worker at one queue. ``word`` is the beginning of its tags; ``isUsed``: whether it was used
    since :attr:`isIdle` was last read.
    """

    _worker: "Worker"
    name: str
    word: str
    consumer: QueueConsumer = field(init=False)
    waiting: OrderedDict[Take, None] = field(default_factory=OrderedDict)
    isUsed: bool = True

    def add(self, take: Take) -> None:
        """Let a take wait, and deliver to it at once if there are messages."""
        self.isUsed = True
        self.waiting[take] = None
        self._worker.waits(1, take.ask.number)
        self._askNext()

    def remove(self, take: Take) -> bool:
        """Remove a waiting take; False if it does not wait."""
        if take not in self.waiting:
            return False
        del self.waiting[take]
        self._worker.waits(-1, -take.ask.number)
        self._askNext()
        return True

    def _askNext(self) -> None:
        self.consumer.ask = next((take.ask for take in self.waiting), None)
        # Not a pause: this delivers if the consumer has room now.
        self._worker.broker.pauseConsuming(self._worker.client, self.name, False)

    def deliver(self, deliveries: Sequence[QueueDelivery]) -> None:
        """Give deliveries to the take that waits longest."""
        take = next(iter(self.waiting))
        self.remove(take)
        self._worker.handed += len(deliveries)
        take.finish([Job(f"{self.word}-{each.tag}", each) for each in deliveries])

    def fail(self, error: BrokerError) -> None:
        """End all waiting takes with an error."""
        while self.waiting:
            take = next(iter(self.waiting))
            self.remove(take)
            take.finish(error)

    def settle(self, settling: Settling) -> list[str]:
        """Settle deliveries, and return the tags that are not (or not any more) this place's."""
        self.isUsed = True
        known = {tag: int(number) for tag in settling.tags for number in self._numberIn(tag)}
        acks, retries, rejects, extends = settling
        unknown = self._worker.broker.settle(
            self._worker.client,
            self.name,
            [known[tag] for tag in acks if tag in known],
            _pairs(known, retries),
            _pairs(known, rejects),
            _pairs(known, extends),
        )
        gone = {f"{self.word}-{tag}" for tag in unknown}
        return [tag for tag in settling.tags if tag not in known or tag in gone]

    def _numberIn(self, tag: str) -> Iterable[str]:
        word, _, number = tag.partition("-")
        return (number,) if word == self.word and number.isdecimal() and number.isascii() and len(number) < 20 else ()

    @property
    def isIdle(self) -> bool:
        """Whether it has no waiting take and no unsettled delivery, and was not used since this was last read."""
        isUsed, self.isUsed = self.isUsed, False
        return not (isUsed or self.waiting or self.consumer.unsettled)


def _pairs(known: dict[str, int], pairs: Iterable[tuple[str, T]]) -> list[tuple[int, T]]:
    return [(known[tag], each) for tag, each in pairs if tag in known]


@implementer(IConversation)
@dataclass(eq=False, slots=True, repr=False)
class Worker:
    """The client of one principal that consumes, and its places by queue.

    ``waiting`` takes ask for ``promised`` deliveries; ``handed`` is at least the number of unsettled ones.
    """

    _crowd: "Crowd"
    broker: QueueOperations
    client: ConnectedClient
    places: dict[str, Place] = field(default_factory=dict)
    waiting: int = 0
    promised: int = 0
    handed: int = 0

    def waits(self, takes: int, deliveries: int) -> None:
        """Change the numbers of waiting takes, and of the deliveries that they ask for."""
        self.waiting += takes
        self.promised += deliveries
        self._crowd.waiting += takes

    def hasRoomFor(self, number: int, most: int) -> bool:
        """Return whether it may ask for so many more deliveries, if ``most`` may be unsettled or asked for."""
        if self.handed + self.promised + number > most:
            self.handed = sum(len(place.consumer.unsettled) for place in self.places.values())
        return self.handed + self.promised + number <= most

    def place(self, name: str, word: Callable[[], str]) -> Place:
        """Return its place at a queue; errors as :meth:`fleximq.broker.broker.Broker.consumeFrom`."""
        place = self.places.get(name) or Place(self, name, word())
        # Also for a place that exists: this checks the current rights again.
        place.consumer = self.broker.consumeFrom(self.client, name, place.deliver, partial(self._lost, name), 0)
        self.places[name] = place
        return place

    def _lost(self, name: str, error: BrokerError) -> None:
        place = self.places.pop(name, None)
        if place is not None:
            place.fail(error)

    def watch(self) -> None:
        """Once a minute, stop consuming from unused queues, and leave without any."""
        self.broker.deadlines.callLater(IDLE_SECONDS, self._look)

    def _look(self) -> None:
        for place in list(self.places.values()):
            if place.isIdle:
                del self.places[place.name]
                with suppress(BrokerError):  # another node has the queue
                    self.broker.stopConsuming(self.client, place.name)
        if self.client.conversation is not self:  # it has left
            return
        if self.places:
            self.watch()
        else:
            self._leave("idle")

    def _leave(self, reason: str) -> None:
        self._crowd.remove(self)
        self.broker.leave(self.client, reason)

    def rightsChanged(self, lost: Sequence[str]) -> None:
        """A no-op: the broker itself ends the consumption that is not permitted any more."""

    def refusal(self) -> str | None:
        return None

    def load(self) -> ConnectionLoad:
        """Return zeros: it has no connection of its own, and the connections of its requests count the traffic."""
        return ConnectionLoad(0, 0, 0, 0)

    def expel(self, error: BrokerError) -> None:
        """End all takes; unsettled deliveries return to their queues."""
        self._leave(f"error {int(error.status)}")
        for name in list(self.places):
            self._lost(name, error)
