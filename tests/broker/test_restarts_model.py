"""Queues over restarts, against a plain list of all that was published."""

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.envelope import QueueDelivery
from tests.broker.restarts import Restarts
from tests.nightly import repetitions

RETRY = 30.0
#: So little that a dozen messages are too much for it.
MEMORY = 3000


@dataclass(eq=False)
class _Kept:
    """A message in the model: of a subscription with its tag, or of a work queue.

    ``given`` tells whether it was ever handed out, ``gone`` whether it was acknowledged, ``due`` until when it is
    hidden; each ``Safe`` what the log knows of that.
    """

    name: str
    tag: int = 0
    kept: bool = True
    given: bool = False
    gone: bool = False
    goneSafe: bool = False
    due: float | None = None
    dueSafe: float | None = None


class RestartMachine(RuleBasedStateMachine):
    """A subscription to ``t``, a work queue of ``q``, a log, and lives that end at any moment."""

    def __init__(self) -> None:
        super().__init__()
        self.world = Restarts({"queueMemory": MEMORY}, maxDeliveries=1000, redelivery=RETRY)
        self.number = 0
        self.arrived = 0
        self.one = self.open()
        self.world.consume("q", 1)
        self.world.commit()
        self.on: list[_Kept] = []
        self.queued: list[_Kept] = []
        self.waiting: list[tuple[str, _Kept]] = []

    def open(self) -> int:
        return self.world.broker.openSubscription(self.world.me, None, "t", 1).id

    # -- what happens ------------------------------------------------------------------------------

    @rule(topic=st.sampled_from("tqu"), count=st.integers(1, 9))
    def publish(self, topic: str, count: int) -> None:
        names = [str(self.number + place) for place in range(1, count + 1)]
        self.number += count
        self.world.publish(topic, *names, ids=True)
        self.waiting += [(topic, _Kept(name)) for name in names]

    @rule(count=st.integers(1, 3))
    def publishUnkept(self, count: int) -> None:
        names = [str(self.number + place) for place in range(1, count + 1)]
        self.number += count
        self.world.publish("q", *names, qos=0, ids=True)
        self.waiting += [("q", _Kept(name, kept=False)) for name in names]
        if not any(kept.kept for topic, kept in self.waiting if topic == "q"):
            self.arrive("q")

    def arrive(self, topic: str) -> None:
        """Let what waits for the disk come to the queues."""
        rest = []
        for of, kept in self.waiting:
            if of != topic:
                rest.append((of, kept))
            elif topic == "t":
                self.arrived += 1
                kept.tag = self.arrived
                self.on.append(kept)
            elif topic == "q":
                self.queued.append(kept)
        self.waiting = rest

    @rule()
    def commit(self) -> None:
        self.world.commit()
        self.knowAll()
        for topic in "tqu":
            self.arrive(topic)

    @rule()
    def checkpoint(self) -> None:
        self.world.journal.roll(self.world.broker)
        self.knowAll()

    def knowAll(self) -> None:
        """Whatever was said by now is in the log."""
        for kept in [*self.on, *self.queued]:
            kept.goneSafe, kept.dueSafe = kept.gone, kept.due

    @rule(patient=st.booleans())
    def readSlowly(self, patient: bool) -> None:
        self.world.settle()
        self.world.journal.patient = patient

    # -- the subscription --------------------------------------------------------------------------

    @rule(count=st.integers(1, 12))
    def poll(self, count: int) -> None:
        expected = sorted((each for each in self.on if not each.gone and each.due is None), key=lambda each: each.tag)
        got = self.world.poll(self.one, count)
        assert [(each.tag, each.message.payload.decode()) for each in got] == [
            (each.tag, each.name) for each in expected[:count]
        ]
        for each in expected[:count]:
            each.given = True
            each.due = self.world.clock.seconds() + RETRY

    @rule(back=st.integers(0, 15))
    def acknowledge(self, back: int) -> None:
        tag = self.arrived - back
        known = [each for each in self.on if each.tag == tag and each.given and not each.gone]
        assert self.world.broker.polledSubscriptions.find(self.one, None).acknowledge([tag]) == ([] if known else [tag])
        for each in known:
            each.gone = True

    @rule()
    def leave(self) -> None:
        self.world.broker.leave(self.world.me, "test")
        self.world.me = self.world.broker.join("blipmq")
        for each in self.on:
            each.due = None

    # -- the work queue ----------------------------------------------------------------------------

    @rule(count=st.integers(1, 12))
    def consume(self, count: int) -> None:
        expected = [each for each in self.queued if not each.gone and each.due is None]
        got: list[QueueDelivery] = self.world.consume("q", count)
        assert [each.message.message_id for each in got] == [each.name for each in expected[:count]]
        assert all(each.message.payload.decode() == each.message.message_id for each in got)
        for each in expected[:count]:
            each.given = True
            each.due = self.world.clock.seconds() + RETRY

    @rule(back=st.integers(0, 15))
    def acknowledgeById(self, back: int) -> None:
        name = str(self.number - back)
        self.world.broker.acknowledgeMessages([name])
        self.world.settle()
        for each in self.queued:
            if each.name == name and each.given:
                each.gone = True

    # -- time and death ----------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 10, 31]))
    def wait(self, seconds: int) -> None:
        self.world.clock.pump([0.0, float(seconds), 0.0])
        for each in [*self.on, *self.queued]:
            if each.due is not None and each.due <= self.world.clock.seconds():
                each.due = None

    @rule()
    def kill(self) -> None:
        """The log decides what comes back; what it may or may not know is looked up."""
        self.world.clock.advance(0)
        patient = self.world.journal.patient
        self.world.kill(patient)
        self.world.settle()
        self.waiting = []
        subscription = self.world.broker.polledSubscriptions.find(self.one, None)
        self.on = self.came(self.on)
        for each in self.on:
            each.due = None
        self.arrived = max([subscription.queue.stored.arrived])
        self.queued = [each for each in self.came(self.queued) if each.kept]
        now = self.world.clock.seconds()
        for each in self.queued:
            each.due = each.dueSafe if each.dueSafe is not None and each.dueSafe > now else None

    def came(self, before: list[_Kept]) -> list[_Kept]:
        after = [each for each in before if not each.goneSafe]
        for each in after:
            each.gone = False
            # Even if no note says so: it may be that the crash took the note.
            each.given = True
        return after

    @invariant()
    def looksAlike(self) -> None:
        subscription = self.world.broker.polledSubscriptions.find(self.one, None)
        mine = [each for each in self.on if not each.gone]
        assert subscription.depth + subscription.inFlight == len(mine)
        assert subscription.inFlight == len([each for each in mine if each.due is not None])
        queue = self.world.broker.queues.get("q")
        assert queue is not None
        mine = [each for each in self.queued if not each.gone]
        assert queue.inFlight == len([each for each in mine if each.due is not None])
        assert queue.depth == len(mine) - queue.inFlight

    @invariant()
    def littleMemory(self) -> None:
        subscription = self.world.broker.polledSubscriptions.find(self.one, None)
        assert subscription.size <= MEMORY + 12 * 300 + 300 * len(self.on)

    @invariant()
    def nothingFails(self) -> None:
        if self.world.errors:
            raise self.world.errors[0]


class RestartModelTests(SynchronousTestCase):
    """Brokers that die, and the model, through many random lives."""

    def test_likeTheModel(self) -> None:
        run_state_machine_as_test(
            RestartMachine, settings=settings(max_examples=repetitions(60, 750), stateful_step_count=40, deadline=None)
        )
