"""Forwarded requests that wait for their answers.

FlexiMQ document 5.1.3: if a responder disconnects, its requesters get a 502; after the timeout they get a 504. An
answer closes its request; answers without a request are handled elsewhere.
"""

from functools import partial
from typing import NamedTuple

from fleximq.broker.deadlines import Deadline, Deadlines
from fleximq.broker.envelope import ConnectedClient
from fleximq.errors import TooManyRequests
from fleximq.status import Status

Key = tuple[int, int, str]

#: Characters of id and path that count as one more request.
_CHARACTERS = 1024


class _Request(NamedTuple):
    requester: ConnectedClient
    path: str
    deadline: Deadline | None


class PendingRequests:
    """All forwarded REQs without an answer.

    ``timeout`` is the seconds an answer may take, 0 for unlimited; ``maximum`` how many requests one client may have
    open, where each counts once more for every 1,024 characters of its id and path together.
    """

    def __init__(self, deadlines: Deadlines, timeout: float, maximum: int) -> None:
        self._deadlines = deadlines
        self.timeout = timeout
        self.maximum = maximum
        self._asked: dict[int, dict[Key, _Request]] = {}
        self._asking: dict[int, dict[Key, None]] = {}
        self._weights: dict[int, int] = {}

    def open(self, requester: ConnectedClient, responder: ConnectedClient, requestId: str, path: str) -> None:
        """Add a request, in place of one with its id to the same responder; raises TooManyRequests."""
        key = (requester.id, responder.id, requestId)
        mine = self._asking.setdefault(requester.id, {})
        if key in mine:
            self._close(key)
        weight = _weight(requestId, path)
        if len(mine) + self._weights.get(requester.id, 0) + weight >= self.maximum:
            raise TooManyRequests(f"more than {self.maximum} requests wait for their answer")
        theirs = self._asked.setdefault(responder.id, {})
        deadline = self._deadlines.callLater(self.timeout, partial(self._timeOut, key)) if self.timeout else None
        if weight:
            self._weights[requester.id] = self._weights.get(requester.id, 0) + weight
        mine[key] = None
        theirs[key] = _Request(requester, path, deadline)

    def close(self, requester: ConnectedClient, responder: ConnectedClient, requestId: str) -> bool:
        """Remove an answered request; False if it is not open."""
        return self._close((requester.id, responder.id, requestId)) is not None

    def forget(self, requester: ConnectedClient, requestId: str) -> None:
        """Remove a client's open requests with this id."""
        for key in [each for each in self._asking.get(requester.id, ()) if each[2] == requestId]:
            self._close(key)

    def openRequests(self, requester: ConnectedClient) -> int:
        """Return the number of a client's open requests."""
        return len(self._asking.get(requester.id, ()))

    def answering(self, clientId: int) -> int:
        """Return the number of open requests that the client with this id has to answer."""
        return len(self._asked.get(clientId, ()))

    def leave(self, client: ConnectedClient) -> None:
        """Remove the requests of a client that left, and fail those that it should have answered (502)."""
        for key in tuple(self._asking.get(client.id, ())):
            self._close(key)
        for key in tuple(self._asked.get(client.id, ())):
            self._fail(key, Status.BAD_GATEWAY, "the responder disconnected before it answered")
        self._asking.pop(client.id, None)
        self._weights.pop(client.id, None)
        self._asked.pop(client.id, None)

    def _timeOut(self, key: Key) -> None:
        self._fail(key, Status.GATEWAY_TIMEOUT, f"no answer within {self.timeout:g} seconds")

    def _fail(self, key: Key, status: Status, words: str) -> None:
        request = self._close(key)
        if request is not None and request.requester.peer is not None:
            request.requester.peer.requestFailed(key[2], request.path, status, words)
            request.requester.peer.requestDone()

    def _close(self, key: Key) -> _Request | None:
        theirs = self._asked.get(key[1])
        request = theirs.pop(key, None) if theirs else None
        if request is not None:
            del self._asking[key[0]][key]
            weight = _weight(key[2], request.path)
            if weight:
                self._weights[key[0]] -= weight
            if request.deadline is not None:
                request.deadline.cancel()
        return request


def _weight(requestId: str, path: str) -> int:
    return (len(requestId) + len(path)) // _CHARACTERS
