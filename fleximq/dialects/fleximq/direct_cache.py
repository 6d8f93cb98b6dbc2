"""What the headers of direct messages mean that differ in nothing but the request's id. Hot.

A client asks the same service the same way again and again, and a service answers the same client. The bytes of such
headers are the same but for the id, whose place is the same too. Leaving the id out, a known header costs one look-up,
1.2 us, where reading and checking it anew costs 6 us.
"""

from typing import NamedTuple

from fleximq.dialects.connection.envelope_cache import ENTRY_BYTES, MIN_ENTRIES, CacheBudget

#: Longer envelopes are not remembered, nor more than so many of them.
_LONGEST = 1024
_MOST = 256


class Direct(NamedTuple):
    """A checked header of a REQ or REP without its id, which stands at ``start``."""

    kind: int
    target: int
    path: str
    start: int


class DirectCache:
    """Remembers headers of one connection; when it is full, it begins anew.

    :param budget: what it pays from, see :mod:`fleximq.dialects.connection.envelope_cache`; :meth:`clear` pays all
    back.
    """

    __slots__ = ("_known", "_places", "_budget", "_spent")

    def __init__(self, budget: CacheBudget) -> None:
        self._budget = budget
        self._spent = 0
        self._places: dict[int, tuple[int, int]] = {}
        self._known: dict[bytes, Direct] = {}

    def find(self, envelope: bytes) -> tuple[Direct, str] | None:
        """Return what an envelope means, and the id in it; None where it has to be read."""
        place = self._places.get(len(envelope) << 8 | envelope[1])
        if place is None:
            return None
        start, end = place
        known = self._known.get(envelope[:start] + envelope[end:])
        if known is None or known.start != start:
            return None
        try:
            return known, envelope[start:end].decode()
        except UnicodeDecodeError:
            return None

    def clear(self) -> None:
        """Forget everything."""
        self._known.clear()
        self._places.clear()
        self._budget.remaining += self._spent
        self._spent = 0

    def remember(self, envelope: bytes, target: int, path: str, id: str) -> None:
        """Remember an envelope that was read and checked, if its id stands in it exactly once."""
        found = id.encode()
        start = envelope.find(found)
        if not found or len(envelope) > _LONGEST or envelope.rfind(found) != start:
            return  # count() would not see that it stands there twice where the two overlap
        if len(self._known) >= (_MOST if self._budget.remaining >= 0 else MIN_ENTRIES):
            self.clear()
        self._spent += len(envelope) + ENTRY_BYTES
        self._budget.remaining -= len(envelope) + ENTRY_BYTES
        end = start + len(found)
        self._places[len(envelope) << 8 | envelope[1]] = start, end
        self._known[envelope[:start] + envelope[end:]] = Direct(envelope[1], target, path, start)
