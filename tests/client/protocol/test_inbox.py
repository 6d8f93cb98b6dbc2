"""What comes goes to the subscriptions that it belongs to, and what waits is counted."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.errors import Overrun, SubscribeFailed
from fleximq.client.events import Delivery, Gap, Notification, Refusal
from fleximq.client.protocol.inbox import Box, Inbox
from fleximq.client.protocol.received_header import EVENT_BYTES, LargeHeader, received


def delivery(topic: str, offset: int | None = None, size: int = 0) -> Delivery:
    """Return a delivery."""
    return Delivery(topic, bytes(size), 7, {} if offset is None else {"offset": offset})


class InboxTests(SynchronousTestCase):
    """An inbox that is full with 1,000 bytes, and whose boxes hold 3,000."""

    def setUp(self) -> None:
        """Count how often it was relieved."""
        self.relieved: list[int] = []
        self.inbox = Inbox(
            lambda: self.relieved.append(self.inbox.bufferedBytes), self.end, pauseAbove=1000, maximum=3000
        )
        self.ended: list[Box] = []

    def end(self, box: Box) -> None:
        """End all boxes of a name, as clients do."""
        self.ended.append(box)
        self.inbox.endTopic(box.topic, Overrun(box.topic))

    def test_order(self) -> None:
        """What comes is taken in order; then there is nothing."""
        box = self.inbox.open("a")
        for size in range(3):
            self.inbox.put(delivery("a", size=size))
        self.assertEqual([self.inbox.take(box) for _ in range(4)], [*(delivery("a", size=n) for n in range(3)), None])

    def test_names(self) -> None:
        """A name without wildcards is only itself; a pattern is what the broker makes of it."""
        boxes = {name: self.inbox.open(name) for name in ("a.b", "a.*", "a.#", "#", "a/b", "a.c")}
        self.inbox.put(delivery("a/b"))
        got = {name for name, box in boxes.items() if box.waiting}
        self.assertEqual(got, {"a.*", "a.#", "#", "a/b"})

    def test_hidden(self) -> None:
        """A wildcard at the first level does not match what begins with a dollar sign."""
        box = self.inbox.open("#")
        self.inbox.put(delivery("$sys/clients/joined"))
        self.assertFalse(box.waiting)

    def test_twice(self) -> None:
        """Two subscriptions of one name get a copy each; the second one to close is the last."""
        one, two = self.inbox.open("a"), self.inbox.open("a")
        self.inbox.put(delivery("a"))
        self.assertEqual((len(one.waiting), len(two.waiting)), (1, 1))
        self.assertEqual((self.inbox.close(one), self.inbox.close(one), self.inbox.close(two)), (False, False, True))

    def test_closed(self) -> None:
        """A closed box keeps what it has, and gets no more."""
        box = self.inbox.open("a")
        self.inbox.put(delivery("a"))
        self.inbox.close(box)
        self.inbox.put(delivery("a"))
        self.assertEqual((len(box.waiting), box.end), (1, True))

    def test_closedIsNotCounted(self) -> None:
        """What waits in a closed box, which perhaps nobody will ever take, makes nobody wait."""
        box = self.inbox.open("a")
        self.inbox.put(delivery("a", size=1001))
        self.inbox.close(box)
        self.assertEqual((self.relieved, self.inbox.bufferedBytes), ([0], 0))
        self.inbox.take(box)
        self.assertEqual(self.inbox.bufferedBytes, 0)

    def test_openedLater(self) -> None:
        """A subscription to a topic of which something came already gets what comes from then on."""
        self.inbox.put(delivery("a"))
        box = self.inbox.open("a")
        self.inbox.put(delivery("a"))
        self.assertEqual(len(box.waiting), 1)

    def test_manyTopics(self) -> None:
        """More topics than are remembered find their way."""
        box = self.inbox.open("t.*")
        for n in range(10_002):
            self.inbox.put(delivery(f"t.{n}"))
            self.inbox.take(box)
        self.inbox.put(delivery("t.0"))
        self.assertEqual(len(box.waiting), 1)
        self.assertLessEqual(len(self.inbox._receivers), 10_000)

    def test_longTopics(self) -> None:
        """Topics longer than a broker allows are delivered, but not remembered."""
        box = self.inbox.open("#")
        self.inbox.put(delivery("t" * 3000))
        self.assertEqual((len(box.waiting), self.inbox._receivers), (1, {}))

    def test_longHeaders(self) -> None:
        """A delivery counts what its header may take, until it is taken, alone and in a run."""
        self.inbox = Inbox(lambda: None, self.end)
        box = self.inbox.open("a")
        header = received({"topic": "a", "more": []}, 10)
        assert isinstance(header, LargeHeader)
        one = Delivery("a", b"12345", 7, header)
        self.inbox.put(one)
        self.inbox.putRun([one, one])
        self.assertEqual(self.inbox.bufferedBytes, 3 * (header.size + 5))
        while box.waiting:
            self.inbox.take(box)
        self.assertEqual(self.inbox.bufferedBytes, 0)

    def test_run(self) -> None:
        """Deliveries that came together go where each alone would, and count as much."""
        one, all, other = self.inbox.open("a"), self.inbox.open("#"), self.inbox.open("b")
        run = [delivery("a", size=n) for n in range(3)]
        self.inbox.putRun(run)
        self.assertEqual((list(one.waiting), list(all.waiting), list(other.waiting)), (run, run, []))
        self.assertEqual(self.inbox.bufferedBytes, 2 * (3 * EVENT_BYTES + 3))

    def test_runFromPast(self) -> None:
        """A box that begins in the past takes those with an offset, and knows the last one."""
        box = self.inbox.open("a", "first")
        self.inbox.putRun([delivery("a", offset=4), delivery("a", offset=5)])
        self.inbox.putRun([delivery("a"), delivery("a")])
        self.assertEqual(([each.offset for each in box.waiting], box.resumeStart()), ([4, 5], 6))

    def test_runOverrun(self) -> None:
        """Of a run that is too much, what fits is kept."""
        box = self.inbox.open("a")
        self.inbox.putRun([delivery("a", size=900)] * 5)
        self.assertEqual((self.ended, len(box.waiting)), ([box], 3))

    def test_otherBoxesGetTheWholeRunThatOneOverruns(self) -> None:
        one, other = self.inbox.open("a"), self.inbox.open("#")
        self.inbox.put(delivery("a", size=900))
        while self.inbox.take(other):
            continue
        run = [delivery("a", size=400)] * 5
        self.inbox.putRun(run)
        self.assertEqual((self.ended, len(one.waiting), list(other.waiting), other.end), ([one], 5, run, None))

    def test_allBoxesThatOneDeliveryOverrunsAreEnded(self) -> None:
        several = [self.inbox.open(name) for name in ("a", "a", "*", "#")]
        self.inbox.put(delivery("a", size=3000))
        self.assertEqual(self.ended, [several[0], *several[2:]])
        self.assertEqual(([each.end is None for each in several], self.inbox.bufferedBytes), ([False] * 4, 0))

    def test_gaps(self) -> None:
        """Those that ask for them get a gap for each loss between deliveries, unless they have a start."""
        silent, told, past = self.inbox.open("a"), self.inbox.open("a", gaps=True), self.inbox.open("b", "first", True)
        self.inbox.putGaps()
        self.inbox.putGaps()
        self.inbox.put(delivery("a"))
        self.inbox.putGaps()
        self.assertEqual([isinstance(each, Gap) for each in told.waiting], [True, False, True])
        self.assertEqual(([each.topic for each in told.waiting], told.waiting[0].value), (["a"] * 3, None))
        self.assertEqual((len(silent.waiting), len(past.waiting)), (1, 0))
        while told.waiting:
            self.inbox.take(told)
        self.inbox.take(silent)
        self.assertEqual(self.inbox.bufferedBytes, 0)

    def test_direct(self) -> None:
        """What comes to the client itself goes to those who ask for it, until they close."""
        box = self.inbox.openDirect()
        said = Notification("/n", b"\1", 5, {})
        self.inbox.putDirect(said)
        self.assertFalse(self.inbox.close(box))
        self.inbox.putDirect(said)
        self.assertEqual((list(box.waiting), self.inbox.bufferedBytes), ([said], 0))

    def test_full(self) -> None:
        """It is full above its mark, not at it, and who waits is told when it is no longer."""
        box = self.inbox.open("a")
        self.inbox.put(delivery("a", size=500 - EVENT_BYTES))
        self.inbox.put(delivery("a", size=500 - EVENT_BYTES))
        self.assertFalse(self.inbox.full)
        self.inbox.put(delivery("a"))
        self.assertTrue(self.inbox.full)
        while self.inbox.take(box):
            continue
        self.assertEqual((self.relieved, self.inbox.bufferedBytes), ([500 + EVENT_BYTES], 0))

    def test_overrun(self) -> None:
        """A box that holds too much is reported; others of the same topic are not."""
        one, two, other = self.inbox.open("a"), self.inbox.open("a"), self.inbox.open("#")
        self.inbox.put(delivery("#", size=1))
        self.inbox.put(delivery("a", size=3000 - EVENT_BYTES - EVENT_BYTES - 1))
        self.assertEqual(self.ended, [])
        self.inbox.put(delivery("a"))
        self.assertEqual(self.ended, [other])
        self.assertIsInstance(other.end, Overrun)
        self.assertEqual((one.end, two.end), (None, None))


class PastTests(SynchronousTestCase):
    """Subscriptions that begin in the past."""

    def setUp(self) -> None:
        """Have an inbox."""
        self.inbox = Inbox(lambda: None, lambda box: None)

    def test_notBegun(self) -> None:
        """Until such a one has begun, only what has an offset belongs to it."""
        box = self.inbox.open("a", "first")
        self.inbox.put(delivery("a"))
        self.inbox.put(delivery("a", 5))
        box.isConfirmed = True
        self.inbox.put(delivery("a"))
        self.assertEqual([each.offset for each in box.waiting], [5, None])

    def test_common(self) -> None:
        """Two of them have no topic in common."""
        for one, other in [
            ("a", "a"), ("a.b", "a.*"), ("a.*", "a/b"), ("a.#", "a"), ("#", "x.y"), ("a.*.c", "*.b.#"), ("a.#", "*"),
        ]:  # fmt: skip
            for first, second in [(one, other), (other, one)]:
                inbox = Inbox(lambda: None, lambda box: None)
                inbox.open(first, "first")
                self.assertRaises(ValueError, inbox.open, second, "first")

    def test_apart(self) -> None:
        """Those that have none are all welcome."""
        for name in ["a.b", "a/b", "c.*", "d.*.x", "d.*.y", "c.x.y.#", "e.#", "f.#.*"]:
            self.inbox.open(name, "first")

    def test_sameName(self) -> None:
        """Nor has one the name of another subscription, whichever is first; with another name it may overlap."""
        self.inbox.open("a")
        self.inbox.open("b", "first")
        self.assertRaises(ValueError, self.inbox.open, "a", "first")
        self.assertRaises(ValueError, self.inbox.open, "b")
        self.inbox.open("#")

    def test_endedByBroker(self) -> None:
        """What the broker says of its name ends it; what it says of a publication does not."""
        box, other = self.inbox.open("a", "first"), self.inbox.open("b")
        self.assertFalse(self.inbox.refused(Refusal(503, "", "a", b"")))
        self.assertFalse(self.inbox.refused(Refusal(404, "", "b", b"")))
        self.assertFalse(self.inbox.refused(Refusal(404, "", "", b"")))
        self.assertEqual((box.end, other.end), (None, None))
        self.assertTrue(self.inbox.refused(Refusal(404, "gone", "a", b"")))
        assert isinstance(box.end, SubscribeFailed)
        self.assertEqual((box.end.status, box.end.words, box.end.path), (404, "gone", "a"))
        self.assertTrue(self.inbox.refused(Refusal(603, "not permitted any more", "b", b"")))
        assert isinstance(other.end, SubscribeFailed)
        self.assertEqual((other.end.status, other.end.path), (603, "b"))
        self.assertFalse(self.inbox.refused(Refusal(603, "", "b", b"")))
