"""One recurring schedule: its definition, as clients, operators and the journal give it, and its check."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from fleximq.errors import BadRequest
from fleximq.values.occurrences import (
    CONTENT_BYTES,
    NAME_BYTES,
    CatchUp,
    CronTimes,
    Interval,
    Occurrences,
)
from fleximq.values.printable import shortened

#: A publication that is later than this many milliseconds was missed, for example while the broker did not run.
LATE = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """The definition of a recurring schedule; times are milliseconds, and since 1970 if absolute.

    Either ``every`` or ``cron`` is set; ``timezone`` is that of ``cron``. ``header`` and ``content`` are as the journal
    stores them; ``publisher`` has client id, sender name and dialect's code. ``start`` is the time from which intervals
    count; times up to ``since`` are not due, for example because it was paused until then. ``principal`` defined it.
    ``isSetting``: it is in the settings file, so that clients cannot change it.

    :raises BadRequest: a value is wrong, or cronsim is missing.
    """

    name: str
    topic: str
    payload: bytes
    content: int
    publisher: tuple[int, str, int]
    start: int
    since: int
    header: bytes = b""
    every: int | None = None
    cron: str | None = None
    timezone: str = "UTC"
    catchUp: CatchUp = CatchUp.NONE
    paused: bool = False
    principal: str | None = None
    isSetting: bool = False

    def __post_init__(self) -> None:
        if not 0 < len(self.name.encode()) <= NAME_BYTES:
            raise BadRequest(f"a recurring schedule has a name of 1 to {NAME_BYTES} bytes")
        if (self.every is None) == (self.cron is None):
            raise BadRequest("a recurring schedule has either 'every' or 'cron'")
        if len(self.payload) + len(self.header) > CONTENT_BYTES:
            raise BadRequest(f"header and payload of a recurring schedule have at most {CONTENT_BYTES} bytes")

    def occurrences(self) -> Occurrences:
        """Return its due times; raises BadRequest."""
        if self.every is not None:
            return Interval(self.start, self.every)
        return CronTimes(self.cron or "", self.timezone)

    def isSame(self, other: "Repeat") -> bool:
        """Return whether another definition publishes the same at the same times."""
        aligned = replace(other, start=self.start, since=self.since, publisher=self.publisher, principal=self.principal)
        return aligned == self

    def dump(self) -> dict[str, Any]:
        """Return the definition as MessagePack values."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**found, "catchUp": str(self.catchUp), "publisher": list(self.publisher)}

    @classmethod
    def load(cls, dumped: Mapping[str, Any]) -> "Repeat":
        """Return a dumped definition."""
        catchUp, publisher = catchUpOf(dumped["catchUp"]), tuple(dumped["publisher"])
        return cls(**{**dumped, "catchUp": catchUp, "publisher": publisher})


def catchUpOf(value: Any) -> CatchUp:
    """Return which missed publications are made up for; raises BadRequest."""
    try:
        return CatchUp(value)
    except ValueError:
        raise BadRequest(f"'catch_up' must be none, last or all, not {shortened(str(value))!r}") from None
