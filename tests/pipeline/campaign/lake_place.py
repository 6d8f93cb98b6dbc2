"""Where the lake of a campaign is: a folder, or an object store that can be killed, with requests that fail."""

import os
import random
import time
from collections import Counter
from pathlib import Path
from types import TracebackType

from tests.pipeline.fault_proxy import CUT, SERVER_ERROR, SLOW_DOWN, SWALLOWED, Fault, FaultProxy, Request
from tests.pipeline.object_store import ObjectStore, environment

#: What becomes of requests that fail; those with an answer after the deed as often as those without.
FAULTS = (CUT, SWALLOWED, SERVER_ERROR, SLOW_DOWN, Fault(done=True, status=500), Fault(done=True, status=503))
#: The longest delay of a request, in seconds.
SLOW = 2.0


class FolderPlace:
    """A lake on this machine's disks; as a context manager it exists."""

    def __init__(self, folder: Path) -> None:
        self.lake = str(folder / "lake")
        self.environment: dict[str, str] = {}
        self.faults: Counter[str] = Counter()

    def __enter__(self) -> "FolderPlace":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the folder to its owner."""

    def kill(self) -> bool:
        """Kill the store, and start it again; False if there is none."""
        return False

    def calm(self) -> None:
        """Let no more requests fail."""


class StorePlace(FolderPlace):
    """A lake on an object store; ``share`` of the requests fail, and as many are slow."""

    def __init__(self, folder: Path, chance: random.Random, share: float) -> None:
        super().__init__(folder)
        self._chance = chance
        self._share = share
        self._store = ObjectStore()

    def __enter__(self) -> "StorePlace":
        self._store.__enter__()
        self._proxy = FaultProxy(self._store.endpoint).__enter__()
        self._proxy.choose = self._fault
        self.lake = self._store.newPrefix()
        self.environment = environment(self._proxy.endpoint)
        os.environ.update(self.environment)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in self.environment:
            os.environ.pop(name, None)
        self._proxy.__exit__(None, None, None)
        self._store.__exit__(None, None, None)

    def _fault(self, request: Request) -> Fault | None:
        draw = self._chance.random()
        if draw > 2 * self._share:
            return None
        if draw > self._share:
            self.faults["slow"] += 1
            time.sleep(self._chance.uniform(0, SLOW))
            return None
        found = self._chance.choice(FAULTS)
        self.faults[f"{'done, then ' if found.done else ''}{found.status or 'cut'}"] += 1
        return found

    def kill(self) -> bool:
        self._store.kill()
        time.sleep(self._chance.uniform(0, 3.0))
        self._store.start()
        return True

    def calm(self) -> None:
        self._proxy.choose = lambda request: None
