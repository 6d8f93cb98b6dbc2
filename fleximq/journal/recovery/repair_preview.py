"""What opening a journal would change in its folder, found out by doing it with files that are not changed."""

import os

from fleximq.journal.files.file_system import Files
from fleximq.journal.recovery.recovery import DAMAGED, TORN

_INDEX = ".idx"


class DryRunFiles(Files):
    """Reads the real files, writes nowhere, and notes in ``steps`` what else would be done, as clauses.

    Nothing is said about indexes, which are made of the other files.
    """

    def __init__(self) -> None:
        self.steps: list[str] = []
        self._paths: dict[int, str] = {}

    def create(self, path: str) -> int:
        """Return a new file that is in memory."""
        name = os.path.basename(path)
        if name.endswith((TORN, DAMAGED)):
            self.steps.append(f"make {name}, a copy of what stands there")
        return os.memfd_create(name)

    def open(self, path: str, write: bool = False) -> int:
        """Open a file to read it, also if it shall be written."""
        descriptor = super().open(path)
        self._paths[descriptor] = path
        return descriptor

    def truncate(self, descriptor: int, size: int) -> None:
        """Note that a file would be cut."""
        path = self._paths[descriptor]
        self.steps.append(f"cut {os.path.basename(path)} from {self.size(descriptor)} bytes to {size}")

    def rename(self, old: str, new: str) -> None:
        """Note that a file would get another name."""
        if not new.endswith(_INDEX):
            self.steps.append(f"rename {os.path.basename(old)} to {os.path.basename(new)}")

    def remove(self, path: str) -> None:
        """Note that a file would go."""
        self.steps.append(f"remove {os.path.basename(path)}")

    def sync(self, descriptor: int) -> None:
        """There is nothing to sync."""

    def syncFolder(self, path: str) -> None:
        """There is nothing to sync."""
