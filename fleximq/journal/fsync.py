"""When what was written to the journal is made to outlive a power loss."""

import re
from enum import Enum
from typing import NamedTuple


class Mode(Enum):
    """How much waits for the disk."""

    ALWAYS = "always"
    """Nothing is said to be safe before it was synced."""
    INTERVAL = "interval"
    """It is said to be safe once the system has it, which keeps it if this process dies; synced soon afterwards."""
    NEVER = "never"
    """As before, but the system decides when it writes; synced when a segment is sealed and at a clean stop."""


class Fsync(NamedTuple):
    """A mode, and for ``INTERVAL`` how many milliseconds may pass until what was written is synced."""

    mode: Mode = Mode.ALWAYS
    milliseconds: int = 0

    @classmethod
    def parse(cls, text: str) -> "Fsync":
        """Read ``always``, ``interval:MS`` (1 to 60000) or ``never``.

        :raises ValueError: it is none of these.
        """
        found = re.fullmatch(r"interval:([0-9]{1,5})", text, re.ASCII)
        if found and 1 <= int(found[1]) <= 60_000:
            return cls(Mode.INTERVAL, int(found[1]))
        if text in ("always", "never"):
            return cls(Mode(text))
        raise ValueError(f"{text!r} is not always, interval:MS (1 to 60000) or never")
