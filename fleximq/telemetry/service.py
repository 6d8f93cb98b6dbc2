"""The service: traces while it runs, and sends the remaining spans when it stops."""

from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from functools import partial
from random import random
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.threads import deferToThreadPool
from twisted.python.reflect import namedAny

from fleximq import __version__
from fleximq.interfaces import IExtensionContext
from fleximq.telemetry.choices import Choices
from fleximq.telemetry.tracing import Tracing

#: In a separate package, loaded only for this exporter.
_OTLP = "opentelemetry.exporter.otlp.proto.http.trace_exporter.OTLPSpanExporter"


@dataclass(eq=False, repr=False)
class TelemetryService(Service):
    """Traces a broker's publications.

    :param process: makes the processor of ended spans; by default one that sends them from a thread.
    :param inThread: calls a function in a thread; by default one of the reactor's.
    """

    name = "otel"

    _context: IExtensionContext
    _choices: Choices
    process: InitVar[Callable[[Choices], SpanProcessor] | None] = None
    _inThread: Callable[..., "Deferred[Any]"] | None = None
    _provider: TracerProvider | None = field(default=None, init=False)

    def __post_init__(self, process: Callable[[Choices], SpanProcessor] | None) -> None:
        self._process = process or _sending

    def startService(self) -> None:
        """Begin to trace."""
        super().startService()
        choices, context = self._choices, self._context
        resource = Resource.create({"service.name": choices.service, "service.version": __version__})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(self._process(choices))
        tracer = self._provider.get_tracer("fleximq", __version__)
        self._tracing = Tracing(tracer, context.reactor, choices.sample, random)
        context.tap(self._tracing, choices.pattern)
        context.watch(self._tracing)

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
    return BatchSpanProcessor(_exporterOf(choices))


def _exporterOf(choices: Choices) -> SpanExporter:
    if choices.exporter == "console":
        return ConsoleSpanExporter()
    exporter: SpanExporter = namedAny(_OTLP)(choices.endpoint)
    return exporter
