"""A system clock for other processes that a test can set while they run, by libfaketime."""

import os
from pathlib import Path

_LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
#: Why it cannot be used here; None if it can.
MISSING = None if _LIBRARY else "libfaketime is missing; it is in the Debian package faketime"


class SteppedClock:
    """The system clock of all processes with its ``environment``; their monotonic clock stays true.

    :param folder: where it creates a file.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self._ahead = 0.0
        self.step(0.0)
        self.environment = {
            "LD_PRELOAD": str(_LIBRARY),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }

    def step(self, seconds: float) -> None:
        """Set it forward, or back."""
        self._ahead += seconds
        new = self._file.with_suffix(".new")
        new.write_text(f"{self._ahead:+g}")
        os.replace(new, self._file)
