"""What the broker refused and nobody was told yet, without any I/O."""

from fleximq.client.errors import PublishFailed
from fleximq.client.events import Refusal

#: So many are kept, the first ones, for they tell most; the others are counted.
MAX_REFUSALS = 1000


class Refusals:
    """Refusals since some moment. ``count`` is how many there were."""

    def __init__(self) -> None:
        self.count = 0
        self._refusals: list[Refusal] = []

    def add(self, refusal: Refusal) -> None:
        """Take a further one."""
        self.count += 1
        if len(self._refusals) < MAX_REFUSALS:
            self._refusals.append(refusal)

    def extend(self, others: "Refusals") -> None:
        """Take those that came later."""
        self.count += others.count
        self._refusals += others._refusals[: MAX_REFUSALS - len(self._refusals)]

    def popNameless(self) -> Refusal | None:
        """Take out and return the first that names no path and no topic."""
        for place, refusal in enumerate(self._refusals):
            if not refusal.path:
                self.count -= 1
                return self._refusals.pop(place)
        return None

    @property
    def last(self) -> PublishFailed | None:
        """The last of those that were kept."""
        return _asError(self._refusals[-1]) if self._refusals else None

    def check(self) -> None:
        """Do nothing if there are none.

        :raises PublishFailed: the first of them, with the others.
        """
        if self._refusals:
            first, *others = map(_asError, self._refusals)
            first.others = tuple(others)
            first.count = self.count
            raise first


def _asError(refusal: Refusal) -> PublishFailed:
    return PublishFailed(refusal.status, refusal.words, refusal.path, refusal.payload)
