"""The schedules of a broker: messages that it publishes at their time, once or repeatedly.

A schedule of a durable publication is durable; any other is lost with the process. Due times are milliseconds since
1970 of the system clock. A timer of the monotonic clock wakes the broker at the first due time, and each
:data:`LOOK` seconds, as the system clock may be set: forward, so that schedules are due at once, or back. A message is
never published early by the system clock; it is published once, also if the clock is set back after that.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fleximq.broker.authorization import mayChange
from fleximq.broker.deadlines import Deadline, Deadlines
from fleximq.broker.envelope import ConnectedClient, Envelope
from fleximq.broker.owners import Owners
from fleximq.broker.schedules.due_messages import DueMessage, DuePublisher
from fleximq.broker.schedules.messages_in_journal import MessagesInJournal
from fleximq.broker.schedules.repeat import Repeat
from fleximq.broker.schedules.repeats import Repeats
from fleximq.broker.schedules.schedule_recovery import ScheduleRecovery
from fleximq.broker.schedules.waiting_messages import (
    FIRST_VOLATILE,
    MessagesInMemory,
    OnAdded,
    WaitingMessage,
    WaitingMessages,
    publishedRun,
)
from fleximq.broker.timetable import Entries
from fleximq.errors import BadRequest, BrokerError
from fleximq.interfaces import IJournal
from fleximq.limits import MOST_MILLISECONDS, Limits
from fleximq.values.counted_event import CountedEvent, EventFamily

#: Seconds between two looks at the system clock while schedules wait.
LOOK = 1.0
#: Maximum number of messages that are published in one turn of the reactor, 30 ms.
BATCH = 10_000
#: Seconds until messages that were refused at their time are published again.
RETRY = 1.0
#: Counted for waiting messages that the journal has lost.
LOST = CountedEvent(EventFamily.DROPPED, "schedule lost in the journal")


class Schedules:
    """All messages of a broker that wait for their time. ``repeats`` are the recurring schedules, ``inMemory`` and
    ``inJournal`` the messages of the others, ``recovery`` saves and restores the durable ones.

    :param firstId: the first id in memory, from 0 to 2**51.
    :param milliseconds: returns the milliseconds since 1970, rounded down.
    :param counted: counts events.
    """

    def __init__(
        self,
        journal: IJournal,
        limits: Limits,
        firstId: int,
        publisher: DuePublisher,
        deadlines: Deadlines,
        milliseconds: Callable[[], int],
        counted: Callable[[str, int], None],
    ) -> None:
        self.owners = Owners("schedules", limits.schedules, limits.schedulesPerPrincipal)
        self.inMemory = MessagesInMemory(FIRST_VOLATILE + firstId, limits.queueBytes)
        self.inJournal = MessagesInJournal(journal, self.owners)
        self.repeats = Repeats(journal, publisher, deadlines, RETRY, self._arm)
        self.recovery = ScheduleRecovery(self.inJournal, self.repeats, self._begin)
        self.now = milliseconds
        self._stores: tuple[WaitingMessages, ...] = (self.inMemory, self.inJournal)
        self._publisher = publisher
        self._deadlines = deadlines
        self._counted = counted
        self._timer: Deadline | None = None
        self._timerAt = 0.0
        self._isRetrying = False
        self._isOpen = not journal.onDisk
        self._settings: Sequence[Repeat] = ()

    def __len__(self) -> int:
        """Return the number of waiting messages, without the recurring ones."""
        return sum(map(len, self._stores))

    def settle(self, repeats: Sequence[Repeat]) -> None:
        """Have these recurring schedules of the settings file, once the journal is open, and no others of it."""
        self._settings = repeats
        if self._isOpen:
            self.repeats.settle(repeats)

    def _begin(self) -> None:
        self._isOpen = True
        self.repeats.settle(self._settings)
        self._arm()

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
        if due > self.now() + MOST_MILLISECONDS:
            raise BadRequest("a schedule is at most ten years ahead")
        store: WaitingMessages = self.inJournal if durable else self.inMemory
        owner = self.owners.claim(envelope.publisher.principal, count)

        def decided(ids: Sequence[int], reason: str | None) -> None:
            if reason is not None:
                self.owners.release(owner, count)
            else:
                self._arm()
            added(ids, reason)

        try:
            store.add(envelope, publishedRun(envelope, body), max(due, 0), owner, decided)
        except BaseException:
            self.owners.release(owner, count)
            raise

    def cancel(self, client: ConnectedClient, number: int, done: Callable[[bool | BrokerError], None]) -> None:
        """Cancel a message. ``done`` receives whether it waited, which is False while it is being published, and for
        one that is hidden from the client; or NotPermitted as :func:`fleximq.broker.authorization.mayChange`.
        """
        store = self.storeOf(number)

        def found(messages: Sequence[WaitingMessage]) -> None:
            if not messages:
                done(False)
                return
            message = messages[0]
            try:
                isKnown = mayChange(client, message.principal, message.topic)
            except BrokerError as error:
                done(error)
                return
            owner = store.cancel(message.due, number) if isKnown else None
            if owner is not None:
                self.owners.release(owner)
            done(owner is not None)

        store.find([number], found)

    def storeOf(self, number: int) -> WaitingMessages:
        """Return the store that a message with this id is in."""
        return self.inJournal if number < FIRST_VOLATILE else self.inMemory

    def after(self, due: int, number: int, most: int) -> Entries:
        """Return the first entries that wait after this due time and id, at most ``most``."""
        rows = [row for each in self._stores for row in each.timetable.after(due, number, most).rows()]
        found = Entries.none()
        for row in sorted(rows)[:most]:
            found.insert(found.size, *row)
        return found

    def find(self, numbers: Sequence[int], found: Callable[[Sequence[WaitingMessage]], None]) -> None:
        """Find waiting messages by their ids, in this order; unknown ones are left out."""
        volatile = [number for number in numbers if number >= FIRST_VOLATILE]
        known: dict[int, WaitingMessage] = {}
        self.inMemory.find(volatile, lambda messages: known.update((each.number, each) for each in messages))

        def read(messages: Sequence[WaitingMessage]) -> None:
            known.update((each.number, each) for each in messages)
            found([known[number] for number in numbers if number in known])

        self.inJournal.find([number for number in numbers if number < FIRST_VOLATILE], read)

    # -- time ------------------------------------------------------------------------------------------

    @property
    def late(self) -> float:
        """The seconds by which the next message is late; 0 if none is due."""
        first = self._first(self._stores)
        return 0.0 if first is None else max(0, self.now() - first) / 1000

    def _first(self, stores: Sequence[WaitingMessages]) -> int | None:
        """Return the first due time of these stores and the recurring schedules."""
        dues = (*(each.timetable.first for each in stores), self.repeats.first)
        return min((due for due in dues if due is not None), default=None)

    def _arm(self) -> None:
        """Set the timer to the first due time, or to the next look at the system clock."""
        first = self._first([each for each in self._stores if not each.reading])
        if first is None:
            return
        delay = min(max(0.0, (first - self.now()) / 1000), LOOK)
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
        self.repeats.fire(self.now())
        self._arm()

    def _fire(self, store: WaitingMessages) -> None:
        """Read the messages that are due, and publish them."""
        if store.reading:
            return
        taken = store.takeDue(self.now())
        if taken.size:
            store.reading = True
            store.fetch(taken, partial(self._fetched, store, taken))

    def _fetched(self, store: WaitingMessages, taken: Entries, messages: list[DueMessage], number: int) -> None:
        store.fetched(taken, number)
        if len(messages) < number:
            self._lose(store, taken.part(0, number), messages)
        self._publishNext(store, messages, 0)

    def _publishNext(self, store: WaitingMessages, messages: list[DueMessage], start: int) -> None:
        """Publish the messages from an index on, a part of them in each turn."""
        end = start + BATCH
        try:
            self._publisher.publish(messages[start:end], store.durable, partial(self._published, store))
        finally:  # an error of one must not stop all others
            if end < len(messages):
                self._deadlines.callLater(0, partial(self._publishNext, store, messages, end))
            else:
                store.reading = False
                self._arm()

    def _lose(self, store: WaitingMessages, taken: Entries, messages: Sequence[DueMessage]) -> None:
        there = {message.number for message in messages}
        lost = Entries.none()
        for due, number, owner in taken.rows():
            if number not in there:
                lost.insert(lost.size, due, number, owner)
                del store.firing[number]
                self.owners.release(owner)
        store.ended(lost)
        self._counted(LOST, lost.size)

    def _published(self, store: WaitingMessages, messages: Sequence[DueMessage], reason: str | None) -> None:
        if reason is None:
            for message in messages:
                del store.firing[message.number]
            for owner, number in Counter([message.owner for message in messages]).items():
                self.owners.release(owner, number)
            store.published(messages)
            return
        for message in messages:
            store.refused[message.number] = store.firing.pop(message.number)
        if not self._isRetrying:
            self._isRetrying = True
            self._deadlines.callLater(RETRY, self._retry)

    def _retry(self) -> None:
        self._isRetrying = False
        for store in self._stores:
            store.retry()
        self._arm()
