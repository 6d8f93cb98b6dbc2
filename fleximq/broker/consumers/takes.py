"""Deliveries that a client takes by one request and settles by another, on any of its connections: a worker by curl.

They belong to the principal of the client, for all its connections together, with a lease: each principal (anonymous
clients together are one) has one client of its own at the broker, its *worker*, which consumes from queues for it. So
its deliveries end with a kick, a ban or a loss of rights as those of other clients do. An idle worker leaves after a
minute.

A waiting take costs its object and one deadline. Tags are texts that begin with a random word of their
consumer, so that tags from before a restart of the broker, or of a deleted queue, are unknown.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from functools import partial

from fleximq.broker.consumers.principal_worker import Done, Place, QueueOperations, Settling, Take, Worker
from fleximq.broker.consumers.queue_consumer import Ask
from fleximq.broker.consumers.queue_distribution import BATCH
from fleximq.broker.envelope import ConnectedClient
from fleximq.errors import BadRequest, NoCapacity, TooManyRequests
from fleximq.limits import MOST_MILLISECONDS
from fleximq.values.queue_keys import MOST_PREFETCH

#: Maximum seconds for which a take waits, and of a lease.
MOST_WAIT, MOST_LEASE = 300.0, 12 * 3600.0
#: Maximum number of waiting takes, and of those of one principal.
MOST_WAITING, MOST_WAITING_EACH = 10_000, 1000
#: Maximum deliveries of a principal that are unsettled or that its waiting takes ask for.
MOST_UNSETTLED = MOST_PREFETCH
#: Seconds for which even a take with ``seconds=0`` waits until the next message is read from disk or returns.
READ_SECONDS = 5.0


@dataclass(eq=False, repr=False)
class Takes:
    """The workers of all principals; ``waiting`` is the number of takes that wait.

    :param randomHex: returns that many random hexadecimal digits.
    """

    _broker: QueueOperations
    _randomHex: Callable[[int], str]
    _: KW_ONLY
    waiting: int = 0
    _workers: dict[str | None, Worker] = field(default_factory=dict)

    def take(self, client: ConnectedClient, name: str, number: int, seconds: float, lease: float, done: Done) -> Take:
        """Take up to ``number`` messages of a queue, made if need be, for the principal of a client; without any, wait
        for so many ``seconds``.

        :param lease: seconds after which they return to the queue unless settled; 0: those of the queue's definition,
            or 30.
        :param done: called once with the result, perhaps before this returns; without need to wait no later than in the
            next turns, when the next message was read from disk or has returned.
        :raises BadRequest: a number is out of its bounds.
        :raises TooManyRequests: the principal has too many waiting takes, or unsettled deliveries.
        :raises NoCapacity: the broker has too many waiting takes.
        :raises BrokerError: as :meth:`fleximq.broker.broker.Broker.consumeFrom`.
        """
        _check("the number of jobs", number, 1, BATCH)
        _check("the seconds to wait", seconds, 0, MOST_WAIT)
        _check("the seconds of a lease", lease, 0, MOST_LEASE)
        worker = self._workerOf(client)
        who = client.principal or "anonymous"
        if worker.waiting >= MOST_WAITING_EACH:
            raise TooManyRequests(f"{who} has {MOST_WAITING_EACH} waiting takes")
        if self.waiting >= MOST_WAITING:
            raise NoCapacity(f"{MOST_WAITING} takes wait already")
        if not worker.hasRoomFor(number, MOST_UNSETTLED):
            raise TooManyRequests(f"{who} has {MOST_UNSETTLED} unsettled deliveries, or asks for so many")
        place = worker.place(name, lambda: self._randomHex(8))
        take = Take(Ask(number, lease), place, done)
        place.add(take)
        if take in place.waiting:
            take.wait(self._broker.deadlines, seconds or READ_SECONDS)
            if not seconds:
                self._giveUpSoon(take, name)
        return take

    def _giveUpSoon(self, take: Take, name: str) -> None:
        """End a take with ``seconds=0``, unless the next message is being read from disk, or returns in this turn."""
        queue = self._broker.queues.get(name)
        again = partial(self._broker.deadlines.callLater, 0, partial(self._giveUpSoon, take, name))
        if queue is not None and queue.preparing and not queue.isBlocked:
            queue.whenPrepared(again)
        elif queue is not None and queue.isReturning:
            again()
        else:
            take.giveUp()

    def settle(
        self, client: ConnectedClient, name: str, settling: Settling, done: Callable[[list[str], str | None], None]
    ) -> None:
        """Settle jobs of a client's principal in a queue: many of them in several turns.

        :param done: called with the tags that are not (or not any more) the principal's, and None when all is on disk,
            or the reason why it is not.
        :raises BadRequest: a time is out of its bounds.
        """
        for _, seconds in settling.retries:
            _check("the seconds before a retry", seconds or 0, 0, MOST_MILLISECONDS / 1000)
        for _, seconds in settling.extends:
            _check("the seconds of a lease", seconds, 0, MOST_LEASE)
        worker = self._workers.get(client.principal)
        place = None if worker is None else worker.places.get(name)
        if worker is None or place is None:
            done(settling.tags, None)
            return
        self._settle(worker, place, settling.slices(), [], done)

    def _settle(
        self,
        worker: Worker,
        place: Place,
        slices: list[Settling],
        unsettled: list[str],
        done: Callable[[list[str], str | None], None],
    ) -> None:
        """Settle a slice now, and the others in the next turns."""
        some, *others = slices
        unsettled += place.settle(some) if worker.places.get(place.name) is place else some.tags
        if others:
            self._broker.deadlines.callLater(0, partial(self._settle, worker, place, others, unsettled, done))
        else:
            self._broker.whenStored(partial(done, unsettled), worker.client)

    def _workerOf(self, client: ConnectedClient) -> Worker:
        worker = self._workers.get(client.principal)
        if worker is None:
            own = self._broker.join(client.dialect, principal=client.principal)
            own.conversation = worker = Worker(self, self._broker, own)
            self._workers[client.principal] = worker
            worker.watch()
        # Those of the latest request; a reload of the settings ends consumption that is not permitted any more.
        worker.client.rights, worker.client.identity = client.rights, client.identity
        return worker

    def remove(self, worker: Worker) -> None:
        """Forget a worker that leaves."""
        del self._workers[worker.client.principal]


def _check(words: str, number: float, least: float, most: float) -> None:
    if not least <= number <= most:  # NaN neither
        raise BadRequest(f"{words} must be between {least:g} and {most:g}")
