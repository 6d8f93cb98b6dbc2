"""All recurring schedules of a broker: each has a name, and publishes its message again and again.

A publication names the schedule and the due time, so it also proves that the schedule has fired: with a journal it is
always durable, and a restart continues after the last due time in the journal. Only one due time of a schedule is
published at a time, the next after its commit.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fleximq.broker.deadlines import Deadlines
from fleximq.broker.schedules.due_messages import DueMessage, DuePublisher, Publisher
from fleximq.broker.schedules.repeat import LATE, Repeat
from fleximq.broker.schedules.schedule_header import opensQueue, repeatedHeader
from fleximq.errors import BadRequest, Conflict, NoCapacity
from fleximq.interfaces import IJournal
from fleximq.values.occurrences import CatchUp, Never, Occurrences
from fleximq.values.state_records import RepeatDefined

#: The maximum number of recurring schedules.
MOST_REPEATS = 1000


@dataclass(eq=False, slots=True)
class Running:
    """A recurring schedule at work: ``next`` is the due time that is published next, None if there is no other.
    ``busy``: one is being published, or was refused and is published again later. ``refused`` is the due time that was
    refused last: it is not a missed one, so that it is published until another one is due.
    """

    definition: Repeat
    times: Occurrences
    next: int | None
    busy: bool = False
    refused: int | None = None

    def done(self, due: int) -> None:
        """Continue after a due time that was published or skipped."""
        if self.next is None or self.next <= due:
            self.next = self.times.after(due)

    def skipMissed(self, now: int) -> None:
        """Skip the missed due times that are not made up for."""
        catchUp = self.definition.catchUp
        if self.next is None or self.next > now or catchUp is CatchUp.ALL:
            return
        last = self.times.last(now)
        if last is not None and last > self.next:
            self.next = last
        if catchUp is CatchUp.NONE and self.next < now - LATE and self.next != self.refused:
            self.next = self.times.after(now - LATE)


class Repeats:
    """The recurring schedules by name.

    :param publisher: publishes their messages.
    :param retry: seconds until a refused message is published again.
    :param changed: called when the first due time may have changed.
    """

    def __init__(
        self,
        journal: IJournal,
        publisher: DuePublisher,
        deadlines: Deadlines,
        retry: float,
        changed: Callable[[], None],
    ) -> None:
        self._journal = journal
        self._publisher = publisher
        self._deadlines = deadlines
        self._retry = retry
        self._changed = changed
        self._running: dict[str, Running] = {}

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[Running]:
        return iter(list(self._running.values()))

    def get(self, name: str) -> Running | None:
        """Return a recurring schedule."""
        return self._running.get(name)

    # -- definitions -----------------------------------------------------------------------------------

    def define(self, repeat: Repeat) -> None:
        """Begin a recurring schedule in place of any other of its name; one that is the same continues.

        :raises BadRequest: its times are wrong.
        :raises Conflict: one of this name is in the settings file.
        :raises NoCapacity: there are :data:`MOST_REPEATS` already.
        """
        before = self._running.get(repeat.name)
        if before is not None and before.definition.isSetting and not repeat.isSetting:
            raise Conflict(f"the schedule {repeat.name!r} is in the broker's settings")
        if before is None and len(self._running) >= MOST_REPEATS:
            raise NoCapacity(f"there are {MOST_REPEATS} recurring schedules already")
        if before is not None and repeat.isSame(before.definition):
            return
        if before is not None and repeat.every == before.definition.every:
            repeat = replace(repeat, start=before.definition.start)
        self._begin(repeat)

    def _begin(self, repeat: Repeat) -> None:
        """Begin with a definition after its commit: a publication must not precede it in the journal."""
        times = repeat.occurrences()
        running = self._running[repeat.name] = Running(repeat, times, times.after(repeat.since), busy=True)
        self._journal.appendState(RepeatDefined(repeat.name, repeat.dump()))
        self._journal.whenCommitted(partial(self._again, running))

    def pause(self, name: str, paused: bool, now: int) -> bool:
        """Pause a recurring schedule, or continue with its first due time after now; return whether it exists."""
        running = self._running.get(name)
        if running is not None and running.definition.paused != paused:
            repeat = replace(running.definition, paused=paused, since=max(now, running.definition.since))
            self._begin(repeat)
        return running is not None

    def remove(self, name: str) -> bool:
        """Remove a recurring schedule, and return whether it existed; raises Conflict for one of the settings file."""
        running = self._running.get(name)
        if running is None:
            return False
        if running.definition.isSetting:
            raise Conflict(f"the schedule {name!r} is in the broker's settings")
        del self._running[name]
        self._journal.appendState(RepeatDefined(name, None))
        return True

    def settle(self, repeats: Sequence[Repeat]) -> None:
        """Define the schedules of the settings file, and remove those that are not in it any more; raises BadRequest
        if one is wrong.
        """
        names = {repeat.name for repeat in repeats}
        for repeat in repeats:
            repeat.occurrences()
        for running in self:
            if running.definition.isSetting and running.definition.name not in names:
                del self._running[running.definition.name]
                self._journal.appendState(RepeatDefined(running.definition.name, None))
        for repeat in repeats:
            self.define(repeat)

    # -- time ------------------------------------------------------------------------------------------

    @property
    def first(self) -> int | None:
        """The first due time that is not being published; None if there is none."""
        dues = [
            each.next
            for each in self._running.values()
            if each.next is not None and not each.busy and not each.definition.paused
        ]
        return min(dues, default=None)

    def fire(self, now: int) -> None:
        """Publish the messages that are due."""
        ready = []
        for running in self:
            if running.definition.paused or running.busy:
                continue
            running.skipMissed(now)
            if running.next is not None and running.next <= now:
                ready.append((running.next, running))
        for due, running in sorted(ready, key=lambda each: each[0]):
            self._publish(running, due)

    def _publish(self, running: Running, due: int) -> None:
        repeat = running.definition
        running.busy = True
        header = repeatedHeader(repeat.header, repeat.name, due)
        publisher, opens = Publisher(*repeat.publisher), opensQueue(repeat.header)
        message = DueMessage(0, due, 0, repeat.topic, publisher, header, repeat.payload, repeat.content, opens)
        self._publisher.publish([message], self._journal.onDisk, partial(self._decided, running, due))

    def _decided(self, running: Running, due: int, messages: Sequence[DueMessage], reason: str | None) -> None:
        if not messages:
            return
        if reason is None:
            running.done(due)
            running.busy = False
            self._changed()
        else:
            running.refused = due
            self._deadlines.callLater(self._retry, partial(self._again, running))

    def _again(self, running: Running) -> None:
        running.busy = False
        self._changed()

    # -- restarts --------------------------------------------------------------------------------------

    def snapshot(self) -> list[Any]:
        """Return the definitions and their next due times, as MessagePack values."""
        return [[each.definition.dump(), each.next] for each in self._running.values()]

    def restore(self, snapshot: Sequence[Any]) -> None:
        """Continue with the definitions of a :meth:`snapshot`."""
        for dumped, due in snapshot:
            self.noted(RepeatDefined(dumped["name"], dumped))
            if due is not None:
                self._running[dumped["name"]].next = due

    def noted(self, note: RepeatDefined) -> None:
        """Apply a state record that was written after the snapshot."""
        self._running.pop(note.name, None)
        if note.definition is not None:
            repeat = Repeat.load(note.definition)
            try:
                times = repeat.occurrences()
            except BadRequest as error:  # cronsim or the time zone is not installed any more
                self._deadlines.onError(error)
                times = Never()
            self._running[note.name] = Running(repeat, times, times.after(repeat.since))

    def fired(self, name: str, due: int) -> None:
        """Learn that a message was published before the restart."""
        running = self._running.get(name)
        if running is not None:
            running.done(due)
