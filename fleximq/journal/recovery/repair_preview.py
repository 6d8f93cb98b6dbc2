"""Reports the changes that recovery would make to a folder, by running it on files that stay unchanged."""

import os

from fleximq.journal.files.file_system import Files
from fleximq.journal.recovery.recovery import DAMAGED, TORN

_INDEX = ".idx"


class DryRunFiles(Files):
    """Reads the real files, writes none, and collects the other operations as clauses, except those on indexes."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self._paths: dict[int, str] = {}

    def create(self, path: str) -> int:
        name = os.path.basename(path)
        if name.endswith((TORN, DAMAGED)):
            self.steps.append(f"make {name}, a copy of what stands there")
        return os.memfd_create(name)

    def open(self, path: str, write: bool = False) -> int:
        """Open a file for reading, even if writing is requested."""
        descriptor = super().open(path)
        self._paths[descriptor] = path
        return descriptor

    def truncate(self, descriptor: int, size: int) -> None:
        path = self._paths[descriptor]
        self.steps.append(f"cut {os.path.basename(path)} from {self.size(descriptor)} bytes to {size}")

    def rename(self, old: str, new: str) -> None:
        if not new.endswith(_INDEX):
            self.steps.append(f"rename {os.path.basename(old)} to {os.path.basename(new)}")

    def remove(self, path: str) -> None:
        self.steps.append(f"remove {os.path.basename(path)}")

    def sync(self, descriptor: int) -> None:
        """Do nothing."""

    def syncFolder(self, path: str) -> None:
        """Do nothing."""
