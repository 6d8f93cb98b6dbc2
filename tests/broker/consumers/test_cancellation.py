"""Messages that wait are cancelled by their ids."""

from typing import Any

from fleximq.broker.envelope import QueueDelivery
from fleximq.errors import NotFound
from tests.broker.parts import askAt
from tests.broker.queues.test_own_expiries import ExpiryCase
from tests.broker.restarts import Restarts


class CancellationTests(ExpiryCase):
    """In memory, on disk, returned and delayed."""

    def put(self, names: str, seconds: float = 0.0, topic: str = "t") -> None:
        """Publish messages with ids, as MiniMQ does."""
        self.world.publish(topic, *names, ids=True)
        self.world.commit()

    def cancel(self, messageId: str, queue: str = "t") -> Any:
        """Return whether a message was cancelled."""
        done: list[bool] = []
        self.world.broker.cancelMessage(self.world.me, queue, messageId, done.append)
        self.world.settle()
        self.world.commit()
        [found] = done
        return found

    def test_waitingOnesAreRemoved(self) -> None:
        """At the beginning, in the middle and at the end; the others keep their order."""
        for kind in self.kinds:
            self.start(kind)
            for name in "abcdefghijklmnopqrst":
                self.put(name)
            self.assertEqual([self.cancel(name) for name in "amtx"], [True, True, True, False])
            self.assertEqual((self.cancel("a"), self.depth), (False, 17))
            self.assertEqual(self.rest(), "b c d e f g h i j k l n o p q r s")

    def test_deliveriesAreTheirConsumers(self) -> None:
        """One in flight is not cancelled; one that has returned is."""
        for kind in self.kinds:
            self.start(kind)
            self.put("ab")
            self.assertEqual((self.rest(), self.cancel("a")), ("a b", False))
            self.advance(30)
            self.assertEqual((self.cancel("a"), self.rest()), (True, "b"))

    def test_delayedRetriesAreRemoved(self) -> None:
        """A message that waits for its retry does not come back."""
        for kind in self.kinds:
            self.start(kind)
            got: list[QueueDelivery] = []
            self.world.broker.consumeFrom(self.world.me, "t", got.extend, lambda error: None)
            self.put("a")
            self.world.broker.settle(self.world.me, "t", retries=[(got[0].tag, 60.0)])
            self.assertTrue(self.cancel("a"))
            self.advance(100)
            self.assertEqual(len(got), 1)

    def test_restart(self) -> None:
        """What is cancelled stays away after a crash."""
        self.start(Restarts)
        for name in "abcdefghijklmnopqrst":
            self.put(name)
        self.cancel("a")
        self.cancel("m")
        self.world.kill()
        self.world.settle()
        self.assertEqual(self.rest(), "b c d e f g h i j k l n o p q r s t")

    def test_afterARestart(self) -> None:
        """Messages that are all on disk are found."""
        self.start(Restarts)
        self.put("abcd")
        self.rest(1)
        self.world.commit()
        self.world.kill()
        self.world.settle()
        self.assertEqual([self.cancel(name) for name in "cx"], [True, False])
        self.advance(30)
        self.assertEqual(self.rest(), "a b d")

    def test_path(self) -> None:
        """The path answers whether it did; an unknown queue is an error."""
        for kind in self.kinds:
            self.start(kind)
            self.put("ab")
            self.world.journal.commit()
            answers = [self.ask(each) for each in "bb"]
            self.assertEqual(answers, [{"cancelled": True}, {"cancelled": False}])
            self.assertRaises(NotFound, self.cancel, "a", "u")

    def ask(self, messageId: str) -> Any:
        """Return the answer of the path."""
        return askAt(self.world.broker, "/queue/cancel", {"queue": "t", "message_id": messageId})
