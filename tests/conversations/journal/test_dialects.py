"""What each dialect finds again after its broker was killed."""

from tests.conversations.clients import Delivery
from tests.conversations.journal.journaled import JournalCase


class FlexiTests(JournalCase):
    """FlexiMQ, on topics of --durable."""

    def test_whatPONGConfirmedIsThereInOrder(self) -> None:
        """What a PONG confirmed is there, in order; offsets after the crash lie behind those before it."""
        client = self.flexi()
        for number in range(3):
            client.publish("d.t", number)
        self.assertEqual(client.barrier(), [])
        self.restart()
        before = self.replay("d.t")
        self.assertEqual(before, [(1, 0), (2, 1), (3, 2)])
        client = self.flexi()
        client.publish("d.t", "after")
        self.assertEqual(client.barrier(), [])
        found = self.replay("d.t", 4)
        offset = {value: offset for offset, value in found}["after"]
        self.assertGreater(offset, 1_000_000_000)

    def test_cleanStop(self) -> None:
        """After an orderly stop numbering goes on without a gap."""
        client = self.flexi()
        client.publish("d.t", "x")
        self.assertEqual(client.barrier(), [])
        self.broker.stop()
        self.start()
        client = self.flexi()
        client.publish("d.t", "y")
        self.assertEqual(client.barrier(), [])
        self.assertEqual(self.replay("d.t"), [(1, "x"), (2, "y")])

    def test_clientIds(self) -> None:
        """No client gets an id that one before the crash had."""
        before = {self.flexi().id for _ in range(3)}
        self.flexi().barrier()
        self.restart()
        after = {self.flexi().id for _ in range(3)}
        self.assertGreater(min(after), max(before))

    def test_notDurable(self) -> None:
        """Other topics are not kept, and cannot be asked for their past."""
        client = self.flexi()
        client.publish("other", 1)
        client.barrier()
        self.restart()
        client = self.flexi()
        client.tell("SUB", {"topic": "other", "from": "first"})
        [error] = client.barrier()
        self.assertEqual((error.kind, error.status), ("REP", 603))

    def test_across(self) -> None:
        """Publications of all dialects to a durable topic are kept, with who sent them."""
        names = []
        blip, mini, identity = self.blip(), self.mini(), self.identity("d.t")
        blip.publish("d.t", b"\x01")
        self.assertEqual(blip.barrier(), [])
        self.assertEqual(mini.produce("d.t", "id-7", "job"), "id-7")
        identity.say("PUBLISH:d.t:hello")
        self.assertEqual([identity.hear() for _ in range(3)][-1], f"MSG:d.t:{identity.name}:hello")
        self.restart()
        client = self.flexi().tell("SUB", {"topic": "d.#", "from": "first"})
        for _ in range(3):
            heard = client.hear()
            self.assertGreater(heard.header.pop("stored_at"), 1_700_000_000_000)
            names.append((heard.sender >= 1000, heard.header, heard.value))
        self.assertEqual(
            names,
            [
                (True, {"topic": "d.t", "offset": 1}, b"\x01"),
                (True, {"topic": "d.t", "offset": 2, "message_id": "id-7"}, "job"),
                (True, {"topic": "d.t", "offset": 3}, "hello"),
            ],
        )


class PurgeTests(JournalCase):
    """What an operator does to durable queues."""

    def test_purgeIsOnDiskWhenItIsAnswered(self) -> None:
        """A purge is on disk when it is answered."""
        mini = self.mini()
        for number in range(50):
            mini.produce("jobs", f"id-{number}", "x")
        self.assertEqual(self.flexi().ask("/broker/queues/purge", {"topic": "jobs"})["purged"], 50)
        self.restart()
        self.assertEqual(self.mini().consume("jobs"), "NO_MSG")


class BlipTests(JournalCase):
    """BlipMQ's subscriptions with QoS 1."""

    def test_whatWaitsIsThereUnderSameSubscription(self) -> None:
        """What waits is there under the same subscription; what was acknowledged is not."""
        client = self.blip()
        subscription = client.subscribe("t")
        for payload in (b"a", b"b", b"c"):
            client.publish("t", payload)
        self.assertEqual(client.barrier(), [])
        self.assertEqual(client.poll(subscription), Delivery(1, 1, "t", b"a"))
        self.assertEqual(client.ack(1, subscription).barrier(), [])
        self.restart()
        client = self.blip()
        self.assertEqual(client.poll(subscription), Delivery(2, 1, "t", b"b"))
        self.assertEqual(client.poll(subscription), Delivery(3, 1, "t", b"c"))
        self.assertIsNone(client.poll(subscription))


class MiniTests(JournalCase):
    """MiniMQ's queues."""

    def test_messagesWhoseIdsCameBackAreThereInOrderFieldByField(self) -> None:
        """Messages whose ids came back are there, in order, field by field."""
        client = self.mini()
        self.assertEqual(client.produce("jobs", "1", "a:b", "c", "r"), "1")
        self.assertEqual(client.produce("jobs", "2", "x"), "2")
        self.restart()
        client = self.mini()
        self.assertEqual(client.consume("jobs"), "1:::jobs:::a:b:::c:::r")
        self.assertEqual(client.consume("jobs"), "2:::jobs:::x::::::")
        self.assertEqual(client.consume("jobs"), "NO_MSG")

    def test_whatWasAcknowledgedAndConfirmedByPONGDoesNotComeAgain(self) -> None:
        """What was acknowledged, and confirmed by a PONG, does not come again."""
        client = self.mini()
        client.produce("jobs", "1", "a")
        client.produce("jobs", "2", "b")
        client.consume("jobs")
        self.assertEqual(client.ack("1").barrier(), [])
        self.restart()
        self.assertEqual(self.mini().consume("jobs"), "2:::jobs:::b::::::")

    def test_generatedId(self) -> None:
        """An id that the broker made is the same after the crash."""
        client = self.mini()
        made = client.ask("PRODUCE:jobs:old style")
        self.restart()
        self.assertEqual(self.mini().consume("jobs").split(":::")[0], made)
