"""Refusals by the broker that no flush has reported yet. Without I/O."""

from collections.abc import Iterable

from fleximq.client.errors import PublishFailed

#: The first refusals are stored, since they say most; further ones are only counted.
MAX_REFUSALS = 1000


class Refusals:
    """A list of refusals; ``count`` includes those beyond the limit."""

    def __init__(self, earlier: "Iterable[Refusals]" = ()) -> None:
        self.count = 0
        self._refusals: list[PublishFailed] = []
        for each in earlier:
            self.count += each.count
            self._refusals += each._refusals[: MAX_REFUSALS - len(self._refusals)]

    def add(self, refusal: PublishFailed) -> None:
        """Add a refusal."""
        self.count += 1
        if len(self._refusals) < MAX_REFUSALS:
            self._refusals.append(refusal)

    def popNameless(self) -> PublishFailed | None:
        """Remove and return the first refusal without a path or topic."""
        for place, refusal in enumerate(self._refusals):
            if not refusal.path:
                self.count -= 1
                return self._refusals.pop(place)
        return None

    @property
    def last(self) -> PublishFailed | None:
        """The last stored refusal."""
        return self._refusals[-1] if self._refusals else None

    def check(self) -> None:
        """Raise the refusals, if there are any.

        :raises PublishFailed: the first refusal, with the others.
        """
        if self._refusals:
            first, *others = self._refusals
            first.others, first.count = tuple(others), self.count
            raise first
