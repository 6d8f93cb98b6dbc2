"""Spans of jobs: from the delivery of a queue's message with a trace context to its settlement.

The span of the publication, in the same trace, tells when the job was enqueued. Consumers with a prefetch have spans;
those that ask for single messages and acknowledge by id (MiniMQ) have none.
"""

from collections.abc import Mapping, Sequence

from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from zope.interface import implementer

from fleximq.api import ConnectedClient, IQueueWatcher, QueueDelivery
from fleximq.telemetry.trace_context import contextOf

#: The maximum number of spans of one consumer that are open; further jobs have none.
MOST_OPEN = 10_000


@implementer(IQueueWatcher)
class JobTracing:
    """Makes the spans; ``open`` has the unsettled ones of each queue and client, by tag."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._propagator = TraceContextTextMapPropagator()
        self.open: dict[tuple[str, int], dict[int, Span]] = {}

    def delivered(self, queue: str, client: ConnectedClient, deliveries: Sequence[QueueDelivery]) -> None:
        """Begin the spans of deliveries."""
        for tag, message, attempts in deliveries:
            carried = {} if message.head is None else contextOf(message.head.pairs)
            spans = self.open.get((queue, client.id), {})
            if not carried or len(spans) >= MOST_OPEN:
                continue
            span = self._tracer.start_span(
                f"process {queue}",
                self._propagator.extract(carried),
                kind=SpanKind.CONSUMER,
                attributes={
                    "messaging.system": "fleximq",
                    "messaging.operation.type": "process",
                    "messaging.destination.name": queue,
                    "messaging.client.id": str(client.id),
                    "fleximq.attempt": attempts,
                },
            )
            if span.is_recording():
                spans[tag] = span
                self.open[queue, client.id] = spans

    def settled(
        self,
        queue: str,
        client: ConnectedClient,
        acks: Sequence[int],
        retries: Sequence[tuple[int, float | None]],
        rejects: Sequence[tuple[int, str]],
    ) -> None:
        """End the spans of settled deliveries, with an error for rejected ones."""
        spans = self.open.get((queue, client.id))
        if spans is None:
            return
        outcomes = {
            **dict.fromkeys(acks, ("acknowledged", None)),
            **{tag: ("retried", None) for tag, _ in retries},
            **{tag: ("rejected", words) for tag, words in rejects},
        }
        for tag, (outcome, words) in outcomes.items():
            _end(spans.pop(tag, None), outcome, words)
        if not spans:
            del self.open[queue, client.id]

    def leaseEnded(self, queue: str, client: ConnectedClient, tag: int) -> None:
        """End the span of a delivery that returns to the queue."""
        spans = self.open.get((queue, client.id))
        if spans is not None:
            _end(spans.pop(tag, None), "returned", "the lease ended")
            if not spans:
                del self.open[queue, client.id]

    def left(self, queue: str, client: ConnectedClient) -> None:
        """End the spans of deliveries that return to the queue since their consumer has left."""
        spans: Mapping[int, Span] = self.open.pop((queue, client.id), {})
        for span in spans.values():
            _end(span, "returned", "the consumer left")


def _end(span: Span | None, outcome: str, words: str | None) -> None:
    if span is not None:
        span.set_attribute("fleximq.outcome", outcome)
        if words is not None:
            span.set_status(Status(StatusCode.ERROR, words))
        span.end()
