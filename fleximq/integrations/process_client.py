"""A blocking client for each process: a fork does not use the connection of its parent."""

import os
from collections.abc import Callable
from threading import Lock

from fleximq.client.blocking.client import Client


class ProcessClient:
    """Connects when the client is needed first in a process; any thread may ask for it.

    :param connect: returns a connected client.
    """

    def __init__(self, connect: Callable[[], Client]) -> None:
        self._connect = connect
        self._lock = Lock()
        self._client: Client | None = None
        self._process = 0

    def get(self) -> Client:
        """Return the client of this process; errors as of ``connect``."""
        with self._lock:
            if self._client is None or self._process != os.getpid():
                self._client = self._connect()
                self._process = os.getpid()
            return self._client

    def close(self) -> None:
        """Close the client of this process, if it has one."""
        with self._lock:
            client, self._client = self._client, None
            if client is not None and self._process == os.getpid():
                client.close()
