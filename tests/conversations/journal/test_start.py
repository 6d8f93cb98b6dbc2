"""How a broker with a journal begins, and how it does not; and what an operator sees of the journal."""

import json
import os
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.broker_process import BrokerProcess, runToTheEnd
from tests.conversations.clients import FlexiClient, Stream
from tests.conversations.journal.journaled import JournalCase

SOURCE = str(Path(__file__).parents[3])


def fleximq(*words: str) -> tuple[int, str, str]:
    """Run the command ``fleximq``; return its exit code and what it printed on both streams."""
    done = subprocess.run(
        [sys.executable, "-m", "fleximq.cli", *words],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": SOURCE},
    )
    return done.returncode, done.stdout, done.stderr


class StartTests(JournalCase):
    """The log, and what is told about the journal."""

    def test_logSaysHowLongStartTookAndWithHowMuch(self) -> None:
        """The log says how long the start took and with how much."""
        self.broker.waitForOutput(r"The journal is ready in \d+ ms with 0 records")
        client = self.flexi()
        client.publish("d.t", 1)
        client.publish("d.t", 2)
        client.barrier()
        self.restart().waitForOutput(r"The journal is ready in \d+ ms with 2 records")

    def test_brokerAboutHasStateOfJournalAndNothingOfOneWhereThereIsNone(self) -> None:
        """/broker/about has the state of the journal, and nothing of one where there is none."""
        self.assertEqual(self.about()["state"], "ok")
        with BrokerProcess() as other, FlexiClient(Stream(other.address)) as client:
            self.assertIsNone(client.join().ask("/broker/about")["journal"])

    def test_torn(self) -> None:
        """An end that is not whole is cut, kept beside, and named in the log and in /broker/about."""
        client = self.flexi()
        client.publish("d.t", 1)
        client.barrier()
        self.kill()
        last = max(Path(self.journal).glob("*.fxj"))
        with last.open("ab") as file:
            file.write(b"FXJ1 and no more")
        self.start().waitForOutput(r"Journal: .*unfinished end of 16 bytes")
        self.assertEqual(len(self.about()["torn"]), 1)
        self.assertEqual([each.read_bytes() for each in Path(self.journal).glob("*.torn")], [b"FXJ1 and no more"])
        self.assertEqual(self.replay("d.t"), [(1, 1)])

    def test_fleximqJournalLooksAtFolderOfBrokerThatRuns(self) -> None:
        """fleximq journal looks at the folder of a broker that runs; repair does not touch it."""
        client = self.flexi()
        client.publish("d.t", {"a": 1})
        client.barrier()
        code, out, err = fleximq("journal", "check", self.journal)
        self.assertEqual((code, err), (0, ""))
        self.assertIn("1 record: all of it is as it was written", out)
        self.assertIn('"d.t": 1 record', fleximq("journal", "stat", self.journal)[1])
        row = json.loads(fleximq("journal", "cat", self.journal, "--topic", "d.*")[1])
        self.assertEqual((row["offset"], row["topic"], row["value"]), (1, "d.t", {"a": 1}))
        code, out, err = fleximq("journal", "repair", self.journal, "--yes")
        self.assertEqual((code, out, err.count("\n")), (1, "", 1))
        self.assertIn("in use", err)


class NotStartingTests(SynchronousTestCase):
    """A folder that cannot be the broker's journal: exit code 1 and one sentence; others: tests.journal.files."""

    def assertRefused(self, folder: str, words: str) -> None:
        """Check how a broker with this journal ends."""
        code, output = runToTheEnd("--journal", folder)
        said = [line for line in output.splitlines() if line.startswith("fleximq: ")]
        self.assertEqual((code, len(said)), (1, 1), output)
        self.assertIn(words, said[0])
        self.assertNotIn("Traceback", output)
        self.assertNotIn("Listening", output)

    def test_folderOfRunningBrokerIsRefused(self) -> None:
        """One that another broker has; that one goes on."""
        folder = os.path.abspath(self.mktemp())
        with BrokerProcess("--journal", folder) as broker:
            broker.waitForOutput("journal is ready")
            self.assertRefused(folder, "in use")
            with FlexiClient(Stream(broker.address)) as client:
                self.assertEqual(client.join().barrier(), [])
