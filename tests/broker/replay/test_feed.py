"""Feeds against a model: each offset once, in order, whatever comes between."""

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from fleximq.broker.envelope import Envelope, MessageSource
from fleximq.broker.replay import feed
from fleximq.broker.replay.feed import DeferredForm, IOutlet
from fleximq.broker.replay.replay import Start
from fleximq.broker.slices import Slices
from fleximq.errors import BrokerError
from fleximq.interfaces import IForm, ISubscriberProxy
from fleximq.values.patterns import anyOf, isPattern
from fleximq.values.records import StoredBatch
from tests.broker.parts import AsMessages, Collector, makeBroker, text
from tests.nightly import repetitions
from tests.slow_journal import SlowJournal

_TOPICS = ("d.a", "d.b", "d.a.x")
_NAMES = (*_TOPICS, "d.*", "d.#", "#")


class WithOffsets(AsMessages):
    """Offsets of the messages of a run."""

    def render(self, envelope: Envelope, body: Any, count: int) -> Any:
        """Return the offsets."""
        return list(range(envelope.offset, envelope.offset + count)) if envelope.offset else ["live"]


@implementer(IOutlet)
class Reader(Collector):
    """A connection that takes what it is given; ``offsets`` are what came. It is its own outlet."""

    chunkBytes = 3
    slices: Slices | None = None

    def __init__(self) -> None:
        super().__init__()
        self.form: Any = self.form
        self.subscriber: Any = self
        self.offsets: list[Any] = []
        self.failures: list[tuple[str, BrokerError]] = []
        self.full = False
        self.closed = False
        self.waiting: list[Callable[[], None]] = []
        self.later: list[Callable[[], None]] = []

    def whenRelieved(self, call: Callable[[], None]) -> None:
        """Keep for :meth:`relieve`."""
        self.waiting.append(call)

    def soon(self, call: Callable[[], None]) -> None:
        """Keep for :meth:`settle`."""
        self.later.append(call)

    def send(self, rendered: Any) -> None:
        """Keep a run."""
        self.offsets += rendered

    def sendBatches(self, batches: Sequence[StoredBatch]) -> None:
        """Keep records."""
        for batch in batches:
            self.offsets += batch.offsets

    def failed(self, error: BrokerError, name: str) -> None:
        """Keep an error."""
        self.failures.append((name, error))

    def close(self) -> None:
        """Remember it."""
        self.closed = True

    def relieve(self) -> None:
        """Have room again."""
        self.full = False
        calls, self.waiting = self.waiting, []
        for call in calls:
            call()

    def settle(self) -> None:
        """Do what was to be done soon."""
        calls, self.later = self.later, []
        for call in calls:
            call()


_FORM = DeferredForm(WithOffsets())


class FeedMachine(RuleBasedStateMachine):
    """Publishes, commits, subscribes, reads, falls behind and catches up, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.journal = SlowJournal()
        self.journal.patient = True
        self.journal.portion = 2
        self.clock = Clock()
        self.broker = makeBroker(self.clock, journal=self.journal, durable=("d.#",))
        self.publisher = self.broker.join("any")
        self.client = self.broker.join("fleximq")
        self.reader = Reader()
        self.reader.form = _FORM
        self.ranges: dict[str, tuple[Callable[[str], bool], int]] = {}
        self.seen = 0

    @rule(topic=st.sampled_from((*_TOPICS, "n")), count=st.integers(1, 4))
    def publish(self, topic: str, count: int) -> None:
        """Publish a run."""
        envelope = Envelope(self.broker.topicFor(self.publisher, topic), self.publisher, MessageSource())
        self.broker.publish(envelope, text(*"x" * count), count)

    @rule(runs=st.integers(1, 3))
    def commit(self, runs: int) -> None:
        """Let some be committed."""
        self.journal.commit(runs=runs)

    @rule(name=st.sampled_from(_NAMES), back=st.integers(0, 10))
    def follow(self, name: str, back: int) -> None:
        """Begin at a place, perhaps anew. The model begins a list of its own then."""
        start = max(1, self.journal.end - back)
        try:
            self.broker.follow(self.client, self.reader, name, Start("offset", start))
        except BrokerError:
            return
        matches = anyOf((name,)) if isPattern(name) else name.__eq__
        position = self.expectedUntil()
        self.ranges = {each: (match, max(begin, position)) for each, (match, begin) in self.ranges.items()}
        self.ranges[name] = matches, min(start, self.journal.end)
        self.reader.offsets.clear()

    @rule(name=st.sampled_from(_NAMES))
    def unsubscribe(self, name: str) -> None:
        """End one."""
        position = self.expectedUntil()
        self.broker.unsubscribe(self.client, name)
        self.ranges.pop(name, None)
        self.ranges = {each: (match, max(begin, position)) for each, (match, begin) in self.ranges.items()}
        self.reader.offsets.clear()

    def expectedUntil(self) -> int:
        """Return the offset behind the last that was delivered."""
        return self.reader.offsets[-1] + 1 if self.reader.offsets else 0

    @precondition(lambda self: self.journal.asked)
    @rule()
    def answer(self) -> None:
        """Let a reading be answered."""
        self.journal.answer()

    @rule()
    def settle(self) -> None:
        """Let the reactor go on."""
        self.reader.settle()
        self.clock.advance(0)

    @rule(full=st.booleans())
    def pace(self, full: bool) -> None:
        """Stop taking, or go on."""
        if full:
            self.reader.full = True
        else:
            self.reader.relieve()

    def _expected(self) -> list[int]:
        return [
            record.offset
            for record in self.journal.records
            if any(match(record.topic) and record.offset >= begin for match, begin in self.ranges.values())
        ]

    @invariant()
    def inOrderAndOnce(self) -> None:
        """What came is the beginning of what is to come."""
        expected = self._expected()
        assert self.reader.offsets == expected[: len(self.reader.offsets)], (self.reader.offsets, expected)
        assert not self.reader.failures

    def teardown(self) -> None:
        """In the end all has come, and what comes then comes at once."""
        for _ in range(2):
            self.journal.commit()
            self.reader.relieve()
            while self.journal.asked or self.reader.later or self.clock.calls:
                while self.journal.asked:
                    self.journal.answer()
                self.settle()
            assert self.reader.offsets == self._expected(), (self.reader.offsets, self._expected())
            for topic in _TOPICS:
                self.publish(topic, 1)


class SlicesMachine(FeedMachine):
    """With a slow form: each record is a slice, and anything can happen between two of them."""

    def __init__(self) -> None:
        super().__init__()
        self.reader.slices = self.broker.slices


class FeedTests(SynchronousTestCase):
    """Feeds."""

    def test_likeTheModel(self) -> None:
        """Whatever happens in whatever order, each offset comes once, in order, and nothing is left out."""
        self.patch(feed, "_SLICE_BYTES", 1)
        self.patch(feed, "_TOGETHER", 3)
        for machine in (FeedMachine, SlicesMachine):
            run_state_machine_as_test(
                machine, settings=settings(max_examples=repetitions(60, 750), stateful_step_count=40, deadline=None)
            )

    def test_interfaces(self) -> None:
        """A feed takes a subscriber's place, in a form that renders late."""
        machine = FeedMachine()
        machine.follow("d.a", 0)
        [(feed,)] = machine.broker.topics.proxies.values()
        verifyObject(ISubscriberProxy, feed)
        verifyObject(IForm, feed.form)

    def test_renderedOnce(self) -> None:
        """A run is rendered once for all who take it, and not at all while all are still reading."""
        machine = FeedMachine()
        form = AsMessages()
        readers = [Reader() for _ in range(3)]
        late = DeferredForm(form)
        for reader in readers:
            reader.form = late
            client = machine.broker.join("fleximq")
            machine.broker.follow(client, reader, "d.a", Start("first"))
        machine.publish("d.a", 2)
        machine.commit(1)
        self.assertEqual((form.rendered, [len(reader.offsets) for reader in readers]), (1, [2, 2, 2]))
        for reader in readers:
            reader.full = True
        machine.publish("d.a", 2)
        machine.commit(1)
        self.assertEqual(form.rendered, 1)

    def test_removalsMeanwhile(self) -> None:
        """A step that was scheduled earlier replaces a read whose removals are still compared."""
        machine = FeedMachine()
        machine.publish("d.a", 4)
        machine.publish("d.b", 4)
        machine.commit(2)
        machine.follow("d.a", 8)
        machine.answer()
        machine.broker.follow(machine.client, machine.reader, "d.b", Start("first"))
        machine.journal.removed += [("e", 1 << 40)] * 1500
        machine.answer()
        for _ in range(4):
            machine.settle()
        while machine.journal.asked or machine.reader.later:
            machine.settle()
            machine.journal.answer(machine.journal.asked)
        self.assertEqual(machine.reader.offsets, list(range(1, 9)))

    def test_leaves(self) -> None:
        """When a client leaves, nothing is left of its feeds."""
        machine = FeedMachine()
        machine.follow("d.a", 0)
        machine.broker.leave(machine.client, "test")
        self.assertTrue(machine.reader.closed)
        self.assertEqual(machine.broker.topics.proxies, {})

    def test_failingJournal(self) -> None:
        """What the journal raises ends all subscriptions of the feed, each with the error."""
        machine = FeedMachine()
        machine.publish("d.a", 1)
        machine.commit(1)

        def fail(*arguments: Any) -> None:
            raise BrokerError("broken")

        self.patch(machine.journal, "read", fail)
        machine.follow("d.b", 0)
        machine.follow("d.a", 5)
        self.assertEqual(sorted(name for name, _ in machine.reader.failures), ["d.a", "d.b"])
        self.assertEqual(machine.client.subscriptions, {})
