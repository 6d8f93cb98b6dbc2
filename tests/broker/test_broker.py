"""The one door: publishing, refusing, committing, direct messages, leaving."""

from functools import partial
from types import MethodType
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from fleximq.broker.broker import Broker
from fleximq.broker.envelope import ConnectedClient, Envelope, MessageSource
from fleximq.broker.rules import BrokerRules
from fleximq.errors import (
    ClientNotFound,
    Forbidden,
    InvalidTopic,
    NoCapacity,
    NotFound,
    NotKept,
    SubscriptionFailed,
    TooManyRequests,
)
from fleximq.interfaces import IForm, IJournal, IPeer, ISource, ISubscriber
from fleximq.limits import Limits
from fleximq.values.message import Content, Message
from tests.broker.parts import AsMessages, Collector, Friend, Witness, makeBroker, text
from tests.slow_journal import SlowJournal


class BrokerCase(SynchronousTestCase):
    """A broker with two clients."""

    def setUp(self) -> None:
        """Make it."""
        self.clock = Clock()
        self.begin()

    def begin(self, journal: IJournal | None = None, **rules: Any) -> None:
        """Make a broker with these rules, and its clients."""
        self.broker: Broker = makeBroker(self.clock, journal, **rules)
        self.alice, self.bob = self.broker.join("any"), self.broker.join("any")
        self.takers = {client.id: Collector() for client in (self.alice, self.bob)}

    def subscribe(self, client: ConnectedClient, *names: str, literal: bool = False) -> Collector:
        """Subscribe a client, and return what collects for it."""
        for name in names:
            self.broker.subscribe(client, self.takers[client.id], name, literal)
        return self.takers[client.id]

    def envelope(self, name: str = "t", **more: Any) -> Envelope:
        """Return Alice's envelope for a topic."""
        return Envelope(self.broker.topicFor(self.alice, name), self.alice, MessageSource(), **more)

    def publish(self, *contents: str, name: str = "t", **more: Any) -> None:
        """Publish a run of texts as Alice."""
        self.broker.publish(self.envelope(name, **more), text(*contents), len(contents))


class PartsTests(SynchronousTestCase):
    """The parts that stand in for dialects are what they claim."""

    def test_interfaces(self) -> None:
        """Each provides its interface."""
        verifyObject(ISource, MessageSource())
        verifyObject(IForm, AsMessages())
        for taker in (Collector(), Friend()):
            verifyObject(ISubscriber, taker)
        verifyObject(IPeer, Friend())
        verifyObject(IJournal, SlowJournal())


class OperationTests(BrokerCase):
    """The operations are methods of the class, so that an editor finds them and a subclass can override them."""

    def test_everyOperationIsADocumentedMethodOfTheClass(self) -> None:
        """This also holds for those which one part performs."""
        names = (
            "reserve release rename publish publishNarrowed subscribe follow checkSubscription unsubscribe recall "
            "wiretap endWiretap openRequests checkPath openSubscription subscription expectReplies consume consumeMany "
            "whenAvailable acknowledgeMessages"
        )
        for name in names.split():
            self.assertTrue(getattr(Broker, name).__doc__, name)

    def test_noPublicMethodIsAssignedToAnInstance(self) -> None:
        """An assigned method would silently win over the method of a subclass."""
        assigned = {name for name, value in vars(self.broker).items() if isinstance(value, MethodType)}
        self.assertEqual([name for name in assigned - {"wall"} if not name.startswith("_")], [])


class PublishTests(BrokerCase):
    """Runs on their way."""

    def test_delivered(self) -> None:
        """A run reaches each subscriber as one run."""
        taker = self.subscribe(self.bob, "t")
        self.publish("a", "b", "c")
        self.assertEqual((taker.payloads(), taker.counts), ([b"a", b"b", b"c"], [3]))

    def test_renderedOnce(self) -> None:
        """It is rendered once for each form, however many take it."""
        form = AsMessages()
        takers = [Collector(form) for _ in range(10)]
        for taker in takers:
            self.broker.subscribe(self.broker.join("any"), taker, "t")
        self.publish("a")
        self.assertEqual((form.rendered, [taker.counts for taker in takers]), (1, [[1]] * 10))

    def test_counted(self) -> None:
        """Messages are counted by topic, subscribers or not."""
        self.publish("a", "b")
        self.subscribe(self.bob, "t")
        self.publish("c")
        self.assertEqual(self.broker.topics.get("t").published, 3)

    def test_onceEach(self) -> None:
        """However many subscriptions match, one copy."""
        taker = self.subscribe(self.bob, "a.b", "a.*", "#", "a/*")
        self.publish("x", name="a.b")
        self.assertEqual(taker.payloads(), [b"x"])

    def test_reserved(self) -> None:
        """Nobody may publish to what a listener to the broker's own topics hears; other names with ``$`` are free."""
        for name in ("$sys/", "$sys/x", "$sys.x", "$sys", "$dead/", "$dead/t", "$dead.t", "$dead"):
            self.assertRaises(Forbidden, self.broker.topicFor, self.alice, name)
            self.assertIsNone(self.broker.topics.find(name))
        for name in ("$", "$system", "$deadly/x", "$x/y"):
            self.assertEqual(self.broker.topicFor(self.alice, name).name, name)

    def test_invalid(self) -> None:
        """Empty and too long names are refused."""
        for name in ("", "x" * 1025):
            self.assertRaises(InvalidTopic, self.broker.topicFor, self.alice, name)

    def test_forgottenTopic(self) -> None:
        """An envelope whose topic was forgotten still delivers, now and to later subscribers."""
        self.begin(limits=Limits(topics=1))
        envelope = self.envelope("t")
        self.broker.topicFor(self.alice, "other")
        taker = self.subscribe(self.bob, "t")
        for content in "ab":
            self.broker.publish(envelope, text(content), 1)
        self.assertEqual(taker.payloads(), [b"a", b"b"])
        self.assertEqual(self.broker.topics.get("t").published, 2)

    def test_forgottenTopicAndPattern(self) -> None:
        """Those who take it by a pattern get it too, once."""
        self.begin(limits=Limits(topics=1))
        envelope = self.envelope("t")
        taker = self.subscribe(self.bob, "*")
        self.broker.publish(envelope, text("a"), 1)
        self.broker.topicFor(self.alice, "other")
        self.broker.publish(envelope, text("b"), 1)
        self.assertEqual(taker.payloads(), [b"a", b"b"])


class SubscribeTests(BrokerCase):
    """Names, patterns, limits."""

    def test_again(self) -> None:
        """Asking again changes nothing; one word ends it."""
        taker = self.subscribe(self.bob, "t", "t", "a.*", "a.*")
        for name in ("t", "a.*"):
            self.broker.unsubscribe(self.bob, name)
        self.publish("x")
        self.publish("x", name="a.b")
        self.assertEqual((taker.payloads(), self.bob.subscriptions), ([], {}))

    def test_literal(self) -> None:
        """Asked for literally, a name with wildcards is a name."""
        taker = self.subscribe(self.bob, "a.*", literal=True)
        self.publish("x", name="a.b")
        self.publish("y", name="a.*")
        self.assertEqual(taker.payloads(), [b"y"])
        self.broker.unsubscribe(self.bob, "a.*")
        self.publish("z", name="a.*")
        self.assertEqual(taker.payloads(), [b"y"])

    def test_unknown(self) -> None:
        """Ending what never was does nothing."""
        for name in ("", "t", "a.*", "x" * 2000):
            self.broker.unsubscribe(self.bob, name)

    def test_invalid(self) -> None:
        """Empty and too long names are refused, patterns too, and leave no trace."""
        for name in ("", "x" * 1025, "x" * 1024 + ".*", "x" * 1024 + ".#"):
            self.assertRaises(InvalidTopic, self.subscribe, self.bob, name)
        self.assertEqual(self.bob.subscriptions, {})

    def test_limit(self) -> None:
        """At the limit all are made, above it none; an end makes room."""
        self.begin(limits=Limits(subscriptions=2))
        self.subscribe(self.bob, "a", "b.*", "a", "b.*")
        for name in ("c", "c.*"):
            self.assertRaises(SubscriptionFailed, self.subscribe, self.bob, name)
        self.broker.unsubscribe(self.bob, "b.*")
        self.subscribe(self.bob, "c")

    def test_polledLimit(self) -> None:
        """The same for subscriptions that are polled."""
        self.begin(limits=Limits(subscriptions=1))
        self.broker.openSubscription(self.bob, None, "a", 0)
        self.assertRaises(SubscriptionFailed, self.broker.openSubscription, self.bob, None, "b", 0)
        self.assertRaises(InvalidTopic, self.broker.openSubscription, self.alice, None, "", 0)
        self.broker.openSubscription(self.alice, None, "b", 0)


class RefusedTests(BrokerCase):
    """Subscriptions that lose nothing may refuse."""

    def setUp(self) -> None:
        """Two such subscriptions with room for three, one of them half used, and a plain subscriber."""
        super().setUp()
        self.begin(limits=Limits(queueMessages=3))
        self.first = self.broker.openSubscription(self.bob, None, "t", 1)
        self.publish("0")
        self.second = self.broker.openSubscription(self.bob, None, "t", 1)
        self.taker = self.subscribe(self.alice, "t")

    def polled(self, id: int) -> list[bytes]:
        """Return what waits in a subscription."""
        return [message.payload for message in self.broker.subscription(self.bob, None, id).poll(self.bob, 100)[1]]

    def test_partly(self) -> None:
        """What fits all of them is delivered, the rest reaches nobody and is named by its places."""
        error = self.assertRaises(NotKept, self.publish, "a", "b", "c", "d")
        self.assertEqual(list(error.refused), [2, 3])
        self.assertEqual(self.taker.payloads(), [b"a", b"b"])
        self.assertEqual((self.polled(self.first.id), self.polled(self.second.id)), ([b"0", b"a", b"b"], [b"a", b"b"]))

    def test_all(self) -> None:
        """Where nothing fits, nobody gets anything."""
        self.publish("a", "b")
        error = self.assertRaises(NotKept, self.publish, "c", "d")
        self.assertEqual((list(error.refused), self.taker.payloads()), ([0, 1], [b"a", b"b"]))

    def test_qos0(self) -> None:
        """What need not be kept is not refused."""
        self.publish(*"abcdef", qos=0)
        self.assertEqual(len(self.taker.payloads()), 6)

    def test_durable(self) -> None:
        """A durable run that is partly refused is kept as far as it was taken."""
        journal = SlowJournal()
        self.begin(journal, limits=Limits(queueMessages=2))
        self.broker.openSubscription(self.bob, None, "t", 1)
        taker = self.subscribe(self.alice, "t")
        error = self.assertRaises(NotKept, self.publish, "a", "b", "c", durable=True)
        self.assertEqual((list(error.refused), taker.payloads()), ([2], []))
        journal.commit()
        self.assertEqual(taker.payloads(), [b"a", b"b"])


class DurableTests(BrokerCase):
    """A durable publication is delivered after its commit only."""

    def setUp(self) -> None:
        """A journal that is slow."""
        super().setUp()
        self.journal = SlowJournal()
        self.begin(self.journal)

    def test_afterTheCommit(self) -> None:
        """Not before."""
        taker = self.subscribe(self.bob, "t")
        self.publish("a", "b", durable=True)
        self.assertEqual(taker.payloads(), [])
        self.journal.commit()
        self.assertEqual((taker.payloads(), taker.counts), ([b"a", b"b"], [2]))

    def test_refused(self) -> None:
        """What the journal refuses reaches nobody, and is counted."""
        taker = self.subscribe(self.bob, "t")
        self.publish("a", "b", durable=True)
        self.journal.commit("the disk is full")
        self.assertEqual(taker.payloads(), [])
        self.assertEqual(self.broker.counts.events["refused: journal"], 2)

    def test_acknowledged(self) -> None:
        """Who acknowledged something waits for all that is noted; who did not, for what it published itself."""
        subscription = self.broker.openSubscription(self.bob, None, "t", 1)
        self.publish("a", durable=True)
        self.journal.commit()
        [tag], _ = self.broker.subscription(self.alice, None, subscription.id).poll(self.alice, 1)
        self.publish("b", durable=True)
        called: list[str] = []
        self.broker.whenCommitted(lambda: called.append("before"), self.bob)
        subscription.acknowledge([tag], self.bob)
        self.broker.whenCommitted(lambda: called.append("behind"), self.bob)
        self.assertEqual(called, ["before"])
        self.journal.commit()
        self.assertEqual(called, ["before", "behind"])

    def test_polled(self) -> None:
        """Who was handed something that is kept waits for the note of that; who was not does not."""
        kept, fleeting = (self.broker.openSubscription(self.bob, None, "t", qos) for qos in (1, 0))
        self.publish("a", durable=True)
        self.journal.commit()
        called: list[str] = []
        for subscription, number, word in ((fleeting, 1, "qos0"), (kept, 1, "handed"), (kept, 1, "nothing")):
            self.publish("more", name="other", durable=True)
            self.broker.subscription(self.bob, None, subscription.id).poll(self.bob, number)
            self.broker.whenCommitted(partial(called.append, word), self.bob)
        self.assertEqual(called, ["qos0", "nothing"])
        self.journal.commit()
        self.assertEqual(called, ["qos0", "nothing", "handed"])

    def test_whenKept(self) -> None:
        """What it consumed does not matter to who only asks for its own publications."""
        self.broker.consume(self.bob, "q")
        self.publish("a", name="q", durable=True)
        self.journal.commit()
        self.broker.consume(self.bob, "q")
        self.publish("more", name="other", durable=True)
        called: list[str] = []
        self.broker.whenPublicationsDecided(partial(called.append, "consumer"), self.bob)
        self.broker.whenPublicationsDecided(partial(called.append, "publisher"), self.alice)
        self.assertEqual((called, self.bob.consumed), (["consumer"], True))
        self.journal.commit()
        self.assertEqual(called, ["consumer", "publisher"])

    def test_consumed(self) -> None:
        """Likewise who consumed from a work queue, one message or several."""
        self.broker.consume(self.bob, "q")
        self.publish(*"abc", name="q", durable=True)
        self.journal.commit()
        called: list[str] = []
        for word in ("one", "several"):
            self.publish("more", name="other", durable=True)
            if word == "one":
                self.broker.consume(self.bob, "q")
            else:
                self.broker.consumeMany(self.bob, "q", 2)
            self.broker.whenCommitted(partial(called.append, word), self.bob)
        self.assertEqual(called, [])
        self.journal.commit()
        self.assertEqual(called, ["one", "several"])

    def test_othersDoNotWait(self) -> None:
        """A publication that is not durable does not go through the journal."""
        taker = self.subscribe(self.bob, "t")
        self.publish("a")
        self.assertEqual((taker.payloads(), self.journal.kept), ([b"a"], []))

    def test_subscribedMeanwhile(self) -> None:
        """Those who subscribe before the commit get it, also when the topic was forgotten in between."""
        self.begin(self.journal, limits=Limits(topics=1))
        self.publish("a", durable=True)
        self.broker.topicFor(self.alice, "other")
        taker = self.subscribe(self.bob, "t")
        self.journal.commit()
        self.assertEqual(taker.payloads(), [b"a"])
        self.assertEqual([topic.name for topic in self.broker.topics if topic.name == "t"], ["t"])

    def test_safe(self) -> None:
        """Whether all is safe is the journal's word."""
        said: list[int] = []
        self.publish("a", durable=True)
        self.broker.whenCommitted(lambda: said.append(1))
        self.assertEqual(said, [])
        self.journal.commit()
        self.assertEqual(said, [1])


class DirectTests(BrokerCase):
    """REQ, REP, NOTIF, BCAST between peers."""

    def setUp(self) -> None:
        """Two peers beside those who take no direct messages."""
        super().setUp()
        self.meet()

    def meet(self, **rules: Any) -> None:
        """Begin anew with these rules."""
        self.begin(**rules)
        self.friends = [Friend(), Friend()]
        self.carol, self.dave = (self.broker.join("fleximq", friend) for friend in self.friends)

    def told(self) -> list[list[Any]]:
        """Return what the two were told."""
        return [friend.told for friend in self.friends]

    def test_request(self) -> None:
        """A request reaches its target and is open until its answer."""
        self.broker.request(self.carol, self.dave.id, "r", "/p", "question")
        self.assertEqual((self.told(), self.broker.openRequests(self.carol)), ([[], ["question"]], 1))
        self.broker.reply(self.dave, self.carol.id, "r", "answer")
        self.assertEqual(
            (self.told()[0], self.broker.openRequests(self.carol), self.friends[0].done), (["answer"], 0, 1)
        )

    def test_nobody(self) -> None:
        """Those who are not there or take no direct messages are not found; nothing stays open."""
        for target in (self.alice.id, 2, 4711):
            self.assertRaises(ClientNotFound, self.broker.request, self.carol, target, "r", "/p", "question")
            self.assertRaises(ClientNotFound, self.broker.reply, self.carol, target, "r", "answer")
            self.assertFalse(self.broker.clients.accepting(target))
        self.assertEqual(self.broker.openRequests(self.carol), 0)

    def test_unasked(self) -> None:
        """An answer that nobody asked for arrives, and ends nothing."""
        self.broker.reply(self.dave, self.carol.id, "r", "answer")
        self.assertEqual((self.told()[0], self.friends[0].done), (["answer"], 0))

    def test_leaving(self) -> None:
        """A responder that leaves leaves a 502."""
        self.broker.request(self.carol, self.dave.id, "r", "/p", "question")
        self.broker.leave(self.dave, "reason")
        self.assertEqual((self.friends[0].failures, self.friends[0].done), ([("r", "/p", 502)], 1))

    def test_timeout(self) -> None:
        """An answer that does not come in time leaves a 504."""
        self.meet(requestTimeout=3.0)
        self.broker.request(self.carol, self.dave.id, "r", "/p", "question")
        self.clock.advance(3.1)
        self.assertEqual(self.friends[0].failures, [("r", "/p", 504)])

    def test_tooMany(self) -> None:
        """Above the limit a request is refused and not forwarded."""
        self.meet(limits=Limits(requests=1))
        self.broker.request(self.carol, self.dave.id, "r", "/p", "question")
        self.assertRaises(TooManyRequests, self.broker.request, self.carol, self.dave.id, "s", "/p", "more")
        self.assertEqual(self.told(), [[], ["question"]])

    def test_subscriptionsInAll(self) -> None:
        """Subscriptions that are polled are bounded in all, whoever has them, also while their owner is away."""
        self.meet(limits=Limits(queues=2))
        for client in (self.carol, self.dave):
            self.broker.openSubscription(client, "key", "t", 1)
        self.broker.leave(self.carol, "gone")
        self.assertRaises(NoCapacity, self.broker.openSubscription, self.dave, "key", "t", 1)
        self.clock.advance(BrokerRules().grace + 1)
        self.broker.openSubscription(self.dave, "key", "t", 1)

    def test_notify(self) -> None:
        """One copy for each distinct target that is there."""
        targets = [self.dave.id, 4711, self.alice.id, self.dave.id, self.carol.id, 1]
        self.broker.notify(self.carol, targets, ["/p"], "word")
        self.assertEqual(self.told(), [["word"], ["word"]])

    def test_broadcast(self) -> None:
        """All peers but the sender; with echo the sender too."""
        self.broker.broadcast(self.carol, "word")
        self.assertEqual(self.told(), [[], ["word"]])
        self.meet(echoBroadcast=True)
        self.broker.broadcast(self.carol, "word")
        self.assertEqual(self.told(), [["word"], ["word"]])

    def test_narrowed(self) -> None:
        """A narrowed run reaches listed peers that subscribed, and nobody else."""
        for client, friend in zip((self.carol, self.dave), self.friends, strict=True):
            self.broker.subscribe(client, friend, "t")
        taker = self.subscribe(self.bob, "t")
        self.broker.publishNarrowed(self.envelope(), text("x"), 1, [self.dave.id, self.bob.id, 4711])
        self.assertEqual([friend.payloads() for friend in self.friends], [[], [b"x"]])
        self.assertEqual(taker.payloads(), [])

    def test_narrowedToStrangers(self) -> None:
        """A listed peer that did not subscribe gets nothing."""
        self.broker.publishNarrowed(self.envelope(), text("x"), 1, [self.dave.id])
        self.assertEqual(self.friends[1].payloads(), [])


class LeavingTests(BrokerCase):
    """What stays of those who leave."""

    def test_nothing(self) -> None:
        """Subscriptions end, and the id is free of them."""
        taker = self.subscribe(self.bob, "t", "a.*")
        self.broker.leave(self.bob, "reason")
        self.publish("x")
        self.publish("x", name="a.b")
        self.assertEqual((taker.payloads(), len(self.broker.clients), self.bob.subscriptions), ([], 1, {}))

    def test_once(self) -> None:
        """A second leave is not told."""
        witness = Witness()
        self.broker.observers.add(witness)
        self.broker.leave(self.bob, "one")
        self.broker.leave(self.bob, "two")
        self.assertEqual(witness.told, [("left", self.bob.id, "one")])

    def test_full(self) -> None:
        """A full broker lets nobody in, and does not tell that it did."""
        self.begin(limits=Limits(clients=2))
        witness = Witness()
        self.broker.observers.add(witness)
        self.assertRaises(NoCapacity, self.broker.join, "any")
        self.assertEqual(witness.told, [])
        self.broker.leave(self.bob, "reason")
        self.broker.join("any")

    def test_stopped(self) -> None:
        """A broker that is stopped has no timer left."""
        self.begin(requestTimeout=5.0)
        friends = [self.broker.join("fleximq", Friend()) for _ in range(2)]
        self.broker.request(friends[0], friends[1].id, "r", "/p", "question")
        self.broker.consume(self.bob, "q")
        self.broker.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_brokenObserver(self) -> None:
        """An observer that breaks is reported, and hurts nobody."""
        errors: list[Exception] = []
        self.broker = makeBroker(self.clock, onError=errors.append)

        class Broken(Witness):
            def clientJoined(self, client: ConnectedClient) -> None:
                raise ZeroDivisionError

        self.broker.observers.add(Broken())
        self.assertEqual(self.broker.join("any").id, 1000)
        self.assertEqual(len(errors), 1)


class QueueTests(BrokerCase):
    """Queues behind the same door (their own rules are tested beside them)."""

    def test_polled(self) -> None:
        """Publications are polled and acknowledged; another owner finds nothing."""
        subscription = self.broker.openSubscription(self.bob, "key", "t", 1)
        self.publish("a", "b")
        [first, second], polled = self.broker.subscription(self.bob, "key", subscription.id).poll(self.bob, 10)
        self.assertEqual([message.payload for message in polled], [b"a", b"b"])
        self.assertEqual(subscription.acknowledge([first, 4711]), [4711])
        self.assertRaises(NotFound, self.broker.subscription, self.alice, "other", subscription.id)
        self.assertEqual(subscription.acknowledge([second], self.bob), [])

    def test_consumed(self) -> None:
        """A work queue exists from its first use and takes what is published from then on."""
        self.publish("early")
        self.assertIsNone(self.broker.consume(self.bob, "t"))
        self.publish("a")
        delivery = self.broker.consume(self.bob, "t")
        assert delivery is not None
        self.assertEqual(delivery.message.payload, b"a")
        self.broker.acknowledgeMessages([str(delivery.message.message_id)])
        self.broker.acknowledgeMessages(["unknown"])
        self.assertIsNone(self.broker.consume(self.bob, "t"))

    def test_consumedTogether(self) -> None:
        """Several are handed out at once, from a queue that exists from then on too."""
        self.assertEqual(self.broker.consumeMany(self.bob, "t", 2), [])
        self.publish("a", "b", "c")
        handedOut = [[each.message.payload for each in self.broker.consumeMany(self.bob, "t", 2)] for _ in range(2)]
        self.assertEqual(handedOut, [[b"a", b"b"], [b"c"]])

    def test_notAChannel(self) -> None:
        """A work queue makes no channel of its topic."""
        self.broker.consume(self.bob, "t")
        self.assertEqual(self.broker.topics.channels(), [])

    def test_deadLetters(self) -> None:
        """What nobody acknowledges ends in the topic for such, with its subscribers told."""
        self.begin(redelivery=1.0, maxDeliveries=2)
        taker = self.subscribe(self.alice, "$dead/t")
        self.broker.consume(self.bob, "t")
        self.publish("a")
        for _ in range(2):
            self.assertIsNotNone(self.broker.consume(self.bob, "t"))
            self.clock.advance(1.1)
        self.assertIsNone(self.broker.consume(self.bob, "t"))
        self.assertEqual(taker.payloads(), [b"a"])
        delivery = self.broker.consume(self.bob, "$dead/t")
        assert delivery is not None
        self.assertEqual(delivery.message.payload, b"a")

    def test_expired(self) -> None:
        """A queue that nobody uses expires, and its topic is idle again."""
        self.begin(queueExpiry=5.0)
        self.broker.consume(self.bob, "t")
        self.clock.advance(5.1)
        self.assertIsNone(self.broker.queues.get("t"))
        self.assertEqual(self.broker.topics.get("t").members, {})

    def test_repliesOfConsumersExpire(self) -> None:
        """A queue made by the reply to a message that was delivered before is a reply queue; others are not."""
        self.broker.consume(self.bob, "t")
        topic = self.broker.topicFor(self.alice, "t")
        for reply in ("r", None):
            request = [Message(b"x", Content.TEXT, reply_to=reply)]
            self.broker.publish(Envelope(topic, self.alice, MessageSource()), request, 1)
        self.broker.consumeMany(self.bob, "t", 2)
        self.assertEqual([self.broker.queues.ensure(name).forReplies for name in "rst"], [True, False, False])

    def test_changesOfChannels(self) -> None:
        """Who asks is told when the channels change."""
        said: list[list[str]] = []
        self.broker.channelsChanged.append(lambda: said.append(self.broker.topics.channels()))
        self.subscribe(self.bob, "t")
        self.broker.leave(self.bob, "reason")
        self.assertEqual(said, [["t"], []])
