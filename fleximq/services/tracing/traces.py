"""The traces of a broker: each records the frames of one client, or the publications to a topic, in words.

A trace ends by itself: after so many lines or seconds, with its client, or if something in it fails; and it may be read
for :data:`KEPT` seconds after that. Nothing is installed while none runs: taps are put on a connection or a topic when
a trace begins, and taken off when it ends.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from zope.interface import implementer

from fleximq.broker.broker import Broker
from fleximq.broker.deadlines import Deadline
from fleximq.broker.envelope import ConnectedClient, Envelope
from fleximq.dialects.session import Session
from fleximq.dialects.websocket.frame_outbox import WebSocketOutbox
from fleximq.errors import Conflict, NoCapacity, NotFound
from fleximq.interfaces import IBrokerObserver, IForm, ISubscriber
from fleximq.services.tracing.frame_words import FrameWords, Reader, readerOf, unframed

#: Maximum number of running traces, and of ended ones; seconds after which an ended one is forgotten.
RUNNING, ENDED, KEPT = 4, 8, 600.0
IN, OUT = "in", "out"


@dataclass(eq=False, repr=False)
class Trace:
    """One trace. ``ended`` is the reason for its end, "" while it runs; ``rows`` are its lines."""

    number: int
    about: dict[str, Any]
    by: str
    limit: int
    seconds: int
    rows: list[dict[str, Any]] = field(default_factory=list)
    ended: str = ""
    removals: list[Callable[[], object]] = field(default_factory=list)
    timer: Deadline | None = None

    @property
    def isFull(self) -> bool:
        """Whether it takes no more lines."""
        return bool(self.ended) or len(self.rows) >= self.limit

    def state(self) -> dict[str, Any]:
        """Return it without its lines."""
        return {
            "trace": self.number, **self.about, "by": self.by, "limit": self.limit, "seconds": self.seconds,
            "frames": len(self.rows), "running": not self.ended, "ended": self.ended or None,
        }  # fmt: skip


@implementer(ISubscriber, IForm)
class _Listener:
    """Receives the publications to a topic; a run is one line."""

    def __init__(self, publication: Callable[[Envelope, int, int], None]) -> None:
        self.form = self
        self._publication = publication

    def render(self, envelope: Any, body: Any, count: int) -> Any:
        return envelope, count, envelope.source.size(body, count)

    def deliver(self, rendered: Any, count: int) -> None:
        envelope, number, size = rendered
        self._publication(envelope, number, size)


@implementer(IBrokerObserver)
class _Departures:
    """Calls when a client leaves."""

    def __init__(self, left: Callable[[Any], None]) -> None:
        self._left = left

    def clientJoined(self, client: Any) -> None:
        """A no-op."""

    def clientLeft(self, client: Any, reason: str) -> None:
        self._left(client)

    def topicCreated(self, name: str) -> None:
        """A no-op."""

    def counted(self, event: str, number: int) -> None:
        """A no-op."""


class Traces:
    """All traces of a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._traces: dict[int, Trace] = {}
        self._numbers = count(1)

    def list(self) -> Iterable[dict[str, Any]]:
        """Return the state of each trace, by number."""
        return [self._traces[number].state() for number in sorted(self._traces)]

    def find(self, number: int) -> Trace:
        """Return a trace; raises NotFound."""
        trace = self._traces.get(number)
        if trace is None:
            raise NotFound(f"there is no trace {number}")
        return trace

    def ofClient(self, clientId: int, limit: int, seconds: int, by: str) -> Trace:
        """Begin a trace of the frames of a client.

        :raises NotFound: no client of this node has this id.
        :raises Conflict: it has no connection, or another trace.
        :raises NoCapacity: too many traces run.
        """
        client = self._broker.clients.find(clientId)
        if client is None:
            raise NotFound(f"there is no client {clientId} at this node")
        session = client.conversation
        if not isinstance(session, Session) or session.protocol is None:
            raise Conflict(f"client {clientId} has no connection of its own")
        if any(each.about.get("client_id") == clientId and not each.ended for each in self._traces.values()):
            raise Conflict(f"client {clientId} is traced already")
        trace = self._make({"client_id": clientId}, limit, seconds, by)
        inner = readerOf(client.dialect)
        outer = unframed(readerOf(client.dialect)) if isinstance(session.outbox, WebSocketOutbox) else None
        write = partial(self._frames, trace, OUT, outer or readerOf(client.dialect))
        trace.removals.append(session.protocol.tapInput(partial(self._frames, trace, IN, inner)))
        trace.removals.append(session.outbox.tap(write))
        departures = _Departures(partial(self._left, trace, client))
        self._broker.observers.add(departures)
        trace.removals.append(partial(self._broker.observers.remove, departures))
        self._begin(trace)
        return trace

    def ofTopic(self, pattern: str, limit: int, seconds: int, by: str) -> Trace:
        """Begin a trace of the publications to a topic, or to all that match a pattern.

        :raises InvalidTopic: the pattern is none.
        :raises NoCapacity: too many traces run.
        """
        trace = self._make({"topic": pattern}, limit, seconds, by)
        listener = _Listener(partial(self._published, trace))
        self._broker.wiretap(listener, pattern)
        trace.removals.append(partial(self._broker.endWiretap, listener, pattern))
        self._begin(trace)
        return trace

    def stop(self, number: int) -> Trace:
        """End a trace; raises NotFound."""
        trace = self.find(number)
        self._end(trace, "stopped by an operator")
        return trace

    def _make(self, about: dict[str, Any], limit: int, seconds: int, by: str) -> Trace:
        if sum(not each.ended for each in self._traces.values()) >= RUNNING:
            raise NoCapacity(f"{RUNNING} traces run already")
        return Trace(next(self._numbers), about, by, limit, seconds)

    def _begin(self, trace: Trace) -> None:
        self._traces[trace.number] = trace
        trace.timer = self._broker.deadlines.callLater(trace.seconds, partial(self._end, trace, "its time is over"))

    def _end(self, trace: Trace, why: str) -> None:
        if trace.ended:
            return
        trace.ended = why
        if trace.timer is not None:
            trace.timer.cancel()
        for remove in trace.removals:
            remove()
        trace.removals.clear()
        self._traces[trace.number] = self._traces.pop(
            trace.number
        )  # so that the ended ones are in the order of their ends
        ended = [each for each in self._traces.values() if each.ended]
        for each in ended[: max(0, len(ended) - ENDED)]:
            self._traces.pop(each.number, None)
        trace.timer = self._broker.deadlines.callLater(KEPT, partial(self._forget, trace))

    def _forget(self, trace: Trace) -> None:
        self._traces.pop(trace.number, None)

    def _left(self, trace: Trace, client: ConnectedClient, left: ConnectedClient) -> None:
        if left is client:
            self._end(trace, "the client has left")

    # -- lines ---------------------------------------------------------------------------------------

    def _frames(self, trace: Trace, direction: str, read: Reader, data: bytes) -> None:
        try:
            for line in read(data):
                if trace.isFull:
                    break
                self._add(trace, direction, line)
        except Exception as error:  # the connection must not notice a fault of the tap
            self._add(trace, direction, FrameWords("bytes", 1, len(data), f"cannot be read: {error}"))
            self._end(trace, "its bytes cannot be read")

    def _published(self, trace: Trace, envelope: Envelope, number: int, size: int) -> None:
        publisher = envelope.publisher
        words = f"{publisher.name} publishes to {envelope.topic.name!r}, {size} bytes of payload, QoS {envelope.qos}"
        if envelope.offset:
            words += f", offset {envelope.offset}"
        line = FrameWords("publication", number, size, words)
        self._add(trace, IN, line, {"client_id": publisher.id, "topic": envelope.topic.name})

    def _add(self, trace: Trace, direction: str, line: FrameWords, more: dict[str, Any] | None = None) -> None:
        if trace.isFull:
            return
        row = {"number": len(trace.rows) + 1, "time": round(self._broker.wall() * 1000), "direction": direction}
        trace.rows.append({**row, **trace.about, **line._asdict(), **(more or {})})
        if trace.isFull:
            # Later: the tap that is running is taken off its connection.
            self._broker.deadlines.callLater(0, partial(self._end, trace, "it has as many lines as asked for"))
