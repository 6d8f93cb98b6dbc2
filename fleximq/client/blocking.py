"""The client for programs that wait: scripts, notebooks, worker processes. Plain sockets, no event loop, no thread.

::

    with connect("tcp://localhost:7890") as client:
        client.publish("news", {"rain": True})

A client may be used by several threads at once. Nothing is read while nobody waits for anything or sends much, so the
broker gives up a client that is silent for a quarter of an hour: publish or flush more often than that.
"""

import ssl
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from types import TracebackType
from typing import Any, TypeVar

from fleximq.client.conversation import BROKER, Conversation, packed
from fleximq.client.dial import dial
from fleximq.client.errors import ConnectionLost, JoinRefused, RequestFailed, SubscribeFailed
from fleximq.client.events import Delivery, Event, Ponged, Refusal, Reply, Request, unpacked, wordsOf
from fleximq.client.inbox import Box, Inbox
from fleximq.client.refusals import Refusals
from fleximq.client.subscription import Subscription
from fleximq.client.wire_socket import WireSocket
from fleximq.endpoints.urls import Url
from fleximq.status import FIRST_ERROR, Status

#: Seconds that joining, a request or a flush may take unless told otherwise.
PATIENCE = 30.0
#: Seconds of silence after which the broker is to ping, the most it accepts; after three times as long it closes.
_IDLE = 300
#: Where a subscription may begin: "first", "last", an offset, or ``{"time": milliseconds}``.
Start = str | int | Mapping[str, int]

T = TypeVar("T")


def connect(
    url: str = "tcp://localhost:7890",
    *,
    credentials: Mapping[str, str] | None = None,
    name: str | None = None,
    timeout: float = PATIENCE,
    tls: ssl.SSLContext | None = None,
) -> "Client":
    """Connect and join; use what is returned in a ``with`` statement, or close it.

    :param url: ``tcp://HOST:PORT``, ``tls://HOST:PORT`` or ``ipc://PATH``.
    :param credentials: who this is, e.g. ``{"type": "token", "token": "..."}`` (FlexiMQ document 5.2).
    :param name: the client's own name for itself.
    :param timeout: seconds until this gives up, for the connection and then for joining.
    :param tls: how to speak TLS: which authorities to trust, which certificate to show. By default the system's
        authorities are trusted, and the certificate must be for the host of the URL.
    :raises SettingError: the URL is none, or of a kind that this client cannot speak to.
    :raises ConnectionLost: nobody listens there, or nobody who speaks FlexiMQ.
    :raises Untrusted: one side does not trust the other's certificate.
    :raises JoinRefused: the broker does not let this client in.
    """
    return Client(Url.parse(url), credentials, name, timeout, tls)


class Client:
    """A connection to a broker, made by :func:`connect`.

    Every method raises :class:`~fleximq.client.errors.ConnectionLost` when the connection has ended; it is not made
    again. Values may be whatever MessagePack can hold; others raise TypeError, ValueError or OverflowError, before
    anything is sent.
    """

    def __init__(
        self,
        url: Url,
        credentials: Mapping[str, str] | None,
        name: str | None,
        timeout: float,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._conversation = Conversation()
        self._numbers = count(1)
        self._inbox = Inbox(lambda: self._wire.wake())
        self._refusals = Refusals()
        self._passed: dict[int, Refusals | None] = {}  # by the number of a PING: what was refused before its PONG
        self._replies: dict[str, Reply | int] = {}  # by id: the answer, or who is asked
        self._unflushed = False
        self._subscribing = threading.Lock()
        self._wire = WireSocket(dial(url, timeout, tls), self._conversation, self._heard, lambda: self._inbox.full)
        try:
            self._join(credentials, name, timeout)
        except BaseException:
            self._wire.close()
            raise

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Close; if the block failed, at once and without a flush."""
        if error is None:
            self.close()
        else:
            self._hangUp()

    @property
    def id(self) -> int:
        """The id that the broker gave to this connection."""
        return self._conversation.id

    def publish(self, topic: str, value: object, /, **keys: Any) -> None:
        """Publish a value; it is on its way when this returns, and done after the next :meth:`flush`.

        :param keys: further keys of the header, such as ``key``, ``message_id``, ``correlation_id``, ``reply_to``.
        :raises TypeError: ``topic`` is among them.
        """
        if "topic" in keys:
            raise TypeError("a publication has one topic, which is the first argument")
        self._send(self._conversation.publication(topic, packed(value), keys or None))

    def publishMany(self, topic: str, values: Iterable[object]) -> None:
        """Publish many values at once, which is much quicker than one by one.

        They are collected and sent in portions of about a MiB; if one cannot be packed, those before may be sent.
        """
        for portion in self._conversation.publications(topic, map(packed, values)):
            self._send(portion)

    def flush(self, timeout: float | None = PATIENCE) -> None:
        """Return when all that was sent is done and, on durable topics, on disk.

        :raises PublishFailed: something was refused since the last flush; of several threads, one is told.
        :raises TimeoutError: it took longer than ``timeout`` seconds.
        """
        self._unflushed = False
        try:
            refused = self._barrier(timeout, "a flush")
        except TimeoutError:
            self._unflushed = True
            raise
        refused.check()

    def subscribe(self, topic: str, from_: Start | None = None, timeout: float | None = PATIENCE) -> Subscription:
        """Subscribe to a topic or pattern, and return when the broker has done it.

        What comes is given to every subscription that it matches, also what another one asked of the past. Those that
        begin in the past must have no topics in common.

        :param from_: for durable topics: "first", "last", an offset, or ``{"time": milliseconds since 1970}``; then
            deliveries have an ``offset``.
        :raises SubscribeFailed: the broker refused, e.g. with 603, or with 404 if an offset is kept no longer.
        :raises TimeoutError: there was no answer in so many seconds.
        :raises ValueError: it begins in the past and has a topic in common with another that does, or has the name of
            another and one of the two begins in the past.
        """
        what = f"the subscription to {topic}"
        # When this is passed, nothing that an earlier subscription brought is on its way any more.
        self._keep(self._barrier(timeout, what))
        with self._subscribing:
            sub = self._conversation.subscription(topic, from_)
            with self._wire.lock:
                box = self._inbox.open(topic, from_ is not None)
            first, second = numbers = self._expect(2)
            ping = self._conversation.ping
            self._send(ping(first) + sub + ping(second), unflushed=False)
        try:
            before, refused = self._passedBy(numbers, timeout, what)
        except BaseException:
            self._unsubscribe(box)
            raise
        # Between the two PINGs there was the SUB, and what the broker refuses of it names nothing.
        refusal = refused.takeNameless()
        self._keep(before, refused)
        with self._wire.lock:
            box.begun = True
            if refusal is not None:
                self._inbox.close(box)
                raise SubscribeFailed(refusal.status, refusal.words, topic, refusal.payload)
        return Subscription(self._wire, self._inbox, box, self._unsubscribe)

    def request(self, target: int, path: str, value: object = None, timeout: float | None = PATIENCE) -> Any:
        """Ask another client and return its answer's value.

        :param target: its id.
        :raises RequestFailed: it answered with an error, or the broker could not reach it.
        :raises TimeoutError: there was no answer in so many seconds.
        :raises ConnectionLost: the connection ended; whether the request arrived is not known.
        :raises ValueError: the answer is not MessagePack.
        """
        payload = packed(value)
        id = f"{self.id}-{next(self._numbers)}"
        self._replies[id] = target
        try:
            try:
                self._send(self._conversation.request(target, path, payload, id), unflushed=False)
            except ConnectionLost:
                # Who is refused for what he is sending may be answered, and cut off, before he has sent all of it.
                if self._replyTo(id) is None:
                    raise
            reply = self._await(lambda: self._replyTo(id), timeout, f"the answer to {path}")
        finally:
            del self._replies[id]
        if reply.status >= FIRST_ERROR:
            raise RequestFailed(reply.status, wordsOf(reply.payload), path, bytes(reply.payload))
        return unpacked(reply.payload)

    def ask(self, path: str, value: object = None, timeout: float | None = PATIENCE) -> Any:
        """Ask the broker itself, e.g. ``/broker/about``; errors as for :meth:`request`."""
        return self.request(BROKER, path, value, timeout)

    def notify(self, targets: int | Sequence[int], path: str, value: object = None) -> None:
        """Send a notification to one client or several; nobody answers it."""
        several = [targets] if isinstance(targets, int) else list(targets)
        self._send(self._conversation.notification(several, path, packed(value)))

    def broadcast(self, value: object = None) -> None:
        """Send a value to every other client."""
        self._send(self._conversation.broadcast(packed(value)))

    def close(self, timeout: float | None = PATIENCE) -> None:
        """Flush, if anything was sent since the last flush, and end the connection; iterations over subscriptions end.

        It is ended in any case; a second time nothing happens.

        :raises PublishFailed: as :meth:`flush`.
        :raises TimeoutError: as :meth:`flush`.
        :raises ConnectionLost: the connection has ended before all that was sent is known to be done.
        """
        try:
            with self._wire.lock:
                self._inbox.closeAll()
                self._wire.wake()
            if self._unflushed:
                self.flush(timeout)
        finally:
            self._hangUp()

    # -- inside ------------------------------------------------------------------------------------

    def _hangUp(self) -> None:
        with self._wire.lock:
            self._inbox.closeAll()
        self._wire.close()

    def _join(self, credentials: Mapping[str, str] | None, name: str | None, timeout: float) -> None:
        try:
            self._wire.send(self._conversation.join(credentials, name))
        except ConnectionLost:
            # Who is not let in may be told so, and cut off, before he has asked.
            if self._refusals.last is None:
                raise
        if not self._wire.waitFor(lambda: self.id or self._refusals.count, timeout):
            raise ConnectionLost(f"the broker did not answer within {timeout:g} seconds")
        refusal = self._refusals.last
        if refusal is not None:
            raise JoinRefused(refusal.status, refusal.words, refusal.path, refusal.payload)
        # For the interval only: nobody waits for the PONG.
        self._wire.send(self._conversation.ping(0, _IDLE))

    def _barrier(self, timeout: float | None, what: str) -> Refusals:
        """Wait until all that was sent is done, and return what was refused of it."""
        [number] = numbers = self._expect(1)
        self._send(self._conversation.ping(number), unflushed=False)
        [refused] = self._passedBy(numbers, timeout, what)
        return refused

    def _expect(self, count: int) -> list[int]:
        """Return numbers for PINGs, whose PONGs take the refusals that came before them."""
        numbers = [next(self._numbers) for _ in range(count)]
        with self._wire.lock:
            self._passed.update(dict.fromkeys(numbers))
        return numbers

    def _passedBy(self, numbers: Sequence[int], timeout: float | None, what: str) -> list[Refusals]:
        """Wait for these PONGs, and return what was refused before each."""
        try:
            self._await(lambda: self._passed[numbers[-1]], timeout, what)
        except BaseException:
            self._keep(*self._taken(numbers))
            raise
        return self._taken(numbers)

    def _taken(self, numbers: Iterable[int]) -> list[Refusals]:
        with self._wire.lock:
            found = [self._passed.pop(number) for number in numbers]
        return [each for each in found if each is not None]

    def _keep(self, *those: Refusals) -> None:
        """Leave to the next flush what nobody was told."""
        with self._wire.lock:
            kept = Refusals()
            for each in (*those, self._refusals):
                kept.extend(each)
            self._refusals = kept

    def _send(self, data: bytes, unflushed: bool = True) -> None:
        try:
            self._wire.send(data)
        except ConnectionLost as lost:
            raise self._explained(lost) from None
        finally:
            if unflushed:
                self._unflushed = True

    def _await(self, ready: Callable[[], T | None], timeout: float | None, what: str) -> T:
        try:
            found = self._wire.waitFor(ready, timeout)
        except ConnectionLost as lost:
            raise self._explained(lost) from None
        if not found:
            raise TimeoutError(f"{what} did not come within {timeout:g} seconds")
        return found

    def _explained(self, lost: ConnectionLost) -> ConnectionLost:
        """Return the error with what the broker said before the end, which is often why."""
        last = self._refusals.last
        return lost if last is None else type(lost)(f"{lost}, and said before: {last}")

    def _replyTo(self, id: str) -> Reply | None:
        reply = self._replies[id]
        return reply if isinstance(reply, Reply) else None

    def _heard(self, event: Event) -> None:
        """Leave an event where it is waited for; called under the lock."""
        if isinstance(event, Delivery):
            overrun = self._inbox.put(event)
            if overrun is not None:
                self._inbox.overrun(overrun)
                self._wire.owe(self._conversation.unsubscription(overrun.topic))
        elif isinstance(event, Reply):
            asked = self._replies.get(event.id)
            if isinstance(asked, int) and event.sender in (asked, BROKER):
                self._replies[event.id] = event
        elif isinstance(event, Ponged):
            if event.timestamp in self._passed:
                self._passed[event.timestamp] = self._refusals
                self._refusals = Refusals()
        elif isinstance(event, Refusal):
            if not self._inbox.refused(event):
                self._refusals.add(event)
        elif isinstance(event, Request):
            # Nobody answers here; who asks need not wait to find that out.
            self._wire.owe(self._conversation.reply(event, packed("nothing is served here"), Status.NOT_FOUND))

    def _unsubscribe(self, box: Box) -> None:
        """Let nothing more into a box, and take the subscription back if it was the last of its name."""
        with self._subscribing:
            with self._wire.lock:
                last = self._inbox.close(box)
                self._wire.wake()
            if last:
                with suppress(ConnectionLost):
                    # The PONG wakes whoever reads for this subscription.
                    self._wire.send(self._conversation.unsubscription(box.topic) + self._conversation.ping(0))
