"""Files with secrets, for tests; only their owner may read them."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from argon2 import PasswordHasher
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure
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
    """A clock with threads: noted calls run in the test's own thread, when it wants, and their results follow at once.

    ``held``: calls wait until :meth:`runOne`.
    """

    def __init__(self, held: bool = False) -> None:
        super().__init__()
        self.held = held
        self.waiting: list[Callable[[], object]] = []
        self.ran: list[tuple[Any, ...]] = []

    def getThreadPool(self) -> "ThreadClock":
        """Return the pool: the clock itself."""
        return self

    def callInThreadWithCallback(self, onResult: Any, call: Any, *arguments: Any) -> None:
        """Note a call; run it unless calls are held."""
        self.ran.append(arguments)
        self.waiting.append(lambda: onResult(*_outcome(call, arguments)))
        if not self.held:
            self.runOne()

    def runOne(self) -> None:
        """Run the oldest held call."""
        self.waiting.pop(0)()

    def callFromThread(self, call: Any, *arguments: Any) -> None:
        """Call at once."""
        call(*arguments)


def _outcome(call: Any, arguments: tuple[Any, ...]) -> tuple[bool, Any]:
    try:
        return True, call(*arguments)
    except Exception:
        return False, Failure()
