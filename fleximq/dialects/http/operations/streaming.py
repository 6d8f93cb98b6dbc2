"""``GET /topics/PATTERN``: the messages of topics, as Server-Sent Events or as a JSON object on each line.

A reader that reconnects with ``Last-Event-ID`` gets what the journal stored meanwhile, no message twice. If it may have
missed others, for example of topics that are not durable, the event ``gap`` says so. An event without data gives it an
id from the start, so that a connection that is lost before the first message makes no gap either.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from zope.interface import implementer

from fleximq.broker.deadlines import Deadline
from fleximq.broker.replay.feed import DeferredRun, Feed
from fleximq.broker.replay.replay import Start
from fleximq.dialects.http.format.responses import jsonBody
from fleximq.dialects.http.format.routes import Parameter
from fleximq.dialects.http.operations.arguments import moment, seconds, whole
from fleximq.dialects.http.operations.exchange import Exchange
from fleximq.dialects.http.operations.stream_forms import FormKind, chunk, formsOf
from fleximq.dialects.replay_outlet import ReplayOutlet
from fleximq.errors import BrokerError, NoLongerKept, NotPermitted
from fleximq.interfaces import ISubscriber
from fleximq.values.patterns import covers, isPattern

EVENTS, LINES = "text/event-stream", "application/x-ndjson"
PARAMETERS = (
    Parameter("from", "string", "where to begin in the journal: first, last, an offset, or a time in ISO 8601"),
    Parameter("limit", "integer", "messages after which the answer ends"),
    Parameter("wait", "number", "seconds without a message after which the answer ends"),
    Parameter("retry", "number", "seconds after which EventSource connects again"),
    Parameter("last_event_id", "string", "the id of the last event that was received", "Last-Event-ID"),
)
#: Bytes of the journal read at a time: they are converted to JSON.
_CHUNK_BYTES = 1 << 17
#: Maximum of ``wait`` and ``retry``, and the seconds of ``retry`` without the parameter.
_MOST_SECONDS, _RETRY = 86400.0, 1.0
_MOST_MESSAGES, _MOST_OFFSET = 1 << 53, 10**18 - 1
#: The id of events before the first one that has an offset.
_UNSTORED = "live"
_COMMENT = b":\n\n"
#: Tells proxies like nginx to pass on each message at once.
_UNBUFFERED = "X-Accel-Buffering: no"


def read(exchange: Exchange) -> None:
    """Answer with the messages of the topic or pattern in the path."""
    stream = Stream(exchange)
    if exchange.request.method == "HEAD":
        exchange.broker.checkSubscription(exchange.client, exchange.name)
        exchange.begin(stream.contentType)
        exchange.done()
    else:
        stream.start()


@implementer(ISubscriber)
class Stream:
    """The answer to one reader.

    One that ends after a number of messages, or without any for a time, ``isCut``: it gets rows, and counts them.
    Others share the rendered bytes.
    """

    __slots__ = (
        "_arguments",
        "_exchange",
        "_isOver",
        "_kind",
        "_left",
        "_name",
        "_outbox",
        "_received",
        "_retry",
        "_sent",
        "_timers",
        "_wait",
        "form",
    )

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._name = exchange.name
        self._arguments = arguments = exchange.arguments
        self._outbox = exchange.session.outbox
        self._left = whole(arguments, "limit", _MOST_MESSAGES, 1, _MOST_MESSAGES)
        self._wait = seconds(arguments, "wait", None, 0, _MOST_SECONDS)
        self._retry = seconds(arguments, "retry", _RETRY, 0, _MOST_SECONDS)
        request = exchange.request
        isCut = "limit" in arguments or self._wait is not None
        self._kind = FormKind(EVENTS in request.accept, request.isLatest, isCut)
        self.form, _ = formsOf(self._kind)
        self._isOver = False
        self._received = 0.0  # the time of the last message
        self._sent = -1  # bytes at the last look
        self._timers: dict[Callable[[], None], Deadline] = {}

    @property
    def contentType(self) -> str:
        """The content type of the answer."""
        return EVENTS if self._kind.isEvent else LINES

    def start(self) -> None:
        """Subscribe, and answer; raises BrokerError if that is refused."""
        exchange, arguments, broker = self._exchange, self._arguments, self._exchange.broker
        if exchange.session.rate is not None:
            exchange.session.rate.subscribing()
        broker.checkSubscription(exchange.client, self._name)
        last, isStored = arguments.get("last_event_id"), self._isStored
        if last is not None and isStored and last.isascii() and last.isdecimal() and len(last) < 19:
            self._resume(int(last) + 1)
        elif "from" in arguments and last is None:
            self._follow(_startOf(arguments["from"]))
            self._begin()
        else:
            first = str(broker.journal.end - 1) if isStored else _UNSTORED
            broker.announce(self._name, partial(self._live, first, last is not None))

    @property
    def _isStored(self) -> bool:
        """Whether the journal may store messages of the topic or pattern."""
        broker = self._exchange.broker
        return broker.journal.onDisk and (isPattern(self._name) or broker.topics.isDurable(self._name))

    def _live(self, first: str, isAgain: bool) -> None:
        exchange, broker = self._exchange, self._exchange.broker
        if exchange.isOver:
            return
        try:
            broker.subscribe(exchange.client, self, self._name)
        except BrokerError as error:
            exchange.fail(error)
            return
        self._begin(first)
        if isAgain:
            self._gap("messages may have been missed: there is no place in the journal to go on from")
        else:
            broker.recall(exchange.client, self._outlet(hasOffsets=False), self._name)

    def _resume(self, offset: int) -> None:
        broker, words = self._exchange.broker, ""
        if offset > broker.journal.end and not broker.replays.mayLag:
            offset, words = broker.journal.end, "this journal has no message with the last id: it may be another one"
        try:
            self._follow(Start("offset", offset))
        except NoLongerKept as error:
            words = str(error)
            self._follow(Start("offset", error.first))
        rules = broker.rules
        if isPattern(self._name) and not any(covers(each, self._name) for each in (*rules.durable, *rules.retain)):
            words = words or "messages of topics that are not durable may have been missed"
        self._begin()
        if words:
            self._gap(words)

    def _follow(self, start: Start) -> None:
        self._exchange.broker.follow(self._exchange.client, self._outlet(hasOffsets=True), self._name, start)

    def _outlet(self, hasOffsets: bool) -> "StreamOutlet":
        _, form = formsOf(self._kind)
        broker, clock = self._exchange.broker, self._exchange.session.context.clock
        render: Any = partial(form.records, hasOffsets=hasOffsets)
        return StreamOutlet(
            self, self._outbox, clock, self.form, render, self._take, self._failed, broker.slices, _CHUNK_BYTES
        )

    # -- output --------------------------------------------------------------------------------------

    def _begin(self, first: str | None = None) -> None:
        """Send the head, the time after which a reader connects again, and the first id."""
        exchange, isEvent, isChunked = self._exchange, *self._kind[:2]
        exchange.whenGone = self._stop
        exchange.whenLost = self._lost
        fields = (_UNBUFFERED, "Transfer-Encoding: chunked") if isChunked else (_UNBUFFERED,)
        exchange.begin(self.contentType, fields=fields)
        settings = exchange.session.context.settings
        self._outbox.probe(max(1, int(settings.keepalive)))
        self._received = exchange.broker.deadlines.seconds()
        if isEvent:
            firstId = b"id: %b\n" % first.encode() if first else b""
            self._write(b"retry: %d\n%b\n" % (self._retry * 1000, firstId))
            self._after(settings.keepalive, self._keepAlive)
        if self._wait is not None:
            self._after(self._wait, self._idle)

    def _write(self, content: bytes) -> None:
        self._outbox.take(chunk(content) if self._kind.isChunked else content)

    def _take(self, rendered: bytes) -> None:
        """Send replayed messages."""
        self._outbox.take(rendered)

    @property
    def deliver(self) -> Callable[[DeferredRun, int], None]:
        """The outbox's method itself, so that a delivery costs no further call, if messages need not be counted."""
        return self._deliverRows if self._kind.isCut else self._outbox.deliverLate

    def _deliverRows(self, run: DeferredRun, count: int) -> None:
        content = self.cut(run.rendered())
        if content:
            self._outbox.deliver(content, count)

    def cut(self, rendered: Any) -> bytes:
        """Return rendered messages as bytes: of rows those up to the limit, after which the stream ends."""
        if not self._kind.isCut:
            return rendered  # type: ignore[no-any-return]  # bytes
        session = self._exchange.session
        self._received = session.context.clock.seconds()
        rows = rendered[: self._left]
        self._left -= len(rows)
        if not self._left and not self._isOver:
            self._isOver = True
            session.context.clock.callLater(0, self._end)
        content = b"".join(rows)
        return chunk(content) if content and self._kind.isChunked else content

    def _gap(self, words: str) -> None:
        self._tell("gap", {"reason": words})

    def _tell(self, event: str, value: dict[str, str]) -> None:
        line = jsonBody(value)
        self._write(b"event: %b\ndata: %b\n" % (event.encode(), line) if self._kind.isEvent else line)

    # -- time ----------------------------------------------------------------------------------------

    def _after(self, delay: float, call: Callable[[], None]) -> None:
        self._timers[call] = self._exchange.broker.deadlines.callLater(delay, call)

    def _keepAlive(self) -> None:
        """Send a comment if nothing was sent for an interval."""
        sent, self._sent = self._sent, self._outbox.traffic.bytesOut
        if sent == self._sent:
            self._write(_COMMENT)
        self._after(self._exchange.session.context.settings.keepalive, self._keepAlive)

    def _idle(self) -> None:
        """End if there was no message for the time to wait, but not while the journal is read."""
        subscription = self._exchange.client.subscriptions.get(self._name)
        feed = None if subscription is None else subscription.subscriber
        now = self._exchange.broker.deadlines.seconds()
        if isinstance(feed, Feed) and not feed.isLive:
            self._received = now
        left = self._received + (self._wait or 0.0) - now
        if left > 0:
            self._after(left, self._idle)
        else:
            self._end()

    # -- the end -------------------------------------------------------------------------------------

    def _failed(self, error: BrokerError, name: str) -> None:
        """Go on after lost messages, or end, in a later turn: this is called during an operation of the broker."""
        self._exchange.session.context.clock.callLater(0, partial(self._continue, error))

    def _continue(self, error: BrokerError) -> None:
        if self._isOver or self._exchange.isOver:
            return
        if isinstance(error, NoLongerKept) and self._kind.isEvent:
            self._gap(str(error))
            try:
                self._follow(Start("offset", error.first))
            except BrokerError as other:
                self._failed(other, self._name)
            return
        self._exchange.session.counted(error)
        self._tell("end", {"error": str(error)})
        self._end()

    def _lost(self, names: Sequence[str]) -> None:
        """The client has lost the right to these subscriptions."""
        self._failed(NotPermitted(f"subscribing to {self._name!r} is not permitted any more", self._name), self._name)

    def _end(self) -> None:
        """End the answer in order."""
        if not self._exchange.isOver:
            self._stop()
            self._exchange.done()

    def _stop(self) -> None:
        """End the subscription, and the body."""
        self._isOver = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._exchange.broker.unsubscribe(self._exchange.client, self._name)
        if self._kind.isChunked:
            self._outbox.take(chunk(b""))


class StreamOutlet(ReplayOutlet):
    """Sends replayed messages up to the limit of the stream."""

    subscriber: Stream

    def send(self, rendered: Any) -> None:
        """Send rendered messages."""
        content = self.subscriber.cut(rendered)
        if content:
            super().send(content)


def _startOf(text: str) -> Start:
    if text in ("first", "last"):
        return Start(text)
    if text.isdecimal():
        return Start("offset", whole({"from": text}, "from", 0, 0, _MOST_OFFSET))
    kind = "first, last, an offset, or a time in ISO 8601 with a zone"
    return Start("time", moment("from", text, kind))
