"""A service manager's notify socket, as a test's own.

::

    with FakeManager() as manager:
        BrokerProcess(..., environment={"NOTIFY_SOCKET": manager.name})
        manager.waitFor("READY=1")
"""

import os
import socket
import tempfile
import time
import uuid
from types import TracebackType

#: Seconds that a wait may last.
PATIENCE = 300.0


class FakeManager:
    """Listens and notes what it is told, and when.

    :param abstract: the socket has a name in no folder.
    """

    def __init__(self, abstract: bool = False) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="fx-")
        self.name = f"@fleximq-{uuid.uuid4().hex}" if abstract else os.path.join(self._folder.name, "notify")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + self.name[1:] if abstract else self.name)
        #: What was told so far, in lines.
        self.told: list[str] = []
        #: When each of them came.
        self.times: list[float] = []

    def __enter__(self) -> "FakeManager":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Listen no more."""
        self._socket.close()
        self._folder.cleanup()

    def look(self, seconds: float = 0.0) -> list[str]:
        """Return all lines so far, after waiting so long for another message."""
        try:
            self._socket.settimeout(seconds)
            while True:
                lines = self._socket.recv(1 << 16).decode().split("\n")
                self.told += lines
                self.times += [time.monotonic()] * len(lines)
                self._socket.settimeout(0)
        except (BlockingIOError, TimeoutError):
            return self.told

    def waitFor(self, line: str, times: int = 1) -> None:
        """Wait until it was told this so many times.

        :raises AssertionError: it was not in time.
        """
        end = time.monotonic() + PATIENCE
        while self.look().count(line) < times:
            left = end - time.monotonic()
            if left <= 0:
                raise AssertionError(f"was not told {line} {times} times, but {self.told}")
            self.look(left)
