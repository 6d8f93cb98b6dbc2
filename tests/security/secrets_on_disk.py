"""Files with secrets, for tests; only their owner may read them."""

import os
from pathlib import Path
from typing import Any

from argon2 import PasswordHasher
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

#: Makes hashes in no time, which are good for nothing else.
CHEAP = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


def secretFile(test: SynchronousTestCase, content: str | bytes = "", mode: int = 0o600) -> str:
    """Return the path of a new file that holds this."""
    path = Path(test.mktemp()).absolute()
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    os.chmod(path, mode)
    return str(path)


def failureOf(test: SynchronousTestCase, deferred: Deferred[Any], *kinds: type[BaseException]) -> Any:
    """Return the exception with which a Deferred has failed."""
    return test.failureResultOf(deferred, *kinds).value


class ThreadClock(Clock):
    """A clock that is also asked to run things for threads, which it does when told so."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Any] = []

    def callFromThread(self, call: Any, *arguments: Any) -> None:
        """Take note."""
        self.told.append((call, arguments))
