"""Spans of a whole broker in memory, taken by the SDK's own exporter for tests."""

from typing import Any

import msgpack
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from twisted.internet.defer import maybeDeferred
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from fleximq.broker.broker import Broker
from fleximq.broker.envelope import Envelope, MessageSource
from fleximq.broker.presence import OwnMessages
from fleximq.broker.rules import BrokerRules
from fleximq.errors import NotKept
from fleximq.interfaces import IForm, IQueueWatcher, IRecordWatcher, ISubscriber
from fleximq.journal.memory_journal import MemoryJournal
from fleximq.telemetry.choices import Choices
from fleximq.telemetry.jobs import JobTracing
from fleximq.telemetry.service import TelemetryService
from fleximq.values.message import Content, Message
from fleximq.values.publication_head import headOf
from fleximq.values.queue_definition import QueueDefinition
from fleximq.wire.fleximq_frame import encodeFrame
from fleximq.wire.fleximq_header import MessageType
from tests.in_process.parts import contextOf
from tests.telemetry.test_carrier import PARENT


class SlowJournal(MemoryJournal):
    """Says that it is on disk, and commits when it is told to."""

    onDisk = True

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Any] = []
        self.refuses = False

    def append(self, *run: Any) -> int:
        """Keep for later."""
        if self.refuses:
            raise NotKept("the disk is full")
        self.waiting.append(run[-1])
        return len(self.waiting)


class TracingCase(SynchronousTestCase):
    """A broker with the extension; ``choices`` are its options."""

    choices = Choices("console")

    def setUp(self) -> None:
        """Start it."""
        self.clock: Any = MemoryReactorClock()
        self.exporter = InMemorySpanExporter()
        self.journal = SlowJournal()
        self.failures: list[Exception] = []
        self.broker = Broker(
            self.clock, self.journal, lambda digits: "0" * digits, lambda message: "x",
            self.failures.append, BrokerRules(durable=("kept.#",)),
        )  # fmt: skip
        self.context = contextOf(self.broker, self.clock)
        self.service = TelemetryService(
            self.context, self.choices, lambda choices: SimpleSpanProcessor(self.exporter), maybeDeferred
        )
        self.service.startService()
        self.client = self.broker.join("fleximq")
        self.addCleanup(lambda: self.assertEqual(self.failures, []))

    def publish(self, topic: str, **fields: Any) -> None:
        """Publish a FlexiMQ frame with these header keys."""
        from fleximq.dialects.fleximq.forms import FlexiSource
        from fleximq.wire.fleximq_header import checkHeader, peek
        from fleximq.wire.fleximq_scanner import FIXED_BYTES

        header = msgpack.packb({"topic": topic, **fields})
        source = FlexiSource(FIXED_BYTES + len(header), checkHeader(MessageType.PUB, peek(header)))
        frame = encodeFrame(MessageType.PUB, self.client.id, header, b"\x01")
        self.broker.publish(Envelope(self.broker.topics.get(topic), self.client, source), frame, 1)

    def spans(self) -> dict[str, Any]:
        """Return the spans that have ended by now, by name."""
        return {span.name: span for span in self.exporter.get_finished_spans()}


class SpanTests(TracingCase):
    """Publications that bring a context along."""

    def test_interfaces(self) -> None:
        """It provides what it says."""
        for interface in (ISubscriber, IForm, IRecordWatcher):
            verifyObject(interface, self.service._tracing)

    def test_live(self) -> None:
        """A live publication has two spans below that of its publisher, which end with the turn."""
        self.publish("a", traceparent=PARENT)
        self.assertEqual(self.spans(), {})
        self.clock.advance(0)
        spans = self.spans()
        self.assertEqual(set(spans), {"publish a", "deliver"})
        publish = spans["publish a"]
        self.assertEqual(f"{publish.context.trace_id:032x}", PARENT[3:35])
        self.assertEqual(f"{publish.parent.span_id:016x}", PARENT[36:52])
        self.assertEqual(spans["deliver"].parent.span_id, publish.context.span_id)
        self.assertEqual(publish.attributes["messaging.destination.name"], "a")
        self.assertEqual(publish.attributes["messaging.client.id"], "1000")
        self.assertEqual(publish.resource.attributes["service.name"], "fleximq")

    def test_jobHasSpanUntilItIsSettled(self) -> None:
        """A delivery to a consumer is part of the publisher's trace, and ends with the outcome."""
        self.broker.queues.ensure("jobs")
        deliveries: list[Any] = []
        consumer = self.broker.join("fleximq")
        self.broker.consumeFrom(consumer, "jobs", deliveries.extend, self.failures.append, 10)
        for offset in range(1, 5):
            self.publish("jobs", traceparent=PARENT)
            self.journal.waiting.pop()(offset, None)
        self.publish("jobs")
        self.journal.waiting.pop()(5, None)
        tags = [tag for tag, _, _ in deliveries]
        self.assertEqual(len(tags), 5)
        self.broker.settle(consumer, "jobs", [tags[0], tags[4]], [(tags[1], 5.0)], [(tags[2], "no such user")])
        self.broker.stopConsuming(consumer, "jobs")
        spans = [span for span in self.exporter.get_finished_spans() if span.name == "process jobs"]
        found = [(dict(span.attributes or {})["fleximq.outcome"], span.status.description) for span in spans]
        rejected, returned = ("rejected", "no such user"), ("returned", "the consumer left")
        self.assertEqual(found, [("acknowledged", None), ("retried", None), rejected, returned])
        for span in spans:
            self.assertEqual(f"{span.context.trace_id:032x}", PARENT[3:35])
            self.assertEqual(dict(span.attributes or {})["fleximq.attempt"], 1)
        verifyObject(IQueueWatcher, JobTracing(self.service._tracing._tracer))

    def test_jobHasSpanUntilItsLeaseEnds(self) -> None:
        """Each delivery has a span; a settlement after the end of the lease is not its outcome."""
        self.broker.defineQueue(self.client, QueueDefinition("jobs", lease=5.0))
        deliveries: list[Any] = []
        consumers = [self.broker.join("fleximq") for _ in range(2)]
        for consumer in consumers:
            self.broker.consumeFrom(consumer, "jobs", deliveries.extend, self.failures.append)
        self.publish("jobs", traceparent=PARENT)
        self.journal.waiting.pop()(1, None)
        self.clock.advance(5)
        self.assertEqual(len(deliveries), 2)
        for consumer, delivery in zip(consumers, deliveries, strict=True):
            self.broker.settle(consumer, "jobs", [delivery.tag])
        spans = [span for span in self.exporter.get_finished_spans() if span.name == "process jobs"]
        found = [(dict(span.attributes or {})["fleximq.outcome"], span.status.description) for span in spans]
        self.assertEqual(found, [("returned", "the lease ended"), ("acknowledged", None)])

    def test_scheduledPublicationHasSpanWhenItsTimeHasCome(self) -> None:
        """It belongs to the trace of its publisher, as a publication without delay does."""
        message = Message(b"x", Content.MESSAGEPACK, head=headOf("a", msgpack.packb({"traceparent": PARENT}), 1000))
        envelope = Envelope(self.broker.topicFor(self.client, "a"), self.client, MessageSource())
        due = int(self.clock.seconds() * 1000) + 5000
        self.broker.schedule(envelope, [message], 1, due, lambda *decision: None)
        self.clock.advance(5)
        self.clock.advance(0)
        self.assertEqual(set(self.spans()), {"publish a", "deliver"})
        self.assertEqual(f"{self.spans()['publish a'].parent.span_id:016x}", PARENT[36:52])

    def test_otherDialects(self) -> None:
        """Their messages have no header, and are not searched for a context."""
        client = self.broker.join("blipmq")
        envelope = Envelope(self.broker.topics.get("a"), client, MessageSource())
        self.broker.publish(envelope, [Message(b"x", Content.BYTES, head=headOf("a", b"traceparent", 1))], 1)
        self.clock.advance(0)
        self.assertEqual(self.spans(), {})

    def test_state(self) -> None:
        """The trace state goes along."""
        self.publish("a", traceparent=PARENT, tracestate="vendor=1")
        self.clock.advance(0)
        self.assertEqual(self.spans()["publish a"].context.trace_state.to_header(), "vendor=1")

    def test_kept(self) -> None:
        """What goes through the journal has a span for that, and is delivered behind it."""
        self.publish("kept.a", traceparent=PARENT)
        self.clock.advance(1)
        self.assertEqual(self.spans(), {})
        self.journal.waiting.pop()(7, None)
        self.clock.advance(0)
        spans = self.spans()
        self.assertEqual(set(spans), {"publish kept.a", "commit", "deliver"})
        self.assertEqual(spans["commit"].attributes["fleximq.offset"], 7)
        self.assertLessEqual(spans["commit"].end_time, spans["deliver"].start_time)
        for name in ("commit", "deliver"):
            self.assertEqual(spans[name].parent.span_id, spans["publish kept.a"].context.span_id)

    def test_refused(self) -> None:
        """What the journal refuses has spans that say why, whether at once or later."""
        self.publish("kept.a", traceparent=PARENT)
        self.journal.waiting.pop()(0, "the disk is full")
        spans = self.spans()
        self.assertEqual(spans["commit"].status.status_code, StatusCode.ERROR)
        self.assertEqual(spans["publish kept.a"].status.description, "the disk is full")
        self.exporter.clear()
        self.journal.refuses = True
        self.assertRaises(NotKept, self.publish, "kept.a", traceparent=PARENT)
        self.assertEqual(self.spans()["commit"].status.status_code, StatusCode.ERROR)
        self.assertEqual(self.service._tracing._recorded, {})

    def test_notSampled(self) -> None:
        """A publisher that does not sample is not traced."""
        self.publish("a", traceparent=PARENT[:-1] + "0")
        self.clock.advance(0)
        self.assertEqual(self.spans(), {})

    def test_noContext(self) -> None:
        """Without a context nothing is traced, if no sample was asked for; nor with a context that is none."""
        self.publish("a")
        self.publish("kept.a")
        self.journal.waiting.pop()(1, None)
        self.clock.advance(0)
        self.assertEqual(self.spans(), {})

    def test_stopped(self) -> None:
        """After the end the broker is as it was, and what was delivered has been sent."""
        self.publish("a", traceparent=PARENT)
        self.successResultOf(self.service.stopService())
        self.assertEqual(set(self.spans()), {"publish a", "deliver"})
        self.context.release()
        self.assertFalse(self.broker.recordWatchers.present)
        self.publish("a", traceparent=PARENT)
        self.assertEqual(self.broker.topics.get("a").routes, ())


class SampleTests(TracingCase):
    """Publications of any dialect, all of which are sampled."""

    choices = Choices("console", sample=1.0)

    def test_root(self) -> None:
        """What brings no context begins a trace of its own."""
        message = Message(b"x", Content.BYTES)
        self.broker.publish(Envelope(self.broker.topics.get("a"), self.client, OwnMessages()), message, 1)
        self.clock.advance(0)
        self.assertIsNone(self.spans()["publish a"].parent)

    def test_context(self) -> None:
        """A publisher that says it does not sample is believed all the same."""
        self.publish("a", traceparent=PARENT[:-1] + "0")
        self.clock.advance(0)
        self.assertEqual(self.spans(), {})


class PatternTests(TracingCase):
    """Only some topics are looked at."""

    choices = Choices("console", pattern="b")

    def test_others(self) -> None:
        """Others are not delivered in any span, and nothing of them is remembered."""
        self.publish("a", traceparent=PARENT)
        self.publish("kept.a", traceparent=PARENT)
        self.journal.waiting.pop()(1, None)
        self.clock.advance(0)
        self.assertNotIn("deliver", self.spans())
        self.assertEqual(self.service._tracing._recorded, {})
