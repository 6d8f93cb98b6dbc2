"""Traces publications while it runs, as a wiretap and as a watcher of the journal; sends remaining spans at its stop.

A traced publication has a span ``publish``, from its arrival at the broker to its delivery; below it ``commit``, if it
passes through the journal, and ``deliver``, which ends after the writes of its reactor turn. A publication with a
``traceparent`` (W3C Trace Context) is traced according to that; of the others a sample begins new traces.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import random
from typing import Any, NamedTuple

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.internet.threads import deferToThreadPool
from twisted.python.reflect import namedAny
from zope.interface import implementer

from fleximq import __version__
from fleximq.api import Envelope, IExtensionContext, IForm, IRecordWatcher, ISubscriber
from fleximq.telemetry.choices import Choices
from fleximq.telemetry.jobs import JobTracing
from fleximq.telemetry.trace_context import MARK, contextOf

#: In a separate package, loaded only for this exporter.
_OTLP = "opentelemetry.exporter.otlp.proto.http.trace_exporter.OTLPSpanExporter"
#: The only dialect with headers.
_FLEXIMQ = "fleximq"


@dataclass(eq=False, repr=False)
class TelemetryService(Service):
    """Traces a broker's publications; ``process`` makes the processor of spans, ``inThread`` calls in a thread."""

    name = "otel"

    _context: IExtensionContext
    _choices: Choices
    _process: Callable[[Choices], SpanProcessor] | None = None
    _inThread: Callable[..., "Deferred[Any]"] | None = None
    _provider: TracerProvider | None = field(default=None, init=False)

    def startService(self) -> None:
        super().startService()
        choices, context = self._choices, self._context
        resource = Resource.create({"service.name": choices.service, "service.version": __version__})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor((self._process or _sending)(choices))
        tracer = self._provider.get_tracer("fleximq", __version__)
        self._tracing = Tracing(tracer, context.reactor, choices.sample, random)
        context.wiretap(self._tracing, choices.pattern)
        context.watch(self._tracing)
        context.watchQueues(JobTracing(tracer))

    def stopService(self) -> "Deferred[Any]":
        """Send the remaining spans; the Deferred fires when they were sent, or after a failure."""
        super().stopService()
        provider, self._provider = self._provider, None
        if provider is None:
            return succeed(None)
        self._tracing.settle()
        reactor = self._context.reactor
        inThread = self._inThread or partial(deferToThreadPool, reactor, reactor.getThreadPool())
        return inThread(provider.shutdown)


def _sending(choices: Choices) -> SpanProcessor:
    """Return a processor that sends spans in batches, from its own thread."""
    isConsole = choices.exporter == "console"
    return BatchSpanProcessor(ConsoleSpanExporter() if isConsole else namedAny(_OTLP)(choices.endpoint))


def contextIn(source: Any, body: Any) -> Mapping[str, str]:
    """Return the trace context in the header of a FlexiMQ PUB, empty without one; ``source`` reads the body.

    A search for its key recognizes most frames without a context.
    """
    if isinstance(body, bytes) and MARK not in body:
        return {}
    headers = source.run(body).headers
    return contextOf(headers if isinstance(headers, bytes) else next(iter(headers), b""))


class _JournalSpans(NamedTuple):
    """The spans of a publication on its way through the journal; the reference to the body makes its id unique."""

    body: Any
    publish: Span
    commit: Span


@implementer(ISubscriber, IForm, IRecordWatcher)
class Tracing:
    """Makes spans for publications.

    ``sample`` is the traced share of those without a trace context; ``random`` returns a number from 0 to below 1.
    """

    def __init__(self, tracer: Tracer, clock: IReactorTime, sample: float, random: Callable[[], float]) -> None:
        self.form = self
        self._tracer, self._clock, self._sample, self._random = tracer, clock, sample, random
        self._propagator = TraceContextTextMapPropagator()
        self._recorded: dict[int, _JournalSpans] = {}
        self._decided: list[int] = []
        self._ending: list[Span] = []

    # -- IRecordWatcher ----------------------------------------------------------------------------

    def appended(self, envelope: Envelope, body: Any, count: int) -> None:
        """Begin the spans of a durable publication, if it is traced."""
        publish = self._begin(envelope, body, count)
        if publish is not None:
            commit = self._tracer.start_span("commit", set_span_in_context(publish))
            self._recorded[id(body)] = _JournalSpans(body, publish, commit)

    def decided(self, envelope: Envelope, body: Any, count: int, reason: str | None) -> None:
        """End the span of its commit; all its spans after a refusal."""
        recorded = self._recorded.get(id(body))
        if recorded is None:
            return
        if reason is None:
            recorded.commit.set_attribute("fleximq.offset", envelope.offset)
            recorded.commit.end()
            self._decided.append(id(body))
            self._endSoon(recorded.publish)
        else:
            for span in (recorded.commit, recorded.publish):
                span.set_status(Status(StatusCode.ERROR, reason))
                span.end()
            del self._recorded[id(body)]

    # -- ISubscriber and IForm ---------------------------------------------------------------------

    def render(self, envelope: Envelope, body: Any, count: int) -> None:
        """Begin the span of a delivery, and that of its publication if it did not pass through the journal."""
        recorded = self._recorded.pop(id(body), None)
        publish = self._begin(envelope, body, count) if recorded is None else recorded.publish
        if publish is None:
            return
        self._endSoon(self._tracer.start_span("deliver", set_span_in_context(publish), kind=SpanKind.PRODUCER))
        if recorded is None:
            self._endSoon(publish)

    def deliver(self, rendered: None, count: int) -> None:
        """Ignored: the spans exist already."""

    # -- spans -------------------------------------------------------------------------------------

    def _begin(self, envelope: Envelope, body: Any, count: int) -> Span | None:
        carried = contextIn(envelope.source, body) if envelope.publisher.dialect == _FLEXIMQ else {}
        if not carried and not (self._sample and self._random() < self._sample):
            return None
        span = self._tracer.start_span(
            f"publish {envelope.topic.name}",
            self._propagator.extract(carried),
            kind=SpanKind.SERVER,
            attributes={
                "messaging.system": "fleximq",
                "messaging.destination.name": envelope.topic.name,
                "messaging.batch.message_count": count,
                "messaging.client.id": str(envelope.publisher.id),
                "fleximq.dialect": envelope.publisher.dialect,
            },
        )
        return span if span.is_recording() else None

    def _endSoon(self, span: Span) -> None:
        if not self._ending:
            self._clock.callLater(0, self.settle)
        self._ending.append(span)

    def settle(self) -> None:
        """End the spans of this reactor turn."""
        ending, self._ending = self._ending, []
        decided, self._decided = self._decided, []
        for key in decided:  # those of topics that do not match the pattern
            self._recorded.pop(key, None)
        for span in ending:
            span.end()
