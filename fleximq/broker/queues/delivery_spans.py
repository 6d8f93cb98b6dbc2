"""Deliveries that were made together, as ranges of tags: their deadline and holder are stored once.

The fields in common of a million deliveries in runs of 1,000 take as much as a thousand of them. A range remains until
all of its tags have left; ranges that cover many more tags than are in flight are made again.
"""

from collections import deque
from collections.abc import Callable, Iterator

from fleximq.broker.envelope import QueueDelivery
from fleximq.broker.queues.backlog import NEVER_USED

#: Messages delivered within so many seconds are due together.
_TOGETHER = 0.001
#: Spans are made again when they cover more tags than four times those in flight and so many.
_UNUSED = 4096


class Span:
    """Tags from ``first`` to before ``end`` that were delivered together: those in flight are due and held together."""

    __slots__ = ("attempts", "due", "end", "first", "held")

    def __init__(self, first: int, end: int, attempts: int, due: float, held: set["Span"] | None) -> None:
        self.first = first
        self.end = end
        self.attempts = attempts
        self.due = due
        self.held = held
        if held is not None:
            held.add(self)

    def leave(self) -> None:
        """Remove it from those of its holder."""
        if self.held is not None:
            self.held.discard(self)


class Spans:
    """Spans in the order in which they are due; ``covered`` is the number of tags between their first and last ones."""

    __slots__ = ("_spans", "covered")

    def __init__(self) -> None:
        self._spans: deque[Span] = NEVER_USED
        self.covered = 0

    def __bool__(self) -> bool:
        return bool(self._spans)

    def __iter__(self) -> Iterator[Span]:
        return iter(self._spans)

    @property
    def first(self) -> Span:
        """The one that is due first; there must be one."""
        return self._spans[0]

    def add(self, first: int, end: int, attempts: int, due: float, held: set[Span] | None) -> bool:
        """Add tags delivered now, to the last span if they follow it; False if the last span is due later than they."""
        if self._spans:
            last = self._spans[-1]
            if due < last.due:
                return False
            isSame = last.held is held and last.attempts == attempts == 1
            if isSame and last.end == first and due <= last.due + _TOGETHER:
                self.covered += end - last.end
                last.end = end
                return True
        elif self._spans is NEVER_USED:
            self._spans = deque()
        self._append(Span(first, end, attempts, due, held))
        return True

    def _append(self, span: Span) -> None:
        self._spans.append(span)
        self.covered += span.end - span.first

    def drop(self) -> Span:
        """Remove the first one, and return it."""
        span = self._spans.popleft()
        self.covered -= span.end - span.first
        span.leave()
        return span

    def shorten(self, span: Span, first: int) -> None:
        """Let a span begin at a later tag."""
        self.covered -= first - span.first
        span.first = first

    def trim(self, tags: list[int], inFlight: int, of: Callable[[Span], Iterator[QueueDelivery]]) -> None:
        """Shorten the first spans by tags that have left, if consumers acknowledge in the order of delivery; make all
        spans again if they cover many more tags than the number in flight.

        :param of: returns the deliveries of a span that are in flight.
        """
        spans = self._spans
        if spans and tags and tags[0] == spans[0].first:
            end = tags[-1] + 1
            if end == tags[0] + 1 or tags == [*range(tags[0], end)]:
                while len(spans) > 1 and tags[0] <= spans[0].first and spans[0].end <= end:
                    self.drop()
                first = spans[0]
                if tags[0] <= first.first < end:
                    self.shorten(first, min(end, first.end))  # an empty one stays, as the next message may extend it
        if self.covered > 4 * inFlight + _UNUSED:
            self._coverAgain(of)

    def _coverAgain(self, of: Callable[[Span], Iterator[QueueDelivery]]) -> None:
        """Replace each span by spans of the neighbouring tags in it that are in flight."""
        for _ in range(len(self._spans)):
            span = self.drop()
            first = end = 0
            for delivery in (*of(span), None):
                if delivery is not None and delivery.tag == end:
                    end += 1
                    continue
                if end:
                    self._append(Span(first, end, span.attempts, span.due, span.held))
                if delivery is not None:
                    first, end = delivery.tag, delivery.tag + 1

    def clear(self) -> None:
        """Forget all."""
        self._spans = NEVER_USED
        self.covered = 0
