"""The schedules of a broker: messages that it publishes at their time.

A schedule of a durable publication is durable; any other is lost with the process. Due times are milliseconds since
1970 of the system clock. A timer of the monotonic clock wakes the broker at the first due time, and each
:data:`LOOK` seconds, as the system clock may be set: forward, so that schedules are due at once, or back. A message is
never published early by the system clock; it is published once, also if the clock is set back after that.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fleximq.broker.authorization import permit
from fleximq.broker.deadlines import Deadline, Deadlines
from fleximq.broker.envelope import ConnectedClient, Envelope
from fleximq.broker.schedules.due_messages import DueMessage, DuePublisher
from fleximq.broker.schedules.owners import Owners
from fleximq.broker.schedules.timetable import Entries
from fleximq.broker.schedules.waiting_messages import FIRST_VOLATILE, OnAdded, WaitingMessage, WaitingMessages, runOf
from fleximq.errors import BadRequest, BrokerError
from fleximq.rights import Action
from fleximq.values.counted_event import CountedEvent, EventFamily

#: Seconds between two looks at the system clock while schedules wait.
LOOK = 1.0
#: Schedules are at most this far in the future: ten years, in milliseconds.
MOST_AHEAD = 10 * 366 * 86_400_000
#: Maximum number of messages that are read and published at a time.
BATCH = 10_000
#: Seconds until messages that were refused at their time are published again.
RETRY = 1.0
#: Counted for waiting messages that the journal has lost.
LOST = CountedEvent(EventFamily.DROPPED, "schedule lost in the journal")


@dataclass(eq=False, repr=False)
class _Store:
    """A store, and what is taken out of its timetable: ``refused`` waits for the next attempt, ``firing`` is being
    published. ``busy``: due messages are being read.
    """

    waiting: WaitingMessages
    firing: dict[int, tuple[int, int]] = field(default_factory=dict)
    refused: dict[int, tuple[int, int]] = field(default_factory=dict)
    busy: bool = False


class Schedules:
    """All messages of a broker that wait for their time.

    :param stores: those in memory, and those in the journal if it is on disk.
    :param milliseconds: returns the milliseconds since 1970, rounded down.
    :param counted: counts events.
    """

    def __init__(
        self,
        stores: Sequence[WaitingMessages],
        owners: Owners,
        publisher: DuePublisher,
        deadlines: Deadlines,
        milliseconds: Callable[[], int],
        counted: Callable[[str, int], None],
    ) -> None:
        self.owners = owners
        self.now = milliseconds
        self._stores = [_Store(each) for each in stores]
        self._publisher = publisher
        self._deadlines = deadlines
        self._counted = counted
        self._timer: Deadline | None = None
        self._timerAt = 0.0
        self._retrying = False

    def __len__(self) -> int:
        return sum(len(each.waiting.timetable) + len(each.firing) + len(each.refused) for each in self._stores)

    # -- acts of clients -----------------------------------------------------------------------------

    def add(self, envelope: Envelope, body: Any, count: int, due: int, durable: bool, added: OnAdded) -> None:
        """Store the messages of a run until a due time; one in the past is due at once.

        :param durable: store them in the journal.
        :param added: called with their ids after the commit, or with the reason why they are not stored; perhaps
            before this returns.
        :raises BadRequest: the time is too far in the future.
        :raises TooManyRequests: the principal of the publisher has the maximum number.
        :raises NoCapacity: the broker has the maximum number.
        :raises NotKept: the journal stores nothing at present, or the memory for schedules is full.
        """
        if due > self.now() + MOST_AHEAD:
            raise BadRequest("a schedule is at most ten years ahead")
        due = max(due, 0)
        store = self._store(durable) or self._stores[0]
        owner = self.owners.claim(envelope.publisher.principal, count)

        def decided(ids: Sequence[int], reason: str | None) -> None:
            if reason is not None:
                self.owners.release(owner, count)
            else:
                self._arm()
            added(ids, reason)

        try:
            store.waiting.add(envelope, runOf(envelope, body), due, owner, decided)
        except BaseException:
            self.owners.release(owner, count)
            raise

    def _store(self, durable: bool) -> _Store | None:
        return next((each for each in self._stores if each.waiting.durable == durable), None)

    def cancel(self, client: ConnectedClient, number: int, done: Callable[[bool | BrokerError], None]) -> None:
        """Cancel a schedule. ``done`` receives whether it waited, which is False while it is being published; or
        NotPermitted if another principal made it and the client may not publish to its topic.
        """
        store = self._store(durable=number < FIRST_VOLATILE)
        if store is None:
            done(False)
        else:
            store.waiting.find(number, partial(self._cancel, store, client, done))

    def _cancel(
        self,
        store: _Store,
        client: ConnectedClient,
        done: Callable[[bool | BrokerError], None],
        message: WaitingMessage | None,
    ) -> None:
        if message is None:
            done(False)
            return
        try:
            if message.principal is None or message.principal != client.principal:
                permit(client, Action.PUBLISH, message.topic)
        except BrokerError as error:
            done(error)
            return
        due, number = message.due, message.number
        owner = store.waiting.timetable.remove(due, number)
        if owner is None and number in store.refused:
            _, owner = store.refused.pop(number)
        if owner is not None:
            self.owners.release(owner)
            ended = Entries.none()
            ended.insert(0, due, number, owner)
            store.waiting.ended(ended)
        done(owner is not None)

    # -- time ------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Set the timer to the first due time, or to the next look at the system clock."""
        firsts = [each.waiting.timetable.first for each in self._stores if not each.busy]
        dues = [due for due in firsts if due is not None]
        if not dues:
            return
        delay = min(max(0.0, (min(dues) - self.now()) / 1000), LOOK)
        at = self._deadlines.seconds() + delay
        if self._timer is not None and self._timer.active():
            if self._timerAt <= at:
                return
            self._timer.cancel()
        self._timerAt = at
        self._timer = self._deadlines.callLater(delay, self._look)

    def _look(self) -> None:
        for store in self._stores:
            self._fire(store)
        self._arm()

    def _fire(self, store: _Store) -> None:
        """Read the messages that are due, and publish them."""
        if store.busy:
            return
        taken = store.waiting.timetable.takeDue(self.now(), BATCH)
        if not taken.size:
            return
        store.busy = True
        store.firing.update((number, (due, owner)) for due, number, owner in taken.rows())
        store.waiting.fetch(taken, partial(self._found, store, taken))

    def _found(self, store: _Store, taken: Entries, messages: list[DueMessage]) -> None:
        store.busy = False
        if len(messages) < taken.size:
            self._lose(store, taken, messages)
        self._publisher.publish(messages, store.waiting.durable, partial(self._published, store))
        self._arm()

    def _lose(self, store: _Store, taken: Entries, messages: Sequence[DueMessage]) -> None:
        there = {message.number for message in messages}
        lost = Entries.none()
        for due, number, owner in taken.rows():
            if number not in there:
                lost.insert(lost.size, due, number, owner)
                del store.firing[number]
                self.owners.release(owner)
        store.waiting.ended(lost)
        self._counted(LOST, lost.size)

    def _published(self, store: _Store, messages: Sequence[DueMessage], reason: str | None) -> None:
        firing = store.firing
        if reason is None:
            for message in messages:
                del firing[message.number]
                self.owners.release(message.owner)
            store.waiting.published(messages)
            return
        for message in messages:
            store.refused[message.number] = firing.pop(message.number)
        if not self._retrying:
            self._retrying = True
            self._deadlines.callLater(RETRY, self._retry)

    def _retry(self) -> None:
        self._retrying = False
        for store in self._stores:
            refused, store.refused = store.refused, {}
            for number, (due, owner) in refused.items():
                store.waiting.timetable.add(due, number, owner)
        self._arm()
