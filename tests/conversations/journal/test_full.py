"""A journal whose files may not grow: nothing is confirmed, all else goes on, and SIGUSR2 opens it again."""

import os
import resource
import signal

from tests.conversations.clients import Nack
from tests.conversations.journal.journaled import JournalCase

#: How large a file may get before the system refuses to write on (Python ignores the signal that comes with it).
ROOM = 256 * 1024
LARGE = "x" * 20_000


class FullTests(JournalCase):
    """One broker, before, in and after the fault."""

    def setUp(self) -> None:
        """Fill the journal until it takes no more; ``kept`` are the ids that were confirmed."""
        super().setUp()
        blip = self.blip()
        self.subscription = blip.subscribe("t")
        self.assertEqual(blip.publish("t", b"mine").barrier(), [])
        self.kept = []
        self.limit(ROOM)
        mini = self.mini()
        for number in range(100):
            answer = mini.produce("jobs", f"id-{number}", LARGE)
            if answer.startswith("ERROR"):
                break
            self.kept.append(answer)
        self.refusal = answer

    def limit(self, size: int) -> None:
        """Let the broker's files grow to this size at most."""
        _, hard = resource.prlimit(self.broker.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self.broker.pid, resource.RLIMIT_FSIZE, (size, hard))

    def reopen(self) -> None:
        """Make room, and let the broker open its journal again."""
        self.limit(resource.RLIM_INFINITY)
        os.kill(self.broker.pid, signal.SIGUSR2)
        self.broker.waitForOutput("The journal was reopened")

    def test_everyDialectIsToldInItsOwnWordsAndNothingIsConfirmedAnyMore(self) -> None:
        """Every dialect is told, in its own words, and nothing is confirmed any more."""
        self.assertTrue(self.kept)
        self.assertTrue(self.refusal.startswith("ERROR:500:"), self.refusal)
        for number in range(3):
            self.assertTrue(self.mini().produce("jobs", f"late-{number}", "x").startswith("ERROR:500:"))
        client = self.flexi()
        client.publish("d.t", 1)
        [error] = client.barrier()
        self.assertEqual((error.kind, error.status), ("REP", 503))
        [nack] = self.blip().publish("t", b"x").barrier()
        self.assertIsInstance(nack, Nack)
        self.assertEqual((nack.correlation, nack.code), (4, 500))
        self.assertIn("durable publish failed", nack.words)

    def test_ackAndPurgeAreNotConfirmed(self) -> None:
        """An ACK and a purge are not confirmed; they are on disk as soon as the journal is writable."""
        mini, blip = self.mini(), self.blip()
        id = mini.consume("jobs").split(":::")[0]
        self.assertEqual(blip.poll(self.subscription).message, b"mine")
        blip.ack(1, self.subscription)
        for _ in range(2):  # also when it asks again
            [nack] = blip.barrier()
            self.assertEqual((nack.code, nack.words[:29]), (500, "done, but not stored yet: fil"))
        mini.ack(id)
        for _ in range(2):
            self.assertTrue(mini.ask("PING:").startswith("ERROR:500:done, but not stored yet"))
        self.assertEqual(self.mini().barrier(), [])
        client = self.flexi()
        client.request(1, "/broker/queues/purge", "one", {"topic": "jobs"})
        refusal = client.hear()
        self.assertEqual((refusal.status, "not stored yet" in str(refusal.value)), (503, True))
        self.reopen()
        self.assertEqual((mini.barrier(), blip.barrier()), ([], []))
        self.restart("--redelivery", "0.1")
        [queue] = self.flexi().ask("/broker/queues")["queues"]
        self.assertEqual((queue["messages"], queue["in_flight"], queue["returned"]), (0, 0, 0))
        self.assertIsNone(self.blip().poll(self.subscription))

    def test_stopThatCannotStoreLastStateSaysSoAndHasAnotherExitCode(self) -> None:
        """A stop that cannot store the last state says so, and has another exit code."""
        os.kill(self.broker.pid, signal.SIGTERM)
        self.assertEqual(self.broker.wait(), 1)
        self.assertIn("fleximq: the journal could not be written at the stop (file too large)", self.broker.output)

    def test_logAndBrokerAboutSayThatItIsReadOnlyAndWhy(self) -> None:
        """The log and /broker/about say that it is read-only, and why."""
        self.broker.waitForOutput("Journal: it is read-only and stores nothing more: file too large")
        health = self.about()
        self.assertEqual(health["state"], "read-only")
        self.assertIn("too large", health["reason"].lower())

    def test_goesOn(self) -> None:
        """Other topics work, and so do queues with what they have."""
        one, other = self.flexi(), self.flexi()
        one.subscribe("news").barrier()
        other.publish("news", 7).barrier()
        self.assertEqual(one.hear().value, 7)
        mini = self.mini()
        self.assertEqual(mini.consume("jobs").split(":::")[0], self.kept[0])

    def test_withRoomAgainSIGUSR2IsEnough(self) -> None:
        """With room again SIGUSR2 is enough; what was confirmed before and after survives a crash, the rest is gone."""
        self.mini().produce("jobs", "refused", "x")
        self.reopen()
        self.assertEqual(self.about()["state"], "ok")
        self.assertEqual(self.mini().produce("jobs", "after", "x"), "after")
        client = self.flexi()
        client.publish("d.t", 1)
        self.assertEqual(client.barrier(), [])
        self.restart()
        mini = self.mini()
        found = []
        while (answer := mini.consume("jobs")) != "NO_MSG":
            found.append(answer.split(":::")[0])
        self.assertEqual(found, [*self.kept, "after"])
        self.assertEqual([value for _, value in self.replay("d.t")], [1])

    def test_pathJournalReopenDoesSame(self) -> None:
        """The path /journal/reopen does the same."""
        self.limit(resource.RLIM_INFINITY)
        self.flexi().ask("/journal/reopen")
        self.assertEqual(self.mini().produce("jobs", "after", "x"), "after")

    def test_stillFull(self) -> None:
        """Without room it stays as it is, and the log says why."""
        self.limit(10)
        os.kill(self.broker.pid, signal.SIGUSR2)
        self.broker.waitForOutput("The journal could not be reopened: ")
        self.assertEqual(self.about()["state"], "read-only")
        self.reopen()
        self.assertEqual(self.mini().produce("jobs", "after", "x"), "after")
