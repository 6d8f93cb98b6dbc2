"""A blocking client for each process, for result backends: a fork does not use the connection of its parent."""

import os
import time
from collections.abc import Callable
from typing import TypeVar

from fleximq.client.backoff import Backoff
from fleximq.client.blocking.client import Client
from fleximq.client.errors import ConnectionLost, Untrusted

T = TypeVar("T")

#: How a result backend connects again: soon, since tasks wait for it.
RECONNECT = Backoff(most=2.0)
#: After these errors a request is sent again.
LOSSES = (ConnectionLost, TimeoutError)
#: How often, and how many seconds later.
TRIES, PAUSE = 20, 1.0


class ProcessClient:
    """Connects in each process when a client is needed for the first time; any thread may ask for it.

    There is no lock: a fork could inherit a held one.

    :param connect: returns a connected client.
    """

    def __init__(self, connect: Callable[[], Client]) -> None:
        self._connect = connect
        self._clients: dict[int, Client] = {}

    def get(self) -> Client:
        """Return the client of this process; errors as of ``connect``."""
        process = os.getpid()
        client = self._clients.get(process)
        if client is None:
            made = self._connect()
            client = self._clients.setdefault(process, made)
            if client is not made:  # another thread was faster
                made.close()
        return client

    def call(self, work: Callable[[Client], T]) -> T:
        """Return what ``work`` returns for the client, after up to 20 more tries if the connection is lost."""
        for _ in range(TRIES):
            try:
                return work(self.get())
            except LOSSES as error:
                if isinstance(error, Untrusted):  # another try would fail too
                    raise
            time.sleep(PAUSE)
        return work(self.get())

    def close(self) -> None:
        """Close the client of this process, if it has one."""
        client = self._clients.pop(os.getpid(), None)
        if client is not None:
            client.close()
