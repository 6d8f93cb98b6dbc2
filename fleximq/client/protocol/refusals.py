"""Refusals by the broker that no flush has reported yet. Without I/O."""

from fleximq.client.errors import PublishFailed
from fleximq.client.events import Refusal

#: The first refusals are stored, since they say most; further ones are only counted.
MAX_REFUSALS = 1000


class Refusals:
    """A list of refusals; ``count`` includes those beyond the limit."""

    def __init__(self) -> None:
        self.count = 0
        self._refusals: list[Refusal] = []

    def add(self, refusal: Refusal) -> None:
        """Add a refusal."""
        self.count += 1
        if len(self._refusals) < MAX_REFUSALS:
            self._refusals.append(refusal)

    def extend(self, others: "Refusals") -> None:
        """Add later refusals."""
        self.count += others.count
        self._refusals += others._refusals[: MAX_REFUSALS - len(self._refusals)]

    def popNameless(self) -> Refusal | None:
        """Remove and return the first refusal without a path or topic."""
        for place, refusal in enumerate(self._refusals):
            if not refusal.path:
                self.count -= 1
                return self._refusals.pop(place)
        return None

    @property
    def last(self) -> PublishFailed | None:
        """The last stored refusal."""
        return _asError(self._refusals[-1]) if self._refusals else None

    def check(self) -> None:
        """Raise the refusals, if there are any.

        :raises PublishFailed: the first refusal, with the others.
        """
        if self._refusals:
            first, *others = map(_asError, self._refusals)
            first.others = tuple(others)
            first.count = self.count
            raise first


def _asError(refusal: Refusal) -> PublishFailed:
    return PublishFailed(refusal.status, refusal.words, refusal.path, refusal.payload)
