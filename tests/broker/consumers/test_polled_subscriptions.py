"""Subscriptions: two kinds of messages in one order, owners, connections and the grace time."""

from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from fleximq.broker.consumers import polled_subscription
from fleximq.broker.consumers.polled_subscription import PolledSubscription
from fleximq.broker.consumers.polled_subscriptions import DROPPED_EXPIRED, UNKNOWN, PolledSubscriptions
from fleximq.broker.envelope import ConnectedClient, QueueDelivery
from fleximq.broker.queues.bounds import DROPPED, FULL
from fleximq.broker.queues.delivery_limit import DEAD_LETTERS
from fleximq.broker.queues.expiry import EXPIRED
from fleximq.broker.queues.in_flight import IN_FLIGHT_OVERHEAD
from fleximq.broker.queues.queue import REDELIVERED
from fleximq.broker.queues.queue_factory import QueueFactory
from fleximq.broker.queues.queued_form import QUEUED
from fleximq.errors import NotFound
from fleximq.interfaces import ISubscriber
from fleximq.limits import Limits
from fleximq.values.death_reason import DeathReason
from fleximq.values.message_cost import OVERHEAD
from tests.broker.queueing import World, X, Y, Z, message, messages, names, only, paired

RETRY = 30.0
GRACE = 60.0


class SubscriptionCase(SynchronousTestCase):
    """Subscriptions on a clock that the test moves; ``one`` is of QoS1, ``zero`` of QoS0, both held by x."""

    limits: dict[str, int] = {}

    def setUp(self) -> None:
        self.world = World()
        self.expired: list[int] = []
        makeQueue = self.world.makeQueue(**self.limits)
        self.subscriptions = self.make(makeQueue)
        self.one = self.subscriptions.open(X, "key", "t", 1)
        self.zero = self.subscriptions.open(X, "key", "t", 0)

    def make(self, makeQueue: QueueFactory) -> PolledSubscriptions:
        """Return subscriptions with queues that this makes."""
        world = self.world
        made = PolledSubscriptions(makeQueue, world.topics, world.stateLog, limits=Limits(), grace=GRACE)
        made.onExpired = self.onExpired
        return made

    def onExpired(self, subscription: PolledSubscription, dropped: int) -> None:
        self.expired.append(subscription.id)

    def put(self, letters: str, into: PolledSubscription | None = None) -> None:
        """Deliver one run for each letter: small ones are QoS1, capital ones QoS0."""
        for letter in letters:
            (into or self.one).deliver(messages(letter, qos=int(letter.islower())), 1)

    def poll(self, number: int, holder: ConnectedClient = X, at: PolledSubscription | None = None) -> str:
        return names([only(paired((at or self.one).pollMany(holder, 1))) for _ in range(number)])

    def advance(self, seconds: float) -> None:
        self.world.clock.advance(seconds)

    def tearDown(self) -> None:
        self.assertEqual(self.world.errors, [])


class QosTests(SubscriptionCase):
    """The delivered QoS is the lower of the two, and decides what a delivery promises."""

    def test_subscriber(self) -> None:
        verifyObject(ISubscriber, self.one)

    def test_form(self) -> None:
        self.assertIs(self.one.form, QUEUED)

    def test_table(self) -> None:
        """Subscription, publication, what arrives and whether it has a tag."""
        for subscription, letter, qos, tag in ((self.one, "a", 1, 1), (self.one, "A", 0, 0)):
            self.put(letter, subscription)
            self.assertEqual(only(paired(subscription.pollMany(X, 1))), QueueDelivery(tag, message(letter, qos=qos), 1))
        for letter in "aA":
            self.put(letter, self.zero)
            self.assertEqual(only(paired(self.zero.pollMany(X, 1))), QueueDelivery(0, message(letter, qos=0), 1))

    def test_loweringKeepsEverythingElse(self) -> None:
        self.zero.deliver([message("a", id="i")], 1)
        self.assertEqual(only(paired(self.zero.pollMany(X, 1))), QueueDelivery(0, message("a", qos=0, id="i"), 1))

    def test_untrackedAreForgotten(self) -> None:
        self.put("A")
        self.poll(1)
        self.assertEqual((self.one.depth, self.one.inFlight, self.one.size), (0, 0, 0))
        self.advance(RETRY)
        self.assertEqual(self.poll(1), "-")

    def test_untrackedCannotBeAcknowledged(self) -> None:
        self.put("A")
        self.poll(1)
        self.assertFalse(self.one.queue.acknowledge(0))

    def test_trackedComeAgain(self) -> None:
        self.put("ab")
        self.poll(2)
        self.one.queue.acknowledge(1)
        self.advance(RETRY - 0.125)
        self.assertEqual(self.poll(1), "-")
        self.advance(0.125)
        self.assertEqual(only(paired(self.one.pollMany(X, 1))), QueueDelivery(2, message("b"), 1))

    def test_tagsCountFromOneInEach(self) -> None:
        other = self.subscriptions.open(X, "key", "t", 1)
        tags = []
        for subscription in (self.one, other):
            self.put("aAb", subscription)
            tags.append([*subscription.pollMany(X, 3)[0]])
        self.assertEqual(tags, [[1, 0, 2], [1, 0, 2]])

    def test_lateAcknowledgement(self) -> None:
        self.put("a")
        self.poll(1)
        self.advance(RETRY)
        self.assertTrue(self.one.queue.acknowledge(1))
        self.assertEqual(self.poll(1), "-")

    def test_deadLetters(self) -> None:
        self.put("a")
        for _ in range(3):
            self.poll(1)
            self.advance(RETRY)
        self.assertEqual(
            (self.world.dead, self.world.counts),
            ([("t", message("a"))], {DEAD_LETTERS[DeathReason.ATTEMPTS]: 1, REDELIVERED: 2}),
        )

    def test_emptyRun(self) -> None:
        self.one.deliver([], 0)
        self.assertEqual(self.one.depth, 0)


class TimeToLiveTests(SubscriptionCase):
    """Messages of both kinds expire, and then take no room."""

    limits = {"maxMessages": 4}

    def setUp(self) -> None:
        super().setUp()
        makeQueue = self.world.makeQueue(maxMessages=4, timeToLiveOf=lambda topic: 0.5)
        self.one = self.make(makeQueue).open(X, "key", "t", 1)

    def test_expire(self) -> None:
        self.put("aBcD")
        self.advance(0.25)
        self.put("E")
        self.advance(0.25)
        self.assertEqual((self.poll(3), self.world.counts), ("E--", {DROPPED: 1, EXPIRED: 3}))

    def test_manyExpiredUntrackedAreDroppedInSlicesAndNoneIsDelivered(self) -> None:
        self.patch(polled_subscription, "SLICE", 2)
        one = self.one = self.make(self.world.makeQueue(timeToLiveOf=lambda topic: 0.5)).open(X, "key", "t", 1)
        self.put("ABCDE")
        self.world.clock.rightNow += 0.5
        self.put("F")
        self.assertEqual((one.depth, self.poll(1), one.depth, one.preparing), (4, "-", 2, True))
        got: list[str] = []
        one.whenPrepared(lambda: got.append(self.poll(1)))
        self.assertEqual((self.poll(1), one.depth, got), ("-", 2, []))
        self.advance(0)
        self.assertEqual((got, one.depth, self.world.counts[EXPIRED]), (["F"], 0, 5))

    def test_full(self) -> None:
        """A publisher is refused until they expire, and no longer."""
        self.put("abcd")
        self.assertEqual(self.one.admits(1, 1), FULL)
        self.advance(0.5)
        self.assertIsNone(self.one.admits(4, 1))

    def test_fullOfUntracked(self) -> None:
        self.put("ABCD")
        self.advance(0.5)
        self.put("E")
        self.assertEqual((self.poll(3), self.world.counts), ("E--", {EXPIRED: 4}))


class OrderTests(SubscriptionCase):
    """Both kinds come in the order in which they were published."""

    def test_mixed(self) -> None:
        self.put("aBCdEfgH")
        self.assertEqual(self.poll(9), "aBCdEfgH-")

    def test_pollManyLikePoll(self) -> None:
        for number in (1, 2, 3, 4, 8, 20):
            subscription = self.subscriptions.open(X, "key", "t", 1)
            self.put("aBCdEfgH", subscription)
            got = []
            while deliveries := paired(subscription.pollMany(X, number)):
                self.assertLessEqual(len(deliveries), number)
                got += deliveries
            self.assertEqual(names(got), "aBCdEfgH")

    def test_pollManyOfNone(self) -> None:
        self.put("aB")
        self.assertEqual(paired(self.one.pollMany(X, 0)), [])
        self.assertEqual(self.poll(2), "aB")

    def test_returnedOnesPrecedeWhatWasNeverHandedOut(self) -> None:
        self.put("abCdE")
        self.poll(2)
        self.advance(RETRY)
        self.assertEqual(self.poll(5), "abCdE")

    def test_returnedOnesPrecedeInPollManyToo(self) -> None:
        self.put("abCdE")
        self.poll(2)
        self.advance(RETRY)
        self.assertEqual([names(self.one.pollMany(X, 1 + n)[1]) for n in range(3)], ["a", "bC", "dE"])

    def test_acknowledgingDoesNotDisturb(self) -> None:
        self.put("aBc")
        self.poll(1)
        self.one.queue.acknowledge(1)
        self.put("Dd")
        self.assertEqual(self.poll(4), "BcDd")

    def test_untrackedBehindTrackedInFlight(self) -> None:
        self.put("ab")
        self.poll(1)
        self.put("C")
        self.assertEqual(self.poll(3), "bC-")

    def test_depthCountsBoth(self) -> None:
        self.put("aBc")
        self.poll(1)
        self.assertEqual((self.one.depth, self.one.inFlight, self.one.size), (2, 1, 3 * (1 + OVERHEAD)))


class BoundTests(SubscriptionCase):
    """Tracked messages are refused before they come, untracked ones make room."""

    limits = {"maxMessages": 4, "maxBytes": 2000}

    def test_admitsCount(self) -> None:
        self.put("ab")
        self.assertEqual([self.one.admits(count, 0) for count in (1, 2, 3)], [None, None, FULL])

    def test_admitsBytes(self) -> None:
        self.assertEqual([self.one.admits(1, 2000 - OVERHEAD + more) for more in (-1, 0, 1)], [None, None, FULL])

    def test_zeroAdmitsEverything(self) -> None:
        self.put("abcd", self.zero)
        self.assertIsNone(self.zero.admits(99, 99_999))

    def test_acknowledgementMakesRoom(self) -> None:
        self.put("abcd")
        self.poll(1)
        self.assertEqual(self.one.admits(1, 0), FULL)
        self.one.queue.acknowledge(1)
        self.assertIsNone(self.one.admits(1, 0))

    def test_inFlightTakesMore(self) -> None:
        """What is handed out counts for what it costs then."""
        self.put("a")
        room = 2000 - 1 - 2 * OVERHEAD
        self.assertIsNone(self.one.admits(1, room))
        self.poll(1)
        self.assertEqual([self.one.admits(1, room - IN_FLIGHT_OVERHEAD + more) for more in (0, 1)], [None, FULL])

    def test_untrackedAreNoObstacle(self) -> None:
        self.put("ABCD")
        self.assertIsNone(self.one.admits(4, 0))

    def test_trackedDisplaceUntracked(self) -> None:
        self.put("ABcD")
        self.put("e")
        self.assertEqual((self.poll(5), self.world.counts), ("BcDe-", {DROPPED: 1}))

    def test_untrackedDisplaceOlderUntracked(self) -> None:
        self.put("aBcDE")
        self.assertEqual((self.poll(5), self.world.counts), ("acDE-", {DROPPED: 1}))

    def test_untrackedDropThemselvesAmongTracked(self) -> None:
        self.put("abcdE")
        self.assertEqual((self.poll(5), self.world.counts), ("abcd-", {DROPPED: 1}))

    def test_trackedAreNeverDropped(self) -> None:
        self.put("abcdef")
        self.assertEqual((self.poll(7), self.world.counts), ("abcdef-", {}))

    def test_pollWithinBytes(self) -> None:
        """Polling many stops at so many bytes, whatever their QoS, and goes on in order."""
        self.put("aBcD")
        polled = []
        while found := self.one.pollMany("c1", 4, 1)[1]:
            polled.append(names(found))
        self.assertEqual(polled, ["a", "B", "c", "D"])

    def test_pollWithinBytesAgain(self) -> None:
        """So it does with what was polled before and came back."""
        self.put("abcd")
        self.one.pollMany("c1", 3)
        self.one.detach("c1")
        polled = [names(self.one.pollMany("c2", 4, 2 * (1 + OVERHEAD))[1]) for _ in range(2)]
        self.assertEqual(polled, ["ab", "cd"])

    def test_zeroDropsItsOldest(self) -> None:
        self.put("abc", self.zero)
        self.assertEqual(self.world.counts, {})
        self.put("d", self.zero)
        self.assertEqual(self.world.counts, {})
        self.put("e", self.zero)
        self.assertEqual((self.poll(5, at=self.zero), self.world.counts), ("bcde-", {DROPPED: 1}))

    def test_zeroByBytes(self) -> None:
        for size, kept in ((1000 - OVERHEAD, "ab-"), (1001 - OVERHEAD, "b--")):
            zero = self.subscriptions.open(X, "key", "t", 0)
            for name in "ab":
                zero.deliver([message(name, size=size)], 1)
            self.assertEqual(self.poll(3, at=zero), kept)

    def test_hugeUntrackedHurtsNoOther(self) -> None:
        self.put("AB")
        self.one.deliver([message("X", qos=0, size=2001 - OVERHEAD)], 1)
        self.assertEqual((self.poll(3), self.world.counts), ("AB-", {DROPPED: 1}))


class FindingTests(SubscriptionCase):
    """A subscription is its owner's."""

    def test_idsCountFromOne(self) -> None:
        self.assertEqual([each.id for each in self.subscriptions], [1, 2])

    def test_keepsWhatItWasOpenedWith(self) -> None:
        found = (self.one.owner, self.one.topic, self.one.qos, self.zero.qos)
        self.assertEqual(found, ("key", "t", 1, 0))

    def test_sameTopicTwiceGivesTwo(self) -> None:
        self.assertIsNot(self.one, self.zero)
        self.assertEqual(len(self.subscriptions), 2)

    def test_found(self) -> None:
        self.assertIs(self.subscriptions.find(1, "key"), self.one)

    def test_unknown(self) -> None:
        for id in (0, 3, 1 << 63):
            error = self.assertRaises(NotFound, self.subscriptions.find, id, "key")
            self.assertEqual(str(error), UNKNOWN)

    def test_anotherOwners(self) -> None:
        for owner in ("other", "", None):
            error = self.assertRaises(NotFound, self.subscriptions.find, 1, owner)
            self.assertEqual(str(error), UNKNOWN)

    def test_nobodys(self) -> None:
        nobodys = self.subscriptions.open(X, None, "t", 1)
        self.assertIs(self.subscriptions.find(3, None), nobodys)
        self.assertRaises(NotFound, self.subscriptions.find, 3, "key")

    def test_heldBy(self) -> None:
        self.one.pollMany(Y, 1)
        self.assertEqual([self.subscriptions.subscriptionCount(holder) for holder in (X, Y, Z)], [2, 1, 0])


class ConnectionTests(SubscriptionCase):
    """What a connection leaves behind."""

    def test_inFlightReturnsAtOnce(self) -> None:
        self.put("aBcd")
        self.poll(3)
        self.subscriptions.leave(X)
        self.assertEqual(self.poll(4, Y), "acd-")

    def test_othersKeepTheirs(self) -> None:
        self.put("abc")
        self.poll(1, X)
        self.poll(1, Y)
        self.subscriptions.leave(X)
        self.assertEqual(self.poll(3, Y), "ac-")

    def test_acknowledgedFromElsewhere(self) -> None:
        self.put("a")
        self.poll(1, X)
        self.subscriptions.leave(X)
        self.assertTrue(self.subscriptions.find(1, "key").queue.acknowledge(1))

    def test_leavingTwice(self) -> None:
        self.subscriptions.leave(X)
        self.advance(1)
        self.subscriptions.leave(X)
        self.advance(GRACE - 1)
        self.assertEqual(self.expired, [1, 2])

    def test_strangerLeaves(self) -> None:
        self.subscriptions.leave("stranger")
        self.one.detach("stranger")
        self.advance(GRACE)
        self.assertEqual(self.expired, [])

    def test_deadByLeaving(self) -> None:
        self.put("a")
        for holder in (X, Y, Z):
            self.poll(1, holder)
            self.subscriptions.leave(holder)
        self.assertEqual(names([each for _, each in self.world.dead]), "a")


class GraceTests(SubscriptionCase):
    """A subscription outlives its last connection, for a while."""

    def test_notWhileAttached(self) -> None:
        self.advance(GRACE * 10)
        self.assertEqual((self.expired, len(self.subscriptions)), ([], 2))

    def test_before(self) -> None:
        self.subscriptions.leave(X)
        self.advance(GRACE - 0.125)
        self.assertEqual((self.expired, len(self.subscriptions)), ([], 2))

    def test_after(self) -> None:
        self.subscriptions.leave(X)
        self.advance(GRACE)
        self.assertEqual((self.expired, len(self.subscriptions)), ([1, 2], 0))
        self.assertRaises(NotFound, self.subscriptions.find, 1, "key")

    def test_onlyAfterTheLastOne(self) -> None:
        self.one.attach(Y)
        self.subscriptions.leave(X)
        self.advance(GRACE)
        self.assertEqual(self.expired, [2])
        self.subscriptions.leave(Y)
        self.advance(GRACE)
        self.assertEqual(self.expired, [2, 1])

    def test_pollFromAnotherConnectionStopsIt(self) -> None:
        self.subscriptions.leave(X)
        self.advance(GRACE - 0.125)
        self.one.pollMany(Y, 1)
        self.advance(GRACE)
        self.assertEqual(self.subscriptions.find(1, "key"), self.one)

    def test_beginsAnewEachTime(self) -> None:
        self.subscriptions.leave(X)
        self.advance(GRACE - 1)
        self.one.attach(Y)
        self.one.detach(Y)
        self.advance(GRACE - 1)
        self.assertNotIn(1, self.expired)
        self.advance(1)
        self.assertIn(1, self.expired)

    def test_detachedByHand(self) -> None:
        self.one.detach(X)
        self.subscriptions.leave(X)
        self.advance(GRACE)
        self.assertEqual(self.expired, [1, 2])

    def test_takesMessagesMeanwhile(self) -> None:
        self.subscriptions.leave(X)
        self.put("a")
        self.advance(GRACE - 1)
        self.assertEqual(self.poll(1, Y), "a")

    def test_droppedAreCounted(self) -> None:
        self.put("aBc")
        self.subscriptions.leave(X)
        self.advance(GRACE)
        self.assertEqual(self.world.counts, {DROPPED_EXPIRED: 3})

    def test_nothingToCount(self) -> None:
        self.subscriptions.leave(X)
        self.advance(GRACE)
        self.assertEqual(self.world.counts, {})

    def test_deafAfterwards(self) -> None:
        self.subscriptions.leave(X)
        self.advance(GRACE)
        self.put("aB")
        self.assertEqual((self.one.depth, self.one.size, self.poll(1)), (0, 0, "-"))

    def test_noDeadlineStays(self) -> None:
        self.put("a")
        self.poll(1)
        self.subscriptions.leave(X)
        self.advance(GRACE)
        self.assertEqual(len(self.world.deadlines), 0)

    def test_pollAfterwardsHoldsNothing(self) -> None:
        self.subscriptions.leave(X)
        self.advance(GRACE)
        self.one.pollMany(Y, 1)
        self.assertEqual(self.subscriptions.subscriptionCount(Y), 0)
