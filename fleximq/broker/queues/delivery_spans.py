"""Deliveries that were made together, as ranges of tags: their deadline and holder are stored once.

The fields in common of a million deliveries in runs of 1,000 take as much as a thousand of them. A range remains until
all of its tags have left; ranges that cover many more tags than are in flight are made again.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

#: Messages delivered within so many seconds are due together.
TOGETHER = 0.001
#: Spans are made again when they cover more tags than four times those in flight and so many.
UNUSED = 4096
#: So many first spans may be the next one to leave.
_LOOKED_AT = 16


@dataclass(slots=True, eq=False, repr=False)
class Span:
    """Tags from ``first`` to before ``end`` that were delivered together: those in flight are due and held together.

    ``held`` are the spans of its holder, this one included; None without a holder.
    """

    first: int
    end: int
    attempts: int
    due: float
    held: set["Span"] | None

    def leave(self) -> None:
        """Remove it from those of its holder."""
        if self.held is not None:
            self.held.discard(self)


@dataclass(slots=True, eq=False, repr=False)
class Spans(deque[Span]):
    """Spans in the order in which they are due; ``covered`` is the number of tags between their first and last ones."""

    covered: int = 0

    def put(self, span: Span) -> None:
        """Add a span that is due after all others."""
        self.append(span)
        self.covered += span.end - span.first
        if span.held is not None:
            span.held.add(span)

    def drop(self) -> Span:
        """Remove the first one, and return it."""
        span = self.popleft()
        self.covered -= span.end - span.first
        span.leave()
        return span

    def shorten(self, span: Span, first: int) -> None:
        """Let a span begin at a later tag."""
        self.covered -= first - span.first
        span.first = first

    def trim(self, tags: Sequence[int]) -> None:
        """Shorten the first spans by tags that have left, if consumers acknowledge in the order of delivery; drop one
        of the first spans that is exactly a range.
        """
        if type(tags) is range and len(self) > 1 and tags.start != self[0].first:
            for place in range(1, min(len(self), _LOOKED_AT)):
                span = self[place]
                if span.first == tags.start and span.end == tags.stop:
                    del self[place]
                    self.covered -= len(tags)
                    span.leave()
                    return
        if self and tags and tags[0] == self[0].first:
            end = tags[-1] + 1
            if type(tags) is range or end == tags[0] + 1 or tags == [*range(tags[0], end)]:
                while len(self) > 1 and tags[0] <= self[0].first and self[0].end <= end:
                    self.drop()
                first = self[0]
                if tags[0] <= first.first < end:
                    self.shorten(first, min(end, first.end))  # an empty one stays, as the next message may extend it

    def coverAgain(self, tagsOf: Callable[[Span], Iterator[int]]) -> None:
        """Replace each span by spans of the neighbouring tags in it that are in flight.

        :param tagsOf: returns the tags of a span that are in flight.
        """
        for _ in range(len(self)):
            span = self.drop()
            first = end = 0
            for tag in (*tagsOf(span), 0):  # which follows none
                if tag and tag == end:
                    end += 1
                    continue
                if end:
                    self.put(Span(first, end, span.attempts, span.due, span.held))
                first, end = tag, tag + 1
