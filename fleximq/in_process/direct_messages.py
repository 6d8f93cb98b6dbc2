"""The requests of a client in the process: those that it sent, and those of other clients that it answers."""

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
    """The unanswered requests in both directions. ``served`` has the functions that answer requests, by path.

    :param prefetch: maximum bytes of unanswered requests to this client, at least 1 MiB; further ones are refused.
    :param answer: sends an answer: called with the request, the answer's payload and its status.
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

    def expect(self, requestId: str, target: int | str, path: str) -> "Deferred[Any]":
        """Return a Deferred that fires with the value of the answer to a request, or fails with RequestFailed."""
        answered: Deferred[Any] = Deferred()
        self._asked[requestId] = target, path, answered
        return answered

    def forget(self, requestId: str) -> None:
        """Ignore the answer to a request."""
        self._asked.pop(requestId, None)

    def end(self, error: BrokerError) -> None:
        """Fail all requests of this client, and cancel the functions that are answering those of others."""
        self._hasEnded = True
        self._accepted.dropWaiting()
        for requestId in tuple(self._asked):
            self.failed(requestId, error)
        for each in tuple(self._answering):
            each.cancel()

    # -- answers to this client --------------------------------------------------------------------

    def replied(self, reply: Reply) -> None:
        """Handle an answer; it is ignored without an open request, or if another client than the target sent it."""
        target, path, answered = self._asked.get(reply.id, (None, "", None))
        # A request to a name may be answered by any client.
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

    def failed(self, requestId: str, error: Exception) -> None:
        """Fail a request with this error in the next turn; a no-op if it is not open."""
        found = self._asked.pop(requestId, None)
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
        """Handle a request: call the function that serves its path in the next turn, or refuse the request."""
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
