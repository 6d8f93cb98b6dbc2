"""Requests of a client in the process: those that it made, and those that it answers."""

from collections.abc import Callable
from inspect import isawaitable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from fleximq.client.errors import Answered, RequestFailed
from fleximq.client.events import Reply, Request
from fleximq.client.payloads import errorText, packed
from fleximq.client.protocol.accepted_requests import Accepted, AcceptedRequests
from fleximq.client.settings import Codec
from fleximq.errors import BrokerError
from fleximq.status import FIRST_ERROR, Status
from fleximq.values.printable import shortened

_log = Logger()


class DirectMessages:
    """The unanswered requests in both directions; ``served`` are the functions that answer, by path.

    :param answer: sends the payload and status of an answer to a request.
    """

    def __init__(
        self, clock: IReactorTime, prefetch: int, codec: Codec, answer: Callable[[Request, bytes, int], None]
    ) -> None:
        self._clock = clock
        self._codec = codec
        self._send = answer
        self.served: dict[str, Callable[[Request], Any]] = {}
        self._accepted = AcceptedRequests(prefetch)
        self._answering: set[Deferred[None]] = set()
        self._asked: dict[str, tuple[int | str, str, Deferred[Any]]] = {}
        self._hasEnded = False

    def expect(self, id: str, target: int | str, path: str) -> "Deferred[Any]":
        """Return a Deferred that fires with the value of the answer; raises RequestFailed in it."""
        answered: Deferred[Any] = Deferred()
        self._asked[id] = target, path, answered
        return answered

    def forget(self, id: str) -> None:
        """Ignore the answer to a request."""
        self._asked.pop(id, None)

    def end(self, error: BrokerError) -> None:
        """Fail all requests of the client, and stop the functions that are answering others."""
        self._hasEnded = True
        self._accepted.dropWaiting()
        for id in tuple(self._asked):
            self.failed(id, error)
        for each in tuple(self._answering):
            each.cancel()

    # -- answers to this client --------------------------------------------------------------------

    def replied(self, reply: Reply) -> None:
        """An answer has arrived; one that nobody was asked for is ignored."""
        target, path, answered = self._asked.get(reply.id, (None, "", None))
        # A name may mean any client.
        if answered is None or not (isinstance(target, str) or reply.sender == target):
            return
        if reply.status >= FIRST_ERROR:
            self.failed(reply.id, RequestFailed(reply.status, errorText(reply.payload), path, bytes(reply.payload)))
            return
        try:
            value = self._codec.unpack(reply.payload)
        except Exception as error:
            self.failed(reply.id, error)
        else:
            del self._asked[reply.id]
            self._clock.callLater(0, self._fire, answered, value)

    def failed(self, id: str, error: Exception) -> None:
        """A request will get no answer, or this error as its answer."""
        found = self._asked.pop(id, None)
        if found is not None:
            self._clock.callLater(0, self._fire, found[2], error)

    def _fire(self, answered: "Deferred[Any]", result: object) -> None:
        if not answered.called:  # it may have been cancelled
            if isinstance(result, Exception):
                answered.errback(result)
            else:
                answered.callback(result)

    # -- requests to this client -------------------------------------------------------------------

    def requested(self, request: Request) -> None:
        """A request has arrived: call the function that serves its path in the next turn, or refuse it."""
        if request.path not in self.served:
            words, status = f"nothing is served at {shortened(request.path)!r}", Status.NOT_FOUND
        elif not self._accepted.accept(request):
            words, status = "this client has too many unanswered requests", Status.SERVICE_UNAVAILABLE
        else:
            self._clock.callLater(0, self._start)
            return
        self._clock.callLater(0, self._send, request, packed(words), status)

    def _start(self) -> None:
        accepted = self._accepted.take()
        if accepted is not None:  # the client has not ended
            running = Deferred.fromCoroutine(self._answer(accepted))
            self._answering.add(running)
            running.addErrback(lambda failure: failure.trap(CancelledError) and None)
            running.addErrback(lambda failure: _log.failure("An answer failed", failure))
            running.addBoth(lambda ignored: self._answering.discard(running))

    async def _answer(self, accepted: Accepted) -> None:
        request = accepted.request
        try:
            value = self.served[request.path](request)
            payload = self._codec.pack(await value if isawaitable(value) else value)
            status: int = Status.OK
        except Answered as error:
            payload, status = packed(error.words), error.status
        except BrokerError as error:
            payload, status = packed(str(error)), error.status
        except Exception as error:
            if self._hasEnded and isinstance(error, CancelledError):
                raise
            _log.failure("The service of {path} failed", path=request.path)
            payload, status = packed("the service failed"), Status.INTERNAL_SERVER_ERROR
        finally:
            self._accepted.answered(accepted)
        self._send(request, payload, status)
