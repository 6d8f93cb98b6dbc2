"""Deliveries of a queue in flight: hidden until they are acknowledged, until their holder leaves, or until their time.

Deliveries that were made together form a *span*, see :mod:`fleximq.broker.queues.delivery_spans`. Mostly all with a
time are hidden for the same time, so that the first span is the next one due; those without a time are in flight until
their holder leaves. Deliveries that were delayed or extended, or are due before earlier ones, have deadlines of their
own. A queue has one timer for all of them: setting one for each message would cost more than all the rest.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter

from fleximq.broker.deadlines import TOLERANCE, Deadline, Deadlines
from fleximq.broker.envelope import QueueDelivery
from fleximq.broker.queues.delivery_spans import TOGETHER, UNUSED, Span, Spans
from fleximq.broker.queues.numbered_runs import NumberedRuns
from fleximq.broker.queues.own_deadlines import OwnDeadlines
from fleximq.values.message import Message
from fleximq.values.message_run import MessageRun

#: Deliveries taken back at once when they are due, or when their holder has left: about 5 ms.
SLICE = 10_000
#: Additional cost of a message in flight, in bytes: measured 350 to 460.
IN_FLIGHT_OVERHEAD = 448

_new = tuple.__new__
#: In place of what a queue never used: these stay empty.
_NO_DEADLINES = OwnDeadlines()
_NO_SPANS = Spans()


class InFlight:
    """Messages by tag, in order of their deadlines, and by the holder they were given to.

    A message costs one dict entry, 0.05 us, or nothing if it is delivered and acknowledged with the others of its run;
    its fields in common with others are in a span.

    ``leaving`` are the deliveries of holders that left, until :meth:`takeBack` has taken them back.

    :param onReturn: called with deliveries that are due or of a holder that left, when they are removed.
    """

    __slots__ = (
        "_armedFor",
        "_attempts",
        "_deadline",
        "_deadlines",
        "_held",
        "_lasting",
        "_messages",
        "_onReturn",
        "_own",
        "_timed",
        "leaving",
    )

    def __init__(self, deadlines: Deadlines, onReturn: Callable[[list[QueueDelivery]], None]) -> None:
        self._deadlines = deadlines
        self._onReturn = onReturn
        self._deadline: Deadline | None = None
        self._armedFor = 0.0
        self.leaving: Sequence[Sequence[QueueDelivery]] = ()
        self._messages = NumberedRuns[Message](1, MessageRun.messages)
        self._attempts: dict[int, int] = {}  # of those tags that were not delivered for the first time
        self._timed = _NO_SPANS
        self._lasting = _NO_SPANS
        self._own = _NO_DEADLINES
        self._held: dict[object, set[Span]] = {}

    def __len__(self) -> int:
        return len(self._messages)

    def __contains__(self, tag: int) -> bool:
        return tag in self._messages

    @property
    def delayed(self) -> int:
        """The number of messages that wait for a retry, which no consumer has."""
        return len(self._own.delayed)

    def isDelayed(self, tag: int) -> bool:
        """Tell whether a message waits for a retry."""
        return tag in self._own.delayed

    def tags(self, most: int) -> list[int]:
        """Return the tags of the first deliveries."""
        return list(islice(self._messages, most))

    def delayedOnes(self) -> list[QueueDelivery]:
        """Return the messages that wait for a retry."""
        found = [self.get(tag) for tag in self._own.delayed]
        return [each for each in found if each is not None]

    def add(
        self, tags: Sequence[int], messages: Sequence[Message], due: float | None, holder: object, attempts: int = 1
    ) -> None:
        """Add messages that are due back together, or with their holder if ``due`` is None.

        :param tags: ascending; tags between them belong to no message.
        :param holder: any hashable object, remembered until :meth:`release`, or None.
        """
        if not tags:
            return
        if len(tags) == 1:
            self._messages.single[tags[0]] = messages[0]
        elif isinstance(messages, MessageRun) and isinstance(tags, range):
            self._messages.putRun(tags, messages)
        else:
            self._messages.put(tags, messages)
        held = None if holder is None else self._held.setdefault(holder, set())
        if attempts != 1:
            self._attempts.update(dict.fromkeys(tags, attempts))
        # Without further calls: this is the way of every delivery.
        if due is None:
            spans = self._lasting = Spans() if self._lasting is _NO_SPANS else self._lasting
        else:
            spans = self._timed = Spans() if self._timed is _NO_SPANS else self._timed
        first, end, when = tags[0], tags[-1] + 1, due or 0.0
        last = spans[-1] if spans else None
        if last is not None and when < last.due:
            for tag in tags:
                self._putOwn(tag, when, held)
            return
        if (
            last is not None
            and last.end == first
            and last.held is held
            and last.attempts == attempts == 1
            and when <= last.due + TOGETHER
        ):
            last.end = end
        else:
            spans.append(span := Span(first, end, attempts, when, held))
            if held is not None:
                held.add(span)
        spans.covered += end - first
        if due is not None and (self._deadline is None or due < self._armedFor):
            self._arm(due)

    def addAgain(self, deliveries: Iterable[QueueDelivery], due: float | None, holder: object) -> None:
        """Add repeated deliveries, in any order; as :meth:`add`."""
        for tag, message, attempts in deliveries:
            self.add((tag,), (message,), due, holder, attempts)

    def delay(self, delivery: QueueDelivery, due: float) -> None:
        """Hide a message without a holder, in flight or not, until it is due."""
        tag, message, attempts = delivery
        self._messages.single[tag] = message
        if attempts != 1:
            self._attempts[tag] = attempts
        self._putOwn(tag, due, None, isDelayed=True)

    def extend(self, tag: int, due: float, holder: object) -> bool:
        """Set the deadline of a holder's delivery; False if it is not in flight."""
        if tag not in self._messages or tag in self._own.delayed:
            return False
        self._putOwn(tag, due, self._held.setdefault(holder, set()))
        return True

    def _putOwn(self, tag: int, due: float, held: set[Span] | None, isDelayed: bool = False) -> None:
        if self._own is _NO_DEADLINES:
            self._own = OwnDeadlines()
        self._own.put(tag, self._attempts.get(tag, 1), due, held, isDelayed)
        if self._deadline is None or due < self._armedFor:
            self._arm(due)

    def remove(self, tag: int) -> QueueDelivery | None:
        """Forget a delivery and return it; None if it is not in flight."""
        delivery = self.get(tag)
        self.removeMany([tag])
        return delivery

    def takeEach(self, tags: Sequence[int]) -> list[QueueDelivery]:
        """Forget deliveries and return those that are in flight, each once."""
        found = [delivery for tag in dict.fromkeys(tags) if (delivery := self.get(tag)) is not None]
        self.removeMany([delivery.tag for delivery in found])
        return found

    def removeRuns(self, tags: range) -> list[MessageRun] | None:
        """Forget deliveries that were made in runs, and return their messages; None if others are among them."""
        found = self._messages.popRuns(tags)
        if found is not None:
            self._removed(tags)
        return found

    def removeMany(self, tags: list[int]) -> list[Message | None]:
        """Forget deliveries and return their messages; None for each that is not in flight."""
        found = self._messages.popEach(tags)
        self._removed(tags)
        return found

    def _removed(self, tags: Sequence[int]) -> None:
        if self._attempts:
            for tag in tags:
                self._attempts.pop(tag, None)
        if self._own:
            for tag in tags:
                self._own.remove(tag)
        for spans in (self._timed, self._lasting):
            if not spans:
                continue
            first = spans[0]
            if len(tags) == 1 and first.first == tags[0] < first.end - (len(spans) > 1):  # without further calls
                first.first += 1
                spans.covered -= 1
            elif tags:
                spans.trim(tags)
            if spans.covered > UNUSED and spans.covered > 4 * len(self._messages) + UNUSED:
                spans.coverAgain(self._tagsOf)

    def release(self, holder: object) -> None:
        """Forget a holder, and take its deliveries back, oldest message first: a slice now, others in later turns."""
        spans = self._held.pop(holder, ())
        held = sorted([delivery for span in spans for delivery in self._of(span)], key=itemgetter(0))
        if held:
            self.leaving = [*self.leaving, held]
            if len(self.leaving) == 1:
                self._takeBackSlices()

    def _takeBackSlices(self) -> None:
        self.takeBack()
        if self.leaving:
            self._deadlines.callLater(0, self._takeBackSlices)

    def takeBack(self) -> bool:
        """Take back a slice of the deliveries of holders that left, except messages delivered to others since; False if
        there were none.
        """
        if not self.leaving:
            return False
        held = self.leaving[0]
        rest = [held[SLICE:]] if len(held) > SLICE else []
        self.leaving = rest + [*self.leaving[1:]]
        mine = [delivery for delivery in held[:SLICE] if self._isCurrent(delivery)]
        self.removeMany([delivery.tag for delivery in mine])
        self._onReturn(mine)
        return True

    def _arm(self, due: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._armedFor = due
        self._deadline = self._deadlines.callLater(max(0.0, due - self._deadlines.seconds()), self._onDue)

    def _onDue(self) -> None:
        """Take back a slice of the due deliveries, and set the next deadline if any message has one."""
        self._deadline = None
        due = self.takeDue(self._deadlines.seconds() + TOLERANCE, SLICE)
        first = self.firstDue()
        if first is not None:
            self._arm(first)
        self._onReturn(due)

    def _isCurrent(self, delivery: QueueDelivery) -> bool:
        """Tell whether this delivery is in flight, and not a later one of the same message."""
        tag, _, attempts = delivery
        return tag in self._messages and self._attempts.get(tag, 1) == attempts and tag not in self._own.delayed

    def takeDue(self, now: float, most: int) -> list[QueueDelivery]:
        """Remove and return deliveries that are due by ``now``, first due first, about so many."""
        taken: list[QueueDelivery] = []
        while self._timed and (span := self._timed[0]).due <= now and len(taken) < most:
            taken += islice(self._of(span), most - len(taken))
            if len(taken) < most or taken[-1].tag == span.end - 1:
                self._timed.drop()
            else:
                self._timed.shorten(span, taken[-1].tag + 1)
        self.removeMany([delivery.tag for delivery in taken])
        for tag in islice(self._own.dueBy(now), most - len(taken)):
            delivery = self.remove(tag)
            if delivery is not None:
                taken.append(delivery)
        return taken

    def firstDue(self) -> float | None:
        """Return when the next delivery is due, None if none has a time."""
        while self._timed and next(self._of(self._timed[0]), None) is None:
            self._timed.drop()
        own = self._own.firstDue() if self._own else None
        if not self._timed:
            return own
        return self._timed[0].due if own is None else min(own, self._timed[0].due)

    def dues(self, held: bool = True) -> dict[int, float]:
        """Return the tags of all deliveries that have a time, with the time when each is due; without ``held``, only
        those of deliveries that have no holder.
        """
        timed = [span for span in self._timed if held or span.held is None]
        dues = {delivery.tag: span.due for span in timed for delivery in self._of(span)}
        return dues | {tag: span.due for tag, span in self._own.items() if held or span.held is None}

    def own(self) -> set[int]:
        """Return the tags of the messages with deadlines of their own."""
        return set(self._own)

    def get(self, tag: int) -> QueueDelivery | None:
        """Return the delivery with this tag; None if it is not in flight."""
        message = self._messages.get(tag)
        return None if message is None else _new(QueueDelivery, (tag, message, self._attempts.get(tag, 1)))

    def replace(self, delivery: QueueDelivery) -> None:
        """Replace the message of the delivery with the same tag, which must be in flight."""
        self._messages.get(delivery.tag)  # now it is single
        self._messages.single[delivery.tag] = delivery.message

    def deliveries(self) -> list[QueueDelivery]:
        """Return all deliveries: those of runs, then the others in the order in which they were made."""
        attempts = self._attempts.get
        return [
            _new(QueueDelivery, (tag, message, attempts(tag, 1)))
            for tag, message in zip(self._messages, self._messages.values(), strict=True)
        ]

    def clear(self) -> None:
        """Remove all deliveries and holders, and cancel the deadline."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self.leaving = ()
        self._messages.clear()
        self._attempts.clear()
        self._timed = self._lasting = _NO_SPANS
        self._own = _NO_DEADLINES
        self._held.clear()

    def _of(self, span: Span) -> Iterator[QueueDelivery]:
        """Iterate over the deliveries of a span that are still in flight."""
        return (delivery for tag in self._tagsOf(span) if (delivery := self.get(tag)) is not None)

    def _tagsOf(self, span: Span) -> Iterator[int]:
        """Iterate over their tags; without a call for each while no message has attempts or a deadline of its own."""
        tags = iter(self._messages.between(span.first, span.end))
        if self._attempts or span.attempts != 1:
            tags = (tag for tag in tags if self._attempts.get(tag, 1) == span.attempts)
        return (tag for tag in tags if self._own.get(tag, span) is span) if self._own else tags
