"""Where in the journal the last messages of topics are."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from fleximq.interfaces import IJournal
from fleximq.values.records import Batch, Bounds

#: So many bytes are read at a time.
PORTION = 1 << 20
#: If what was looked at does not have enough messages, so many times as much is looked at.
_FURTHER = 8


def latest(bounds: Mapping[str, Bounds], matches: Callable[[str], bool]) -> list[tuple[int, str]]:
    """Return the offset and topic of the last message of each topic that matches, in the order of offsets."""
    return sorted((kept.last, name) for name, kept in bounds.items() if matches(name))


def findBack(journal: IJournal, name: str, number: int, found: Callable[[int], None]) -> None:
    """Find the offset of the last message but ``number - 1`` of a topic, its first if it has fewer.

    The journal can only be read forwards, so ever larger parts of its end are looked at. ``found`` is called with the
    offset behind the end of what there is, if the topic has nothing.
    """
    kept = journal.bounds().get(name)
    if kept is None:
        found(journal.end)
    elif kept.count <= number:
        found(kept.first)
    else:
        _Search(journal, name, number, kept, found).look(number)


class _Search:
    """Looks for the last messages of one topic."""

    def __init__(self, journal: IJournal, name: str, number: int, kept: Bounds, found: Callable[[int], None]) -> None:
        self._journal = journal
        self._name = name
        self._kept = kept
        self._found = found
        self._offsets: deque[int] = deque(maxlen=number)
        self._start = 0
        self._width = 0

    def look(self, width: int) -> None:
        """Look at so many offsets up to the last one."""
        self._width = width
        self._start = max(self._kept.first, self._kept.last + 1 - width)
        self._offsets.clear()
        self._read(self._start)

    def _read(self, offset: int) -> None:
        self._journal.read(offset, self._name.__eq__, PORTION, lambda batches, next: self._took(offset, batches, next))

    def _took(self, offset: int, batches: Sequence[Batch], next: int) -> None:
        for batch in batches:
            self._offsets.extend(place for place in batch.offsets if place <= self._kept.last)
        if offset < next <= self._kept.last:
            self._read(next)
        elif len(self._offsets) == self._offsets.maxlen or self._start == self._kept.first:
            self._found(self._offsets[0] if self._offsets else self._journal.end)
        else:
            self.look(self._width * _FURTHER)
