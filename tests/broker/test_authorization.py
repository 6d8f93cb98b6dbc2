"""What the broker does for a client that may not do everything, and when that changes."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from fleximq.broker.envelope import ConnectedClient, Envelope, MessageSource
from fleximq.broker.paths import path_table
from fleximq.broker.replay.feed import DeferredForm
from fleximq.broker.replay.replay import Start
from fleximq.errors import BadRequest, BrokerError, Conflict, InvalidTopic, NoCapacity, NotFound, NotKept, NotPermitted
from fleximq.interfaces import IConversation
from fleximq.limits import OwnLimits
from fleximq.rights import EVERYTHING, Action
from fleximq.security.permissions import Rights
from fleximq.values.connection_load import ConnectionLoad
from fleximq.values.message import Content, Message
from fleximq.values.patterns import anyOf, isPattern, overlap
from fleximq.values.records import StoredBatch
from tests.broker.parts import AsMessages, Collector, Friend, ask, makeBroker, text
from tests.broker.replay.test_feed import Reader
from tests.nightly import repetitions
from tests.slow_journal import SlowJournal


@implementer(IConversation)
class Told:
    """A conversation that keeps what it is told."""

    def __init__(self) -> None:
        self.lost: list[list[str]] = []

    def rightsChanged(self, lost: Sequence[str]) -> None:
        """Keep the names."""
        self.lost.append(list(lost))

    def refusal(self) -> str | None:
        """Everybody may be here."""
        return None

    def load(self) -> ConnectionLoad:
        """Nothing was carried."""
        return ConnectionLoad(0, 0, 0, 0)

    def expel(self, error: Any) -> None:
        """Not here."""
        raise AssertionError(error)


class Topics(AsMessages):
    """Renders a run as its topic's name."""

    def render(self, envelope: Envelope, body: Any, count: int) -> Any:
        """Return the name, once for each message."""
        return [Message(envelope.topic.name.encode(), Content.TEXT)] * count


class PermittingCase(SynchronousTestCase):
    """A broker, somebody who may do everything, and Bob, who may do what ``grants`` says."""

    grants: dict[str, tuple[str, ...]] = {}

    def setUp(self) -> None:
        """Begin without a journal."""
        self.begin()

    def begin(self, **rules: Any) -> None:
        """Begin anew."""
        self.clock = Clock()
        self.broker = makeBroker(self.clock, **rules)
        self.alice = self.broker.join("any")
        self.told = Told()
        self.friend = Friend(Topics())
        self.bob = self.broker.join("any", self.friend, rights=Rights(self.grants), conversation=self.told)

    def allow(self, **grants: tuple[str, ...]) -> None:
        """Let Bob do this, and nothing else any more."""
        self.broker.changeRights(self.bob, Rights(grants))

    def envelope(self, name: str, client: ConnectedClient | None = None) -> Envelope:
        """Return an envelope, Alice's if nothing else is said."""
        client = client or self.alice
        return Envelope(self.broker.topicFor(client, name), client, MessageSource(), durable=True)

    def publish(self, *names: str) -> None:
        """Publish one message to each of these topics."""
        for name in names:
            self.broker.publish(self.envelope(name), text(name), 1)

    def heard(self) -> list[str]:
        """Return of which topics Bob got messages, and forget them."""
        messages, self.friend.messages = self.friend.messages, []
        return [message.payload.decode() for message in messages]

    def assertDenied(self, act: Any, *arguments: Any, **more: Any) -> NotPermitted:
        """See that this is not permitted."""
        error: NotPermitted = self.assertRaises(NotPermitted, act, *arguments, **more)
        return error


class OwnPlaceTests(PermittingCase):
    """Rights that depend on the id of the client."""

    grants = {"publish": ("in.{client_id}",)}

    def test_joinsAndChanges(self) -> None:
        """The id is filled in when the client joins, and when its rights change."""
        self.assertEqual(self.broker.topicFor(self.bob, f"in.{self.bob.id}").name, f"in.{self.bob.id}")
        self.assertDenied(self.broker.topicFor, self.bob, f"in.{self.alice.id}")
        self.allow(publish=("out.{client_id}",))
        self.assertEqual(self.broker.topicFor(self.bob, f"out.{self.bob.id}").name, f"out.{self.bob.id}")


class OwnLimitsTests(PermittingCase):
    """How much one principal may use."""

    def limited(self, principal: str | None = "eve", **limits: Any) -> ConnectedClient:
        """Return a client that may do everything, within these limits."""
        grants = {action.value: ("#",) for action in Action}
        rights = Rights(grants, limits=OwnLimits(**limits))
        return self.broker.join("any", self.friend, principal, rights=rights)

    def test_clients(self) -> None:
        """So many connections at a time; those of others do not count; all anonymous ones together do."""
        for principal in ("eve", None):
            first = self.limited(principal, clients=3 if principal is None else 1)
            self.limited("mallory", clients=9)
            self.assertRaises(NoCapacity, self.limited, principal, clients=1)
            self.broker.leave(first, "gone")
            if principal is not None:
                self.limited(principal, clients=1)

    def test_topics(self) -> None:
        """So many topics, however they are made; idle ones give way, and those of others may be used."""
        eve = self.limited(topics=3)
        self.broker.subscribe(eve, Collector(), "a")
        self.broker.openSubscription(eve, None, "b", 1)
        self.broker.topicFor(eve, "idle")
        self.broker.consume(eve, "c")
        self.assertIsNone(self.broker.topics.find("idle"))
        self.broker.topicFor(self.alice, "d")
        self.broker.topicFor(eve, "d")
        self.broker.subscribe(eve, Collector(), "x.*")
        for act in (
            partial(self.broker.topicFor, eve, "e"),
            partial(self.broker.subscribe, eve, Collector(), "e"),
            partial(self.broker.consume, eve, "e"),
            partial(self.broker.openSubscription, eve, None, "e", 1),
            partial(self.broker.topicFor, self.limited(topics=3), "e"),
        ):
            self.assertEqual(str(self.assertRaises(NoCapacity, act))[:21], "eve has made 3 topics")
        self.broker.expectReplies(eve, "e")
        self.assertIsNone(self.broker.topics.find("e"))
        self.broker.unsubscribe(eve, "a")
        self.broker.topicFor(eve, "e")
        self.assertIsNone(self.broker.topics.find("a"))

    def test_queueBytes(self) -> None:
        """Its own queues are smaller; it fills those of others as far as its limit, and others fill them further."""
        eve = self.limited(queueBytes=1000)
        self.assertEqual(self.broker.openSubscription(eve, None, "b", 1).queue.bounds.maxBytes, 1000)
        self.broker.consume(self.alice, "q")
        self.broker.produce(self.envelope("q", eve), text("x" * 500), 1)
        self.assertRaises(NotKept, self.broker.produce, self.envelope("q", eve), text("x" * 500), 1)
        self.broker.produce(self.envelope("q"), text("x" * 500), 1)


class PublishingTests(PermittingCase):
    """To publish and to produce."""

    grants = {"publish": ("a.#",)}

    def test_topicFor(self) -> None:
        """A topic that may be published to is got; another one does not even come into being."""
        self.assertEqual(self.broker.topicFor(self.bob, "a.b").name, "a.b")
        error = self.assertDenied(self.broker.topicFor, self.bob, "b")
        self.assertEqual((str(error), int(error.status)), ("publishing to 'b' is not permitted", 403))
        self.assertIsNone(self.broker.topics.find("b"))

    def test_noTopic(self) -> None:
        """What is no name at all is told as such."""
        for name in ("", "x" * 1025):
            self.assertRaises(InvalidTopic, self.broker.topicFor, self.bob, name)

    def test_replies(self) -> None:
        """No queue is made for replies that the client may not consume."""
        self.broker.expectReplies(self.bob, "r")
        self.assertIsNone(self.broker.queues.get("r"))
        self.allow(consume=("r",))
        self.broker.expectReplies(self.bob, "r")
        self.assertIsNotNone(self.broker.queues.get("r"))


class SubscribingTests(PermittingCase):
    """Names and patterns, live."""

    grants = {"subscribe": ("a.#", "*.open", "$sys/clients/joined")}

    def subscribe(self, name: str, literal: bool = False) -> None:
        """Let Bob subscribe."""
        self.broker.subscribe(self.bob, self.friend, name, literal)

    def test_names(self) -> None:
        """A name must be permitted itself."""
        self.subscribe("a.b")
        error = self.assertDenied(self.subscribe, "b")
        self.assertEqual(str(error), "subscribing to 'b' is not permitted")
        self.assertDenied(self.broker.checkSubscription, self.bob, "b")
        self.assertIsNone(self.broker.topics.find("b"))
        self.assertEqual(list(self.bob.subscriptions), ["a.b"])

    def test_patterns(self) -> None:
        """A pattern must match something that is, and brings only that."""
        self.assertDenied(self.subscribe, "b.*.c")
        self.assertDenied(self.subscribe, "$dead/#")
        self.subscribe("#")
        self.publish("a", "a.b", "b", "b.open", "b.open.x", "$a", "a/c")
        self.assertEqual(self.heard(), ["a", "a.b", "b.open", "a/c"])

    def test_literal(self) -> None:
        """What looks like a pattern may be a name."""
        self.subscribe("a.*", literal=True)
        self.assertDenied(self.subscribe, "#", True)
        self.publish("a.b", "a.*")
        self.assertEqual(self.heard(), ["a.*"])

    def test_others(self) -> None:
        """The others get what they are used to."""
        other = Collector()
        self.broker.subscribe(self.alice, other, "#")
        self.subscribe("#")
        self.publish("b", "a")
        self.assertEqual(other.payloads(), [b"b", b"a"])
        self.assertEqual(self.heard(), ["a"])

    def test_presence(self) -> None:
        """The broker's own topics have to be named."""
        self.assertDenied(self.subscribe, "$sys/clients/left")
        self.subscribe("$sys/clients/*")
        self.broker.leave(self.broker.join("any"), "gone")
        self.assertEqual(self.heard(), ["$sys/clients/joined"])

    def test_narrowed(self) -> None:
        """A publication for certain clients is not for those who may not have it."""
        self.subscribe("#")
        for name in ("b", "a"):
            self.broker.publishNarrowed(self.envelope(name), text("x"), 1, [self.bob.id])
        self.assertEqual(self.heard(), ["a"])

    def test_lost(self) -> None:
        """What is not permitted any more has ended, and the client is told; a pattern stays while it is worth it."""
        for name in ("a.b", "a.c", "#", "*.open"):
            self.subscribe(name)
        self.publish("a.b", "b.open")
        self.heard()
        self.allow(subscribe=("a.c",))
        self.assertEqual(self.told.lost, [["a.b", "*.open"]])
        self.assertEqual(list(self.bob.subscriptions), ["a.c", "#"])
        self.publish("a.b", "a.c", "b.open")
        self.assertEqual(self.heard(), ["a.c"])

    def test_gained(self) -> None:
        """A pattern brings at once what is permitted now."""
        self.subscribe("#")
        self.publish("b")
        self.broker.changeRights(self.bob, EVERYTHING)
        self.publish("b")
        self.assertEqual((self.heard(), self.told.lost), (["b"], [[]]))

    def test_fromEverything(self) -> None:
        """Who may do everything may be restricted, and freed again."""
        self.broker.changeRights(self.bob, EVERYTHING)
        self.subscribe("#")
        for rights, expected in ((Rights({"subscribe": ("a",)}), ["a"]), (EVERYTHING, ["a", "b"])):
            self.broker.changeRights(self.bob, rights)
            self.publish("a", "b")
            self.assertEqual(self.heard(), expected)

    def test_nothingLeft(self) -> None:
        """The topic table keeps nothing of a client that has left."""
        self.subscribe("#")
        self.subscribe("a.b")
        self.allow(subscribe=("a.b",))
        self.broker.leave(self.bob, "gone")
        self.assertEqual(self.broker.topics._bounds, {})

    def test_noConversation(self) -> None:
        """Not everybody hears of it."""
        carol = self.broker.join("any")
        self.broker.changeRights(carol, Rights({}))
        self.assertDenied(self.broker.topicFor, carol, "a")


class PollingTests(PermittingCase):
    """Subscriptions that are polled."""

    grants = {"subscribe": ("a",)}

    def poll(self, id: int) -> list[bytes]:
        """Return what Bob gets by polling."""
        return [message.payload for message in self.broker.subscription(self.bob, "key", id).poll(self.bob, 10)[1]]

    def test_open(self) -> None:
        """Only to what is permitted; the name is always literal."""
        self.broker.openSubscription(self.bob, "key", "a", 1)
        for name in ("b", "#", "*"):
            self.assertDenied(self.broker.openSubscription, self.bob, "key", name, 1)
        self.assertEqual(len(self.broker.polledSubscriptions), 1)

    def test_lost(self) -> None:
        """It gives nothing while it is not permitted, and goes on when it is again."""
        id = self.broker.openSubscription(self.bob, "key", "a", 1).id
        self.publish("a")
        [tag], _ = self.broker.subscription(self.bob, "key", id).poll(self.bob, 1)
        self.publish("a")
        self.allow()
        self.assertDenied(self.poll, id)
        self.assertDenied(self.broker.subscription, self.bob, "key", id)
        self.allow(subscribe=("a",))
        self.assertEqual(self.poll(id), [b"a", b"a"])
        self.assertEqual(self.broker.subscription(self.bob, "key", id).acknowledge([tag], self.bob), [])

    def test_expires(self) -> None:
        """Nobody holds it while it is not permitted."""
        id = self.broker.openSubscription(self.bob, "key", "a", 1).id
        self.allow()
        self.clock.advance(self.broker.rules.grace + 1)
        self.assertRaises(NotFound, self.poll, id)

    def test_stays(self) -> None:
        """What is still permitted is held as before."""
        id = self.broker.openSubscription(self.bob, "key", "a", 1).id
        self.allow(subscribe=("a", "b"))
        self.clock.advance(self.broker.rules.grace + 1)
        self.assertEqual(self.poll(id), [])
        self.broker.leave(self.bob, "gone")
        self.clock.advance(self.broker.rules.grace + 1)
        self.assertEqual(len(self.broker.polledSubscriptions), 0)

    def test_anotherClient(self) -> None:
        """The rights of who polls count, not of who has opened it."""
        id = self.broker.openSubscription(self.alice, "key", "b", 1).id
        self.assertDenied(self.poll, id)


class ConsumingTests(PermittingCase):
    """Queues that are shared."""

    grants = {"consume": ("a", "$dead/a"), "subscribe": ("#",)}

    def fill(self, *names: str) -> None:
        """Produce a message with the id ``1`` to each of these topics."""
        for name in names:
            body = [Message(name.encode(), Content.TEXT, message_id="1")]
            self.broker.produce(self.envelope(name), body, 1)

    def test_consume(self) -> None:
        """Only from what is permitted, whatever may be subscribed to; no queue is made."""
        self.fill("a")
        self.assertIsNotNone(self.broker.consume(self.bob, "a"))
        self.assertDenied(self.broker.consume, self.bob, "b")
        self.assertDenied(self.broker.consumeMany, self.bob, "$dead/b", 2)
        self.assertDenied(self.broker.whenAvailable, self.bob, "b", self.fail)
        self.assertIsNone(self.broker.queues.get("b"))
        self.assertIsNone(self.broker.consume(self.bob, "$dead/a"))

    def test_acknowledge(self) -> None:
        """A message of another queue stays, though nothing is said about it."""
        self.fill("b")
        self.broker.consume(self.alice, "b")
        self.broker.acknowledgeMessages(["1"], self.bob)
        self.clock.advance(self.broker.rules.redelivery)
        self.assertIsNotNone(self.broker.consume(self.alice, "b"))
        self.broker.acknowledgeMessages(["1"], self.alice)
        self.clock.advance(self.broker.rules.redelivery)
        self.assertIsNone(self.broker.consume(self.alice, "b"))

    def test_namesakes(self) -> None:
        """Of several with one id the one is meant that may be."""
        self.fill("b", "a", "c")
        for name in "bac":
            self.broker.consume(self.alice, name)
        self.broker.acknowledgeMessages(["1"], self.bob)
        self.broker.acknowledgeMessages(["1"], self.bob)
        self.clock.advance(self.broker.rules.redelivery)
        self.assertEqual([self.broker.consume(self.alice, name) is None for name in "bac"], [False, True, False])


class DirectTests(PermittingCase):
    """Messages to other clients."""

    grants = {"request": ("/time/#",), "notify": ("time/*",)}

    def setUp(self) -> None:
        """Alice is a service."""
        super().setUp()
        self.service = Friend()
        self.alice = self.broker.join("fleximq", self.service)

    def test_request(self) -> None:
        """By its path; whether the client is there is not told."""
        self.broker.request(self.bob, self.alice.id, "1", "time/now", "request")
        self.assertEqual(self.service.told, ["request"])
        for target in (self.alice.id, 4711):
            error = self.assertDenied(self.broker.request, self.bob, target, "2", "/date", "request")
            self.assertEqual(str(error), "a request to '/date' is not permitted")
        self.assertEqual((self.service.told, self.broker.openRequests(self.bob)), (["request"], 1))

    def test_answers(self) -> None:
        """To answer needs no right; what nobody waits for is a notification."""
        self.allow(notify=("b",))
        self.broker.request(self.alice, self.bob.id, "1", "any", "request")
        self.broker.reply(self.bob, self.alice.id, "1", "answer", "any")
        self.assertDenied(self.broker.reply, self.bob, self.alice.id, "1", "again", "any")
        self.broker.reply(self.bob, self.alice.id, "1", "word", "/b")
        self.assertEqual(self.service.told, ["answer", "word"])

    def test_notify(self) -> None:
        """No copy is sent unless all paths are permitted."""
        self.broker.notify(self.bob, [self.alice.id], ["/time/a"], "word")
        self.assertDenied(self.broker.notify, self.bob, [self.alice.id, 4711], ["time/a", "time/a/b"], "word")
        self.assertEqual(self.service.told, ["word"])

    def test_broadcast(self) -> None:
        """It is a right of its own; to hear one needs none."""
        error = self.assertDenied(self.broker.broadcast, self.bob, "word")
        self.assertEqual(str(error), "a broadcast is not permitted")
        self.allow(broadcast=("#",))
        self.broker.broadcast(self.bob, "word")
        self.allow()
        self.broker.broadcast(self.alice, "answer")
        self.assertEqual((self.service.told, self.friend.told), (["word"], ["answer"]))


class PathTests(PermittingCase):
    """What the broker itself answers."""

    grants = {"read": ("/broker/#", "journal/#", "sink/#", "pipeline/#"), "publish": ("p",), "subscribe": ("s", "$b")}

    def setUp(self) -> None:
        """There is a journal that keeps everything."""
        self.journal = SlowJournal()
        self.begin(journal=self.journal, durable=("#", "$b"))

    def ask(self, path: str, **arguments: Any) -> Any:
        """Return what Bob is answered."""
        answers: list[Any] = []
        ask(self.broker, self.bob, path, arguments, answers.append)
        self.journal.commit()
        [answer] = answers
        if isinstance(answer, BrokerError):
            raise answer
        return answer

    def keep(self, *names: str) -> None:
        """Publish to these topics, and commit."""
        self.publish(*names)
        self.journal.commit()

    def test_read(self) -> None:
        """Most paths need the right to read them, whatever it is that they do."""
        self.assertIn("version", self.ask("/broker/about"))
        self.allow(read=("broker/topics",), admin=("#",))
        self.assertDenied(self.ask, "/broker/about")
        self.assertDenied(path_table.readArguments, self.broker, self.bob, "/sink/stage", b"")
        self.assertEqual(self.ask("/broker/topics")["topics"], [])

    def test_admin(self) -> None:
        """What changes something for others needs another one."""
        for path in ("/journal/reopen", "/pipeline/forget"):
            self.assertDenied(self.ask, path)
        self.allow(admin=("journal/reopen", "pipeline/*"))
        self.ask("/journal/reopen")
        self.assertEqual(self.ask("/pipeline/forget", group="g"), {"forgotten": False})
        self.assertDenied(self.ask, "/pipeline/groups")

    def test_unknown(self) -> None:
        """That a path does not exist is told to everybody."""
        self.allow()
        self.assertRaises(NotFound, self.ask, "/broker/nothing")

    def test_topics(self) -> None:
        """Listings show what somebody may do something with, and pages are full."""
        self.keep("p", "q", "s", "t", "$b", "$c")
        self.broker.consume(self.alice, "w")
        for path in ("/broker/topics", "/journal/bounds"):
            names = [row["topic"] for row in self.ask(path)["topics"]]
            self.assertEqual(names, ["$b", "p", "s"], path)
            page = self.ask(path, limit=2)
            self.assertEqual((len(page["topics"]), page["next"]), (2, "p"))
        self.allow(read=("#",), consume=("w",))
        self.assertEqual([row["topic"] for row in self.ask("/broker/topics")["topics"]], ["w"])

    def test_raw(self) -> None:
        """Bytes of the journal are for those who may have everything that is in it."""
        self.keep("s")
        self.assertDenied(self.ask, "/journal/read", position=0)
        self.allow(read=("#",), subscribe=("#",))
        self.assertIn("data", self.ask("/journal/read", position=0))
        self.keep("$b")
        self.assertDenied(self.ask, "/journal/read", position=0)
        self.allow(read=("#",), subscribe=("#", "$b"))
        self.assertIn("data", self.ask("/journal/read", position=0))

    def test_rawLater(self) -> None:
        """Rights that change while the journal is read count."""
        self.allow(read=("#",), subscribe=("#",))
        self.keep("s")
        self.journal.patient = True
        answers: list[Any] = []
        path_table.answer(self.broker, self.bob, "/journal/read", {"position": 0}, answers.append)
        self.allow(read=("#",))
        self.journal.answer()
        self.assertIsInstance(answers[0], NotPermitted)

    def stage(self, *names: str) -> Any:
        """Stage one record for each of these topics."""
        records = [{"topic": name, "value": 1} for name in names]
        return self.ask("/sink/stage", query="q", batch=1, part="0", records=records)["token"]

    def test_sink(self) -> None:
        """Every topic that is staged must be one that may be published to."""
        self.assertDenied(self.stage, "p", "q")
        self.assertIsNone(self.broker.topics.find("q"))
        token = self.stage("p", "p")
        self.ask("/sink/commit", query="q", batch=1, tokens=[token])
        self.assertEqual([record.topic for record in self.journal.records], ["p", "p"])

    def test_sinkLost(self) -> None:
        """What was staged is not published by those who may not any more, nor thrown away."""
        token = self.stage("p")
        self.allow(read=("#",))
        self.assertDenied(lambda: self.ask("/sink/commit", query="q", batch=1, tokens=[token]))
        self.assertDenied(lambda: self.ask("/sink/abort", query="q", batch=1))
        self.allow(read=("#",), publish=("p",))
        self.ask("/sink/commit", query="q", batch=1, tokens=[token])

    def test_sinkEmpty(self) -> None:
        """Only clients that may publish to some topic may commit an empty batch, which takes the batch's number."""
        self.allow(read=("#",))
        for tokens in ([], [""], [","]):
            self.assertDenied(partial(self.ask, "/sink/commit", query="q", batch=1, tokens=tokens))
        self.allow(read=("#",), publish=("p",))
        token = self.stage("p")
        self.ask("/sink/commit", query="q", batch=1, tokens=[token])
        self.assertEqual([record.topic for record in self.journal.records], ["p"])
        self.ask("/sink/commit", query="q", batch=2, tokens=[])

    def test_sinkOwn(self) -> None:
        """A query belongs to its principal: nobody else can commit or abort a batch in its name."""
        self.allow(read=("#",), publish=("p",))
        pipeline = self.bob
        token = self.stage("p")
        self.bob = self.broker.join("any", self.friend, "mallory", rights=Rights({"read": ("#",), "publish": ("p",)}))
        self.assertRaises(Conflict, self.ask, "/sink/commit", query="q", batch=1, tokens=[token])
        self.ask("/sink/abort", query="q", batch=1)
        self.ask("/sink/commit", query="q", batch=1, tokens=[self.stage("p")])
        self.assertRaises(BadRequest, self.ask, "/sink/commit", query="\nq", batch=1, tokens=[token])
        self.bob = pipeline
        self.ask("/sink/commit", query="q", batch=1, tokens=[token])
        self.assertEqual([record.topic for record in self.journal.records], ["p", "p"])


_FORM = DeferredForm(Topics())
_TOPICS = ("d.a", "d.b", "d.a.x", "$d.a", "e")
_PATTERNS = ("d.a", "d.b", "d.*", "d.#", "#", "$d.#", "*.a", "e")


class EagerJournal(SlowJournal):
    """Finds out what is wanted when it is asked, as one does that reads in another thread."""

    def read(
        self, offset: int, wanted: Callable[[str], bool], most: int, found: Callable[[Sequence[Any], int], None]
    ) -> None:
        """Read what is wanted now."""
        names = {name for name in _TOPICS if wanted(name)}
        super().read(offset, names.__contains__, most, found)


class TopicReader(Reader):
    """Keeps topics in place of offsets: those that came, in order."""

    def sendBatches(self, batches: Sequence[StoredBatch]) -> None:
        """Keep the topic of each record."""
        for batch in batches:
            self.offsets += [Message(batch.topics[place].encode(), Content.TEXT) for place in batch.topicOf]


class LeakMachine(RuleBasedStateMachine):
    """Publishes, subscribes, follows, recalls and changes rights in any order; nothing is seen that may not be."""

    def __init__(self) -> None:
        super().__init__()
        self.journal = EagerJournal()
        self.journal.patient = True
        self.journal.portion = 2
        self.clock = Clock()
        self.broker = makeBroker(self.clock, journal=self.journal, durable=("d.#", "$d.#"), retain=("d.a", "$d.a"))
        self.publisher = self.broker.join("any")
        self.reader = TopicReader()
        self.reader.form = _FORM
        self.live = Collector(Topics())
        self.reader.subscriber = self.live
        self.granted: tuple[str, ...] = ("d.#",)
        self.told = Told()
        self.client = self.broker.join("any", rights=Rights({"subscribe": self.granted}), conversation=self.told)
        for topic in ("d.a", "d.b", "$d.a", "d.a"):
            self.publish(topic, 1)
        self.journal.commit()

    def look(self) -> list[str]:
        """Return the topics of what has come, of which every one must be permitted; forget them."""
        came = [message.payload.decode() for message in (*self.reader.offsets, *self.live.messages)]
        self.reader.offsets, self.live.messages = [], []
        permitted = anyOf(self.granted)
        assert all(map(permitted, came)), (came, self.granted)
        return came

    @rule(topic=st.sampled_from(_TOPICS), count=st.integers(1, 3))
    def publish(self, topic: str, count: int) -> None:
        """Publish a run."""
        envelope = Envelope(self.broker.topicFor(self.publisher, topic), self.publisher, MessageSource())
        self.broker.publish(envelope, text(*"x" * count), count)
        self.look()

    @rule()
    def commit(self) -> None:
        """Bring what is kept."""
        self.journal.commit()
        self.look()

    @rule()
    def catchUp(self) -> None:
        """Let everything come."""
        self.journal.commit()
        self.reader.relieve()
        for _ in range(20):
            self.read()

    @rule()
    def read(self) -> None:
        """Let a reading come, and the reader take it."""
        if self.journal.asked:
            self.journal.answer()
        self.reader.settle()
        self.clock.advance(0)
        self.look()

    @rule(granted=st.sampled_from(_PATTERNS), name=st.sampled_from(_PATTERNS), kind=st.sampled_from(["first", None]))
    def begin(self, granted: str, name: str, kind: str | None) -> None:
        """Begin with these rights and this subscription alone, and change the rights while it is read."""
        for each in tuple(self.client.subscriptions):
            self.unsubscribe(each)
        self.change((granted,))
        self.subscribe(name, kind)

    @rule(full=st.booleans())
    def fill(self, full: bool) -> None:
        """Let the reader fall behind, or catch up."""
        if full:
            self.reader.full = True
        else:
            self.reader.relieve()
        self.look()

    @rule(name=st.sampled_from(_PATTERNS), kind=st.sampled_from(["first", "last", "offset", None, "literal"]))
    def subscribe(self, name: str, kind: str | None) -> None:
        """Subscribe, from a place in the past or with what new subscribers get; just what may match is permitted."""
        broker, client = self.broker, self.client
        wild = isPattern(name) and kind != "literal"
        may = any(overlap(name, each) for each in self.granted) if wild else anyOf(self.granted)(name)
        try:
            if kind in (None, "literal"):
                broker.subscribe(client, self.live, name, kind == "literal")
                broker.recall(client, cast(Any, self.reader), name, kind == "literal", history=2 if kind else 0)
            else:
                broker.follow(client, cast(Any, self.reader), name, Start(str(kind), 1))
        except NotPermitted:
            assert not may
        except BrokerError:
            pass
        else:
            assert may
        self.look()

    @rule(name=st.sampled_from(_PATTERNS))
    def unsubscribe(self, name: str) -> None:
        """Take a subscription back."""
        self.broker.unsubscribe(self.client, name)
        self.look()

    @rule(granted=st.lists(st.sampled_from(_PATTERNS), max_size=3).map(tuple))
    def change(self, granted: tuple[str, ...]) -> None:
        """Let other things be permitted; every subscription that is left may bring something."""
        before = set(self.client.subscriptions)
        self.look()
        self.granted = granted
        self.broker.changeRights(self.client, Rights({"subscribe": granted}))
        assert before - set(self.client.subscriptions) == set(self.told.lost.pop())
        for name, pattern in self.client.subscriptions.items():
            if pattern.literal or not isPattern(name):
                assert anyOf(granted)(name)
            else:
                assert any(overlap(name, each) for each in granted)
        self.look()

    def teardown(self) -> None:
        """In the end everything comes that is kept, subscribed to and permitted."""
        self.reader.relieve()
        for _ in range(200):
            self.journal.commit()
            self.read()
        for topic in _TOPICS:
            self.publish(topic, 1)
        came = []
        for _ in range(50):
            self.journal.commit()
            if self.journal.asked:
                self.journal.answer()
            self.reader.settle()
            self.clock.advance(0)
            came += self.look()
        kept = anyOf(("d.#", "$d.#"))
        for name in filter(kept, filter(anyOf(self.granted), _TOPICS)):
            subscribed = [
                each
                for each, pattern in self.client.subscriptions.items()
                if (name == each if pattern.literal or not isPattern(each) else anyOf((each,))(name))
            ]
            assert name in came or not subscribed, (name, came, subscribed)
        self.broker.leave(self.client, "gone")
        assert not self.broker.topics._bounds


class PastTests(SynchronousTestCase):
    """What is kept, for those who may not have all of it."""

    def setUp(self) -> None:
        """Begin with what the model begins with."""
        self.machine = LeakMachine()
        self.change("d.a")

    def test_manyStarts(self) -> None:
        """A subscription that starts often, and is then given what new subscribers get, brings everything."""
        for kind in (*["first"] * 12, None):
            self.machine.subscribe(name="d.*", kind=kind)
        self.machine.teardown()

    def change(self, *granted: str) -> None:
        """Let this be permitted."""
        self.machine.change(granted)

    def came(self) -> list[str]:
        """Return what comes."""
        came = []
        for _ in range(20):
            if self.machine.journal.asked:
                self.machine.journal.answer()
            self.machine.reader.settle()
            came += self.machine.look()
        return came

    def test_follow(self) -> None:
        """What a pattern has kept comes without what is not permitted, and goes on so."""
        self.machine.subscribe("#", "first")
        self.assertEqual(self.came(), ["d.a", "d.a"])
        for topic in ("d.b", "d.a"):
            self.machine.publish(topic, 1)
        self.machine.journal.commit()
        self.assertEqual(self.came(), ["d.a"])

    def test_changed(self) -> None:
        """What was read for a client before its rights changed is thrown away."""
        self.machine.subscribe("#", "first")
        self.change("d.b")
        self.assertEqual(self.came(), ["d.b"])

    def test_changedInTheMiddle(self) -> None:
        """So is what is read while it is behind."""
        self.change("#")
        self.machine.subscribe("#", "first")
        self.machine.read()
        self.machine.catchUp()
        self.machine.fill(True)
        for topic in ("d.a", "d.b"):
            self.machine.publish(topic, 1)
        self.machine.commit()
        self.machine.reader.full = False
        self.machine.reader.relieve()
        self.change("d.b")
        self.assertEqual(self.came(), ["d.b"])

    def test_latest(self) -> None:
        """The latest messages that a new subscriber of a pattern gets are permitted ones."""
        self.machine.subscribe("#", None)
        self.assertEqual(self.came(), ["d.a"])
        self.machine.unsubscribe("#")
        self.change("$d.a")
        self.machine.subscribe("$d.#", None)
        self.assertEqual(self.came(), ["$d.a"])

    def test_latestChanged(self) -> None:
        """They do not come if that changes meanwhile."""
        self.machine.subscribe("#", None)
        self.change("d.b")
        self.assertEqual(self.came(), [])

    def test_denied(self) -> None:
        """Nothing comes of a subscription that could not be made."""
        for kind in ("first", None, "literal"):
            self.machine.subscribe("d.b", kind)
        self.assertEqual((self.came(), self.machine.client.subscriptions), ([], {}))

    def test_firstOffset(self) -> None:
        """That something was lost of a topic which is not permitted is nobody's business."""
        self.machine.journal.forget(3, lambda name: name == "d.b")
        self.machine.subscribe("#", "offset")
        self.assertEqual(self.came(), ["d.a", "d.a"])
        self.assertEqual(self.machine.reader.failures, [])


class LeakTests(SynchronousTestCase):
    """The model."""

    def test_model(self) -> None:
        """Whatever happens in whatever order."""
        run_state_machine_as_test(
            LeakMachine, settings=settings(max_examples=repetitions(40, 500), stateful_step_count=30, deadline=None)
        )
