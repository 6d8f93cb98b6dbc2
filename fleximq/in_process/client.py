"""The client for code in the broker's process: extensions, and programs that embed a broker.

It has the methods of :class:`fleximq.client.twisted.Client`, but raises the errors of :mod:`fleximq.errors`. To the
broker it is a client as those with connections: it has an id, rights and limits, and observers, metrics and listings
show it.
"""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from functools import update_wrapper
from itertools import chain
from secrets import token_urlsafe
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from fleximq.broker.envelope import Envelope
from fleximq.broker.paths import path_table
from fleximq.broker.replay.replay import Start
from fleximq.client.events import BROKER, Delivery, Notification, Request
from fleximq.client.payloads import packed, severalOf
from fleximq.client.protocol.publications import headerFields, jobFields
from fleximq.client.settings import TIMEOUT, Codec
from fleximq.client.settings import Start as StartText
from fleximq.client.times import Duration
from fleximq.client.topic_warnings import literalDoubt, warnOf
from fleximq.client.wrapper import resultOf, returning
from fleximq.dialects.connection.connection_rate import MIN_PAUSE, overRate
from fleximq.dialects.fleximq.forms import FlexiSource
from fleximq.errors import BadRequest, BrokerError, ClientNotFound, NotRecorded, TooLarge
from fleximq.in_process.feed_outlet import FeedOutlet
from fleximq.in_process.jobs import Jobs
from fleximq.in_process.peer import InProcessPeer
from fleximq.in_process.subscription import Subscription, passTo
from fleximq.security.rates.client_rates import Meter
from fleximq.values.header_pairs import SENDER, isForged
from fleximq.values.patterns import doubtIn, mistakeIn
from fleximq.wire.fleximq_frame import encodeMessage
from fleximq.wire.fleximq_header import MessageType, checkHeader

P = ParamSpec("P")
T = TypeVar("T")
#: Bytes of the length before a payload.
_LENGTH_BYTES = 8


def _fired(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], "Deferred[T]"]:
    """Return a method that starts a coroutine method at once, and returns a Deferred for its result."""

    def call(self: Any, /, *arguments: P.args, **more: P.kwargs) -> "Deferred[T]":
        return Deferred.fromCoroutine(method(self, *arguments, **more)).addErrback(self._counted)

    return returning(f"Deferred[{resultOf(method)}]", update_wrapper(call, method))


class InProcessClient:
    """A client in the broker's process, made by :meth:`fleximq.interfaces.IExtensionContext.connect`.

    Use it in the reactor's thread. Methods that return a Deferred report errors in it. After the client's end, every
    method fails with Conflict, or with the error that ended the client.

    :param mostBytes: returns the maximum size of a message in bytes.
    :param meter: limits the rate of its messages; None: unlimited.
    """

    def __init__(
        self,
        peer: InProcessPeer,
        codec: Codec,
        mostBytes: Callable[[], int],
        meter: Meter | None,
    ) -> None:
        self._peer = peer
        self._broker = peer.broker
        self._codec = codec
        self._mostBytes = mostBytes
        self._meter = meter
        #: Calls that wait for the end of a pause or for an answer of the broker, or else for the end of this client.
        self._waiting: set[Deferred[Any]] = set()
        peer.ended.append(self._ended)

    def __repr__(self) -> str:
        return f"<InProcessClient {self.id}>"

    @property
    def id(self) -> int:
        """The id that the broker assigned to this client."""
        return self._peer.client.id

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> "Deferred[None]":
        """Leave the broker: subscriptions end and requests fail. Earlier publications are still confirmed."""
        self._peer.end(None)
        return succeed(None)

    # -- publications ------------------------------------------------------------------------------

    @_fired
    async def publish(
        self,
        topic: str,
        value: object,
        /,
        *,
        key: str | bytes | None = None,
        message_id: str | None = None,
        correlation_id: str | None = None,
        reply_to: str | None = None,
        headers: Mapping[str, Any] | None = None,
    ) -> None:
        """Publish a value; fires when it was delivered and, on a durable topic, is on disk.

        If this client's rate is limited, the Deferred fires as many seconds later as the limit requires, or fails with
        TooManyRequests.

        :param key: the key by which the pipeline groups messages.
        :param message_id: identifies the message; on durable topics the broker drops a repeated one.
        :param correlation_id: identifies a request to a MiniMQ service; ``reply_to`` is the queue for the reply.
        :param headers: further fields of the message's header; ValueError for ``topic`` and for names of arguments.
        :raises NotPermitted: the client may not publish to this topic, or InvalidTopic: it cannot be one.
        :raises NotRecorded: the journal refused the message, or NotKept: a queue that must not lose it is full.
        :raises TooLarge: the message is over the option ``max-message``.
        """
        fields = headerFields(headers, key=key, message_id=message_id, correlation_id=correlation_id, reply_to=reply_to)
        await self._publish(topic, [self._codec.pack(value)], fields)

    @_fired
    async def publish_many(self, topic: str, values: Iterable[object]) -> None:
        """Publish several values in one run; errors as for :meth:`publish`, and TypeError for a single str or bytes."""
        await self._publish(topic, list(map(self._codec.pack, severalOf(values))), {})

    @_fired
    async def enqueue(
        self,
        queue: str,
        value: object,
        /,
        *,
        priority: int | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        expires: Duration | None = None,
        key: str | bytes | None = None,
        message_id: str | None = None,
        headers: Mapping[str, Any] | None = None,
    ) -> None:
        """Put a value into a work queue, which is made if necessary; fires when the queue has it and, with a journal,
        when it is on disk.

        Parameters and errors are those of :meth:`publish`. Also raises NotKept if the queue is full, and NoCapacity if
        the broker has the maximum number of queues.

        :param priority: 0 to 9; jobs with higher ones are first. Without it 4.
        :param delay: seconds until it is put into the queue, or ``at``: a time with a zone. Fires when the broker has
            stored it until then.
        :param expires: seconds after which it is removed if no consumer has it.
        :raises ValueError: both ``delay`` and ``at`` are given, or a time has no zone.
        """
        fields = jobFields(headers, delay, at, expires, priority=priority, key=key, message_id=message_id)
        await self._publish(queue, [self._codec.pack(value)], fields, isWork=True)

    @_fired
    async def consume(self, queue: str, prefetch: int = 1, topic: str | None = None) -> Jobs:
        """Become a consumer of a queue, which is made if there is none; fires with an iterator over its jobs.

        :param prefetch: the most unsettled jobs at once, 1 to 65,535.
        :param topic: the topic or pattern that a new queue receives; None: the topic of its name.
        :raises NotPermitted: the client may not consume from the queue or one of its sources.
        :raises NoCapacity: the broker has the maximum number of queues, or InvalidTopic: the name cannot be one.
        :raises SettingError: the prefetch is out of range.
        :raises ValueError: this client consumes from the queue already.
        """
        self._admitSubscription()
        peer = self._present()
        return Jobs(peer.consumers.open(peer.client, queue, prefetch, topic), peer.consumers, peer.clock)

    @_fired
    async def flush(self) -> None:
        """Fire when all publications so far are delivered or refused, and durable ones are on disk."""
        await self._decided()

    async def _publish(
        self, topic: str, payloads: Sequence[bytes], fields: Mapping[str, Any], isWork: bool = False
    ) -> None:
        warnOf(literalDoubt(topic))
        client, broker = self._present().client, self._broker
        if isForged(fields, client.sender):
            raise BadRequest(f"{SENDER!r} is set by the broker alone")
        named = {SENDER: client.sender} if client.sender else {}
        header = checkHeader(MessageType.PUB, {"topic": topic, **fields, **named})
        if header.routing:
            raise BadRequest("a publication of this client has no routing")
        head = encodeMessage(MessageType.PUB, client.id, header.fields)[:-_LENGTH_BYTES]
        frames = chain.from_iterable((head, len(each).to_bytes(_LENGTH_BYTES, "big"), each) for each in payloads)
        body = b"".join(frames)
        pause = self._admit(len(body), len(payloads), len(head) + _LENGTH_BYTES + max(map(len, payloads), default=0))
        if not payloads:
            return
        source = FlexiSource(len(head), header, client.id)
        envelope = Envelope(broker.topicFor(client, header.topic), client, source, 1, isWork)
        refused: list[str] = []

        def decided(reason: str | None, indexes: Sequence[int]) -> None:
            if reason is not None:
                refused.append(reason)

        messageId, keys = fields.get("message_id"), header.queueing
        if keys is not None and keys.isScheduled:
            due = keys.dueAt(round(broker.wall() * 1000))
            ids = None if messageId is None else (messageId,)
            broker.schedule(envelope, body, len(payloads), due, decided, ids)
        elif messageId is None:
            (broker.produce if isWork else broker.publish)(envelope, body, len(payloads), decided)
        else:
            (broker.produceOnce if isWork else broker.publishOnce)(envelope, body, (messageId,), decided)
        await self._decided()
        if refused:
            raise NotRecorded(refused[0])
        if pause:
            paused: Deferred[Any] = Deferred()
            self._later(paused, pause)
            await self._untilEnd(paused)

    async def _decided(self) -> None:
        client = self._peer.client
        if not self._broker.arePublicationsDecided(client):
            decided: Deferred[None] = Deferred()
            # In a later turn: the program must not run inside the journal's callback.
            self._broker.whenCommitted(lambda: self._later(decided), client)
            await decided

    # -- subscriptions -----------------------------------------------------------------------------

    @_fired
    async def subscribe(
        self, topic: str, from_: StartText | None = None, *, call: Callable[[Delivery], Any] | None = None
    ) -> Subscription[Delivery]:
        """Subscribe to a topic or pattern; fires with a subscription to iterate over, unless ``call`` is given.

        A message that matches several subscriptions of this client is delivered to each of them.

        :param from_: the start on durable topics: "first", "last", an offset, or ``{"time": milliseconds since 1970}``;
            deliveries then have an ``offset``.
        :param call: called with each delivery, one after the other, until the subscription is closed; may return an
            awaitable. Its exceptions are logged.
        :raises SubscriptionFailed: the topic is not durable, or the client has too many subscriptions.
        :raises NotPermitted: the client may not subscribe to it, or InvalidTopic: it cannot be one.
        :raises NoLongerKept: the offset was removed from the journal.
        :raises ValueError: the topic has wildcards of NATS or MQTT; or ``from_`` is given, and another subscription
            with ``from_`` may match the same topics.
        """
        mistake = mistakeIn(topic)
        if mistake is not None:
            raise ValueError(mistake)
        warnOf(doubtIn(topic))
        self._admitSubscription()
        await self._decided()  # otherwise the subscription would get the client's own earlier publications
        peer, broker, inbox = self._present(), self._broker, self._peer.inbox
        fields = {"topic": topic} if from_ is None else {"topic": topic, "from": from_}
        header = checkHeader(MessageType.SUB, fields)
        box = inbox.open(topic, from_)
        box.isConfirmed = True
        try:
            if header.start is not None:
                broker.follow(peer.client, FeedOutlet(peer, peer.clock, offsets=True), topic, Start(*header.start))
            elif topic not in peer.client.subscriptions:
                broker.subscribe(peer.client, peer, topic)
                broker.recall(peer.client, FeedOutlet(peer, peer.clock, offsets=False), topic)
        except BaseException:
            inbox.close(box)
            raise
        subscription: Subscription[Delivery] = Subscription(box, inbox, peer.clock, peer.unsubscribe)
        if call is not None:
            Deferred.fromCoroutine(passTo(call, subscription))
        await self._announced()
        return subscription

    async def _announced(self) -> None:
        """Wait until all nodes of a mesh know the subscriptions so far; without a mesh, until the next turn."""
        announced: Deferred[None] = Deferred()
        self._broker.announce(None, lambda: self._later(announced))
        await announced

    def notifications(self) -> Subscription[Notification]:
        """Return a subscription to the notifications and broadcasts that this client receives from now on."""
        peer = self._present()
        return Subscription(peer.inbox.openDirect(), peer.inbox, peer.clock, peer.unsubscribe)

    # -- direct messages ---------------------------------------------------------------------------

    @_fired
    async def request(self, target: int | str, path: str, value: object = None, timeout: float | None = TIMEOUT) -> Any:
        """Send a request to another client; fires with the value of its answer.

        :param target: the client's id, or a name: then the least busy of the clients that joined with it.
        :raises NotPermitted: the client may not request this path.
        :raises ClientNotFound: no client with that id or name accepts requests.
        :raises fleximq.client.errors.RequestFailed: the answer is an error, or the other client has left.
        :raises TimeoutError: no answer within ``timeout`` seconds.
        :raises ValueError: the target is a path, or the answer cannot be decoded.
        """
        if isinstance(target, str) and target.startswith("/"):
            raise ValueError(f"{target!r} is a path: the target, the id or name of a client, comes first")
        if target == BROKER:
            return await self.ask(path, value, timeout)
        # A request to a name may be answered by any client, so ids are random: a client that was not asked must not
        # guess one.
        peer, requestId = self._present(), token_urlsafe(12)
        frame = peer.conversation.request(target, path, self._codec.pack(value), requestId)
        self._admit(len(frame))
        answered = peer.direct.expect(requestId, target, path)
        try:
            self._broker.request(peer.client, target, requestId, path, frame)
            return await self._within(answered, timeout, path)
        finally:
            peer.direct.forget(requestId)

    @_fired
    async def ask(self, path: str, value: object = None, timeout: float | None = TIMEOUT) -> Any:
        """Send a request to the broker itself, e.g. ``/broker/about``; fires with the answer or fails with an error."""
        peer, payload = self._present(), packed(value)
        self._admit(len(payload))
        arguments = path_table.readArguments(self._broker, peer.client, path, payload)
        answered: Deferred[Any] = Deferred()

        def answer(found: Any) -> None:
            peer.clock.callLater(0, _fire, answered, found)

        path_table.answer(self._broker, peer.client, path, arguments, answer)
        found = await self._untilEnd(self._within(answered, timeout, path))
        if isinstance(found, BrokerError):
            raise found
        return found

    def serve(self, path: str, function: Callable[[Request], Any]) -> None:
        """Answer requests to a path with the result of a function; an awaitable result is awaited.

        If the function raises :class:`~fleximq.client.errors.Answered` or a BrokerError, that status and text are the
        answer; other exceptions are logged and answered with 500. While unanswered requests take more memory than
        ``prefetch``, and more than 1 MiB, further ones are answered with 503.

        :raises ValueError: the path is already served.
        :raises TypeError: the function is not callable.
        """
        if not callable(function):
            raise TypeError(f"{path} needs a function that answers requests, not {function!r}")
        served = self._present().direct.served
        if path in served:
            raise ValueError(f"the path {path!r} is already served")
        served[path] = function

    @_fired
    async def notify(self, targets: int | str | Sequence[int | str], path: str, value: object = None) -> None:
        """Send a notification, which has no answer, to one or more clients; the value follows the path.

        :param targets: ids of clients, and names: then all clients that joined with this name.
        :raises NotPermitted: the client may not notify this path.
        :raises ClientNotFound: one of the targets does not exist; the others were notified.
        """
        peer = self._present()
        several = [targets] if isinstance(targets, int | str) else list(targets)
        frame = peer.conversation.notification(several, path, self._codec.pack(value))
        self._admit(len(frame))
        idsOf = {target: self._broker.clients.accepting(target) for target in several}
        self._broker.notify(peer.client, chain.from_iterable(idsOf.values()), [path], frame)
        lost = [target for target in several if not idsOf[target]]
        if lost:
            raise ClientNotFound(f"there is no client {', '.join(map(repr, lost))} that takes this message")

    @_fired
    async def broadcast(self, value: object = None) -> None:
        """Send a value to every other client; raises NotPermitted."""
        peer = self._present()
        frame = peer.conversation.broadcast(self._codec.pack(value))
        self._admit(len(frame))
        self._broker.broadcast(peer.client, frame)

    def _counted(self, failure: Failure) -> Failure:
        if isinstance(failure.value, BrokerError):
            self._broker.observers.counted(f"error: {int(failure.value.status)}", 1)
        return failure

    # -- limits and waiting ------------------------------------------------------------------------

    def _present(self) -> InProcessPeer:
        if self._peer.error is not None:
            raise self._peer.error
        return self._peer

    def _admit(self, size: int, count: int = 1, largest: int | None = None) -> float:
        """Count messages that the client sends, and return the seconds to pause after them, 0 for none.

        :param size: the bytes of all ``count`` messages; ``largest`` those of the largest one.
        :raises TooLarge: the largest message is larger than the broker accepts.
        :raises TooManyRequests: the client is over its rate, and the broker refuses messages over it.
        """
        largest, most = size if largest is None else largest, self._mostBytes()
        if largest > most:
            raise TooLarge(f"the message has {largest} bytes, but at most {most} are allowed")
        pause, meter = 0.0, self._meter
        if meter is not None and meter.refuses:
            if meter.admits(count, size) < count:
                raise overRate()
        elif meter is not None:
            meter.spend(count, size)
            pause = meter.wait()
        self._peer.traffic.messagesIn += count
        self._peer.traffic.bytesIn += size
        return pause if pause > MIN_PAUSE else 0.0

    def _admitSubscription(self) -> None:
        if self._meter is not None and not self._meter.refuses:
            self._meter.spendSubscription()
        elif self._meter is not None and not self._meter.admitsSubscription():
            raise overRate()

    def _later(self, waiting: "Deferred[Any]", seconds: float = 0) -> None:
        self._peer.clock.callLater(seconds, _fire, waiting, None)

    def _within(self, answered: "Deferred[T]", timeout: float | None, path: str) -> "Deferred[T]":
        def late(result: Any, seconds: float) -> Any:
            raise TimeoutError(f"no answer to {path} within {seconds:g} seconds")

        return answered if timeout is None else answered.addTimeout(timeout, self._peer.clock, late)

    async def _untilEnd(self, waiting: "Deferred[Any]") -> Any:
        """Wait for a result, or for the end of this client: then return its error."""
        self._waiting.add(waiting)
        try:
            return await waiting
        finally:
            self._waiting.discard(waiting)

    def _ended(self) -> None:
        for waiting in self._waiting:
            self._peer.clock.callLater(0, _fire, waiting, self._peer.error)


def _fire(waiting: "Deferred[Any]", result: object) -> None:
    if not waiting.called:  # it may have been cancelled
        waiting.callback(result)
