"""Messages with an id are stored once, also across restarts."""

from tests.conversations.journal.journaled import JournalCase


class OnceTests(JournalCase):
    """A publisher that does not know what became of its messages sends them again."""

    def publish(self, *ids: str) -> None:
        """Publish messages whose values are their ids, with a connection of its own, and see them confirmed."""
        client = self.flexi()
        for id in ids:
            client.publish("d.t", id, message_id=id)
        self.assertEqual(client.barrier(), [])

    def values(self) -> list[object]:
        """Return what is kept."""
        return [value for _, value in self.replay("d.t")]

    def test_messageSentAgainFromAnotherConnectionIsStoredOnce(self) -> None:
        """From another connection."""
        self.publish("a", "b")
        self.publish("b", "c")
        self.assertEqual(self.values(), ["a", "b", "c"])

    def test_afterBrokerWasKilledAndKilledAgain(self) -> None:
        """After the broker was killed, and killed again; ids are learnt from the journal."""
        self.publish("a")
        self.restart()
        self.publish("a", "b")
        self.restart()
        self.publish("b", "a", "c")
        self.assertEqual(self.values(), ["a", "b", "c"])

    def test_messageSentAgainAfterCleanStopIsStoredOnce(self) -> None:
        """After a clean stop; ids stand in the checkpoint."""
        self.publish("a")
        self.broker.stop()
        self.start()
        self.publish("a", "b")
        self.assertEqual(self.values(), ["a", "b"])


class MiniOnceTests(JournalCase):
    """MiniMQ's ids, where that is set."""

    options = ("--minimq-idempotent",)

    def test_repeatIsAnsweredByItsIdAndThereIsOneMessage(self) -> None:
        """The repeat is answered by its id, and there is one message."""
        self.assertEqual(self.mini().produce("jobs", "id-1", "x"), "id-1")
        self.restart()
        client = self.mini()
        self.assertEqual([client.produce("jobs", id, "x") for id in ("id-1", "id-2")], ["id-1", "id-2"])
        ids = [client.consume("jobs").partition(":")[0] for _ in range(3)]
        self.assertEqual(ids, ["id-1", "id-2", "NO_MSG"])
