"""Dead letters in a topic that the definition of their queue names."""

from typing import Any

import msgpack
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.consumers.letter_filter import deathOf
from fleximq.broker.envelope import ConnectedClient, Envelope, MessageSource, QueueDelivery
from fleximq.broker.paths.dead_letter_paths import deadLetters
from fleximq.errors import BadRequest, NotFound, NotPermitted
from fleximq.security.permissions import Rights
from fleximq.values.message import Content, Message
from fleximq.values.publication_head import headOf
from fleximq.values.queue_definition import QueueDefinition
from tests.broker.consumers.consuming import Worker
from tests.broker.restarts import Restarts


class LetterTopicTests(SynchronousTestCase):
    """A durable queue t whose dead letters go to the topic bad."""

    def setUp(self) -> None:
        self.world = Restarts(redelivery=4.0)
        self.define("t", dead_letters="bad", expired="dead")

    def define(self, name: str, **values: Any) -> None:
        self.world.broker.defineQueue(self.world.me, QueueDefinition(name, **values), replace=True)

    def put(self, payload: str, **header: Any) -> None:
        """Publish a message of FlexiMQ."""
        me: ConnectedClient = self.world.broker.join("fleximq")
        head = headOf("t", msgpack.packb(header) if header else b"", me.id)
        message = Message(payload.encode(), Content.MESSAGEPACK, 1, None, head=head)
        envelope = Envelope(self.world.broker.topicFor(me, "t"), me, MessageSource(), durable=True)
        self.world.broker.publish(envelope, [message], 1)
        self.world.commit()

    def reject(self, *names: str) -> None:
        worker = Worker(self.world.broker).consume("t", 10)
        self.world.clock.advance(0)
        tags = {each.message.payload.decode(): each.tag for each in worker.got}
        self.world.broker.settle(worker.client, "t", rejects=[(tags[name], "no") for name in names])
        self.world.broker.stopConsuming(worker.client, "t")
        self.wait(0)

    def wait(self, seconds: float) -> None:
        for _ in range(3):
            self.world.commit()
            self.world.clock.advance(seconds)

    def letters(self) -> list[QueueDelivery]:
        worker = Worker(self.world.broker).consume("bad", 10)
        self.world.clock.advance(0)
        self.world.broker.stopConsuming(worker.client, "bad")
        return worker.got

    def test_theyGoThereWithTheirStory(self) -> None:
        """And wait for a consumer, over a restart."""
        self.put("a", x=1)
        self.reject("a")
        for _ in range(2):
            [letter] = self.letters()
            death = deathOf(letter.message)
            assert death is not None and letter.message.head is not None
            self.assertEqual((death.queue, death.words, letter.message.head.topic), ("t", "no", "bad"))
            self.assertEqual(msgpack.unpackb(letter.message.head.pairs)["x"], 1)
            self.world.kill()
        self.assertIsNone(self.world.broker.queues.get("$dead/t"))

    def test_theirPrioritiesCountAlsoAfterARestart(self) -> None:
        """As those of all messages."""
        self.put("a")
        self.put("b", priority=7)
        self.reject("a", "b")
        for _ in range(2):
            self.assertEqual([each.message.payload for each in self.letters()], [b"b", b"a"])
            self.world.kill()

    def test_theyDoNotExpireAgain(self) -> None:
        """With the time that was over in their queue."""
        self.put("a", expires_in=1000)
        self.wait(2)
        [letter] = self.letters()
        self.assertEqual(letter.message.payload, b"a")
        self.assertEqual([*msgpack.unpackb(letter.message.head.pairs)], ["death"])  # type: ignore[union-attr]

    def test_aLaneMadeLaterHasTheSameRules(self) -> None:
        """Expired messages die in it, and those with too many attempts; a lease ends."""
        self.define("t", dead_letters="bad", expired="dead", max_attempts=1, lease=2.0)
        self.put("a", priority=7, expires_in=1000)
        self.wait(2)
        self.put("b", priority=2)
        worker = Worker(self.world.broker).consume("t", 1)
        self.wait(2)
        deaths = [deathOf(each.message) for each in self.letters()]
        found = [(each.reason.value, each.consumer) for each in deaths if each is not None]
        self.assertEqual(found, [("expired", ""), ("attempts", worker.client.name)])

    def test_theyReturnToTheirQueueWhileTheOtherRefuses(self) -> None:
        """And are stored when it has room."""
        self.define("bad", max_messages=1, when_full="refuse")
        self.put("a")
        self.put("b")
        self.reject("a", "b")
        worker = Worker(self.world.broker).consume("bad", 10)
        self.wait(0)
        self.assertEqual([each.message.payload for each in worker.got], [b"a"])
        self.world.broker.settle(worker.client, "bad", [worker.got[0].tag])
        self.reject("b")
        self.assertEqual([each.message.payload for each in worker.got], [b"a", b"b"])

    def test_lettersOfOtherQueuesAreNotListedNorReturned(self) -> None:
        """A list has those of one queue; a return names the topic."""
        found: list[Any] = []
        self.put("a")
        self.reject("a")
        self.world.publish("bad", "other")
        self.world.commit()
        deadLetters(self.world.broker, self.world.me, {"queue": "t"}, found.append)
        self.assertEqual([each["payload"] for each in found[0]["letters"]], [b"a"])
        with self.assertRaisesRegex(NotFound, "'bad'"):
            self.world.broker.admin.returnDeadLetters("t", 1, lambda number, reason: None)

    def test_aTopicThatFillsTheQueueIsRefused(self) -> None:
        """Otherwise they would come back; and only the broker publishes to its own topics."""
        for topic in ("t", "a", "b/c", "$sys/x", "$dead/u"):
            with self.assertRaisesRegex(BadRequest, "dead_letters"):
                self.define("t", sources=("a", "b/*"), dead_letters=topic)
        self.define("t", dead_letters="$dead/t")

    def test_theClientMustHaveTheRightToPublishThere(self) -> None:
        """The broker publishes for it."""
        rights = Rights({"consume": ("#",)})
        client = self.world.broker.join("fleximq", rights=rights)
        with self.assertRaises(NotPermitted):
            self.world.broker.defineQueue(client, QueueDefinition("u", dead_letters="bad"))
        self.assertIsNone(self.world.broker.queues.get("u"))
