"""Deliveries of a queue in flight: hidden until they are acknowledged, until their holder leaves, or until their time.

Deliveries that were made together form a *span*. All are hidden for the same time, so that the first span is the next
one due. A queue has one deadline for all of them, not moved before it is due: setting one for each message would cost
more than all the rest.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter

from fleximq.broker.deadlines import TOLERANCE, Deadline, Deadlines
from fleximq.broker.envelope import QueueDelivery
from fleximq.broker.queues.backlog import NEVER_USED
from fleximq.values.message import Message

#: Deliveries taken back at once when they are due, or when their holder has left: about 5 ms.
SLICE = 10_000
#: Additional cost of a message in flight: measured 350 to 460.
IN_FLIGHT_OVERHEAD = 448

#: Spans are made again when they cover more tags than four times those in flight and so many.
_UNUSED = 4096
#: Messages delivered within so many seconds are due together.
_TOGETHER = 0.001
_new = tuple.__new__


class _Span:
    """Tags from ``first`` to before ``end`` that were delivered together: those in flight are due and held together."""

    __slots__ = ("attempts", "due", "end", "first", "held")

    def __init__(self, first: int, end: int, attempts: int, due: float, held: set["_Span"] | None) -> None:
        self.first = first
        self.end = end
        self.attempts = attempts
        self.due = due
        self.held = held
        if held is not None:
            held.add(self)


class InFlight:
    """Messages by tag, in order of their deadlines, and by the holder they were given to.

    A message costs one dict entry, 0.05 us in runs. Its fields in common with others are in a span. Spans
    cover at most four times as many tags as are in flight, or some more; then they are made again.

    ``leaving`` are the deliveries of holders that left, until :meth:`takeBack` has taken them back.

    :param onReturn: called with deliveries that are due or of a holder that left, when they are removed.
    """

    __slots__ = (
        "_attempts",
        "_covered",
        "_deadline",
        "_deadlines",
        "_held",
        "_messages",
        "_onReturn",
        "_spans",
        "leaving",
    )

    def __init__(self, deadlines: Deadlines, onReturn: Callable[[list[QueueDelivery]], None]) -> None:
        self._deadlines = deadlines
        self._onReturn = onReturn
        self._deadline: Deadline | None = None
        self.leaving: Sequence[Sequence[QueueDelivery]] = ()
        self._messages: dict[int, Message] = {}
        self._attempts: dict[int, int] = {}  # of those tags that were not delivered for the first time
        self._spans: deque[_Span] = NEVER_USED
        self._covered = 0
        self._held: dict[object, set[_Span]] = {}

    def __len__(self) -> int:
        return len(self._messages)

    def __contains__(self, tag: int) -> bool:
        return tag in self._messages

    def add(
        self, tags: Sequence[int], messages: Sequence[Message], due: float, holder: object, attempts: int = 1
    ) -> None:
        """Add messages that are due back together, never earlier than those before.

        :param tags: ascending; tags between them belong to no message.
        :param holder: any hashable object, remembered until :meth:`release`, or None.
        """
        if not tags:
            return
        if self._deadline is None:
            self._arm(due)
        if len(tags) == 1:
            self._messages[tags[0]] = messages[0]
        else:
            self._messages.update(zip(tags, messages, strict=True))
        held = None if holder is None else self._held.setdefault(holder, set())
        if attempts != 1:
            self._attempts.update(dict.fromkeys(tags, attempts))
        elif self._spans:
            last = self._spans[-1]
            if last.end == tags[0] and last.held is held and due <= last.due + _TOGETHER and last.attempts == 1:
                self._covered += tags[-1] + 1 - last.end
                last.end = tags[-1] + 1
                return
        if self._spans is NEVER_USED:
            self._spans = deque()
        self._append(_Span(tags[0], tags[-1] + 1, attempts, due, held))

    def addAgain(self, deliveries: Iterable[QueueDelivery], due: float, holder: object) -> None:
        """Add repeated deliveries, in any order; as :meth:`add`."""
        for tag, message, attempts in deliveries:
            self.add((tag,), (message,), due, holder, attempts)

    def remove(self, tag: int) -> QueueDelivery | None:
        """Forget a delivery and return it; None if it is not in flight."""
        delivery = self.get(tag)
        self.removeMany([tag])
        return delivery

    def removeMany(self, tags: list[int]) -> list[Message | None]:
        """Forget deliveries and return their messages; None for each that is not in flight."""
        pop = self._messages.pop
        found = [pop(tag, None) for tag in tags] if len(tags) > 1 else [pop(tags[0], None)] if tags else []
        if self._attempts:
            for tag in tags:
                self._attempts.pop(tag, None)
        self._trim(tags)
        if self._covered > 4 * len(self._messages) + _UNUSED:
            self._coverAgain()
        return found

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
        self._deadline = self._deadlines.callLater(max(0.0, due - self._deadlines.seconds()), self._onDue)

    def _onDue(self) -> None:
        """Take back a slice of the due deliveries, and set the next deadline if any message is in flight."""
        self._deadline = None
        due = self.takeDue(self._deadlines.seconds() + TOLERANCE, SLICE)
        first = self.firstDue()
        if first is not None:
            self._arm(first)
        self._onReturn(due)

    def _isCurrent(self, delivery: QueueDelivery) -> bool:
        """Tell whether this delivery is in flight, and not a later one of the same message."""
        tag, _, attempts = delivery
        return tag in self._messages and self._attempts.get(tag, 1) == attempts

    def takeDue(self, now: float, most: int) -> list[QueueDelivery]:
        """Remove and return deliveries that are due by ``now``, first due first, about so many."""
        taken: list[QueueDelivery] = []
        while self._spans and (span := self._spans[0]).due <= now and len(taken) < most:
            taken += islice(self._of(span), most - len(taken))
            if len(taken) < most or taken[-1].tag == span.end - 1:
                self._drop()
            else:
                self._shorten(span, taken[-1].tag + 1)
        self.removeMany([delivery.tag for delivery in taken])
        return taken

    def firstDue(self) -> float | None:
        """Return when the next delivery is due, None if none is in flight."""
        while self._spans and next(self._of(self._spans[0]), None) is None:
            self._drop()
        return self._spans[0].due if self._spans else None

    def dues(self) -> dict[int, float]:
        """Return the tags of all deliveries with the time when each is due, first due first."""
        return {delivery.tag: span.due for span in self._spans for delivery in self._of(span)}

    def get(self, tag: int) -> QueueDelivery | None:
        """Return the delivery with this tag; None if it is not in flight."""
        message = self._messages.get(tag)
        return None if message is None else _new(QueueDelivery, (tag, message, self._attempts.get(tag, 1)))

    def replace(self, delivery: QueueDelivery) -> None:
        """Replace the message of the delivery with the same tag, which must be in flight."""
        self._messages[delivery.tag] = delivery.message

    def deliveries(self) -> list[QueueDelivery]:
        """Return all deliveries, first due first."""
        attempts = self._attempts.get
        return [_new(QueueDelivery, (tag, message, attempts(tag, 1))) for tag, message in self._messages.items()]

    def clear(self) -> None:
        """Remove all deliveries and holders, and cancel the deadline."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self.leaving = ()
        self._messages.clear()
        self._attempts.clear()
        self._spans = NEVER_USED
        self._covered = 0
        self._held.clear()

    def _of(self, span: _Span) -> Iterator[QueueDelivery]:
        """Iterate over the deliveries of a span that are still in flight."""
        for tag in range(span.first, span.end):
            delivery = self.get(tag)
            if delivery is not None and delivery.attempts == span.attempts:
                yield delivery

    def _append(self, span: _Span) -> None:
        self._spans.append(span)
        self._covered += span.end - span.first

    def _drop(self) -> None:
        span = self._spans.popleft()
        self._covered -= span.end - span.first
        if span.held is not None:
            span.held.discard(span)

    def _shorten(self, span: _Span, first: int) -> None:
        self._covered -= first - span.first
        span.first = first

    def _trim(self, tags: list[int]) -> None:
        """Shorten the first spans by these tags, if consumers acknowledge in the order of delivery."""
        spans = self._spans
        if not spans or not tags or tags[0] != spans[0].first:
            return
        if len(tags) > 1 and tags != [*range(tags[0], tags[0] + len(tags))]:
            return
        end = tags[-1] + 1
        while len(spans) > 1 and tags[0] <= spans[0].first and spans[0].end <= end:
            self._drop()
        first = spans[0]
        if tags[0] <= first.first < end:
            self._shorten(first, min(end, first.end))  # an empty one stays, as the next message may extend it

    def _coverAgain(self) -> None:
        """Replace each span by spans of the neighbouring tags in it that are in flight."""
        for _ in range(len(self._spans)):
            span = self._spans[0]
            self._drop()
            first = end = 0
            for delivery in (*self._of(span), None):
                if delivery is not None and delivery.tag == end:
                    end += 1
                    continue
                if end:
                    self._append(_Span(first, end, span.attempts, span.due, span.held))
                if delivery is not None:
                    first, end = delivery.tag, delivery.tag + 1
