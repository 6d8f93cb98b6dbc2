"""What a journal has room for: expiry, its own bound, and the latest message of a topic."""

import time
from collections.abc import Callable
from typing import Any

from tests.conversations.clients import Nack
from tests.conversations.journal.journaled import JournalCase

LARGE = "x" * 10_000
#: Seconds: a full journal looks every ten for something that has expired.
PATIENCE = 300.0


class RoomCase(JournalCase):
    """Small files."""

    def eventually(self, holds: Callable[[], Any], what: str) -> Any:
        """Return what this function returns as soon as that is true; what has expired goes by and by."""
        deadline = time.monotonic() + PATIENCE
        while not (found := holds()):
            if time.monotonic() > deadline:
                self.fail(f"waited {PATIENCE:g} seconds for {what}")
            time.sleep(0.05)
        return found

    def fill(self, topic: str, number: int) -> None:
        """Publish large messages to a durable topic, one after the other."""
        client = self.flexi()
        for each in range(number):
            client.publish(topic, [each, LARGE])
            self.assertEqual(client.barrier(), [])


class RetentionTests(RoomCase):
    """--retention by size."""

    options = ("--durable", "d.#", "--retention", "d.old=200KiB", "--journal-segment", "64KiB")

    def first(self) -> int:
        """Return the first offset that is kept of d.old."""
        heard = self.flexi().tell("SUB", {"topic": "d.old", "from": 1}).hear()
        if heard.kind == "REP":
            self.assertEqual(heard.status, 404)
            first: int = heard.value["first"]
            return first
        return 1

    def test_ofTopicAsMuchIsKeptAsItMayHaveAbout(self) -> None:
        """Of a topic as much is kept as it may have, about; older offsets are answered with 404 and the first one."""
        self.fill("d.old", 100)
        self.eventually(lambda: self.first() > 50, "most to expire")
        rest = self.replay("d.old")  # more may expire between a question for the first offset and this one
        self.assertGreater(rest[0][0], 50)
        self.assertEqual(rest[-1][1][0], 99)
        self.assertGreater(len(rest), 15)
        self.assertEqual([offset for offset, _ in rest], list(range(rest[0][0], rest[0][0] + len(rest))))

    def test_topicBesideItWithoutBoundKeepsEverything(self) -> None:
        """A topic beside it, without a bound, keeps everything; so it is after a crash."""
        self.fill("d.new", 3)
        self.fill("d.old", 100)
        self.eventually(lambda: self.first() > 50, "most to expire")
        first = self.first()
        for _ in range(2):
            self.assertEqual([value[0] for _, value in self.replay("d.new")], [0, 1, 2])
            self.assertGreaterEqual(self.first(), first)
            self.restart()


class BoundTests(RoomCase):
    """--journal-max-bytes."""

    options = ("--journal-segment", "64KiB", "--journal-max-bytes", "512KiB")

    def test_full(self) -> None:
        """A full journal refuses, keeps what it confirmed, and takes messages again when others were acknowledged."""
        mini = self.mini()
        kept = []
        for number in range(200):
            answer = mini.produce("jobs", f"id-{number}", LARGE)
            if answer.startswith("ERROR"):
                break
            kept.append(answer)
        self.assertTrue(answer.startswith("ERROR:500:"), answer)
        self.assertIn("full", answer)
        self.assertGreater(len(kept), 30)
        for id in kept:
            self.assertEqual(mini.consume("jobs").split(":::")[0], id)
            mini.ack(id)
        self.assertEqual(mini.barrier(), [])
        self.eventually(lambda: mini.produce("jobs", "after", "x") == "after", "room")

    def test_subscriptionThatNobodyPollsPinsNoMoreThanThat(self) -> None:
        """A subscription that nobody polls pins no more than that: its publisher is told, others are not blocked."""
        blip = self.blip()
        blip.subscribe("t")
        refused: list[Any] = []
        for _ in range(200):
            refused = blip.publish("t", LARGE.encode()).barrier()
            if refused:
                break
        self.assertIsInstance(refused[0], Nack)
        one = self.flexi().subscribe("news")
        one.barrier()
        self.flexi().publish("news", 1)
        self.assertEqual(one.hear().value, 1)


class RetainTests(JournalCase):
    """--retain."""

    options = ("--retain", "r.*")

    def test_latest(self) -> None:
        """A new subscriber gets the latest message of each topic that matches, after a crash too."""
        client = self.flexi()
        for topic, value in (("r.a", 1), ("r.b", 2), ("r.a", 3)):
            client.publish(topic, value)
        self.assertEqual(client.barrier(), [])
        for _ in range(2):
            client = self.flexi().subscribe("r.*")
            heard = [client.hear() for _ in range(2)]
            self.assertEqual(sorted((each.header["topic"], each.value) for each in heard), [("r.a", 3), ("r.b", 2)])
            self.restart()


class IntervalTests(JournalCase):
    """--fsync interval."""

    options = ("--fsync", "interval:5", "--durable", "d.#")

    def test_processThatIsKilledTakesNothingWithItThatWasConfirmed(self) -> None:
        """A process that is killed takes nothing with it that was confirmed."""
        client = self.flexi()
        for number in range(100):
            client.publish("d.t", number)
        self.assertEqual(client.barrier(), [])
        self.restart()
        self.assertEqual([value for _, value in self.replay("d.t")], list(range(100)))
