"""A broker, its clients and an ingest are killed at random moments, and every confirmed message is in the lake once."""

import os
import random
import shutil
import tempfile
from unittest import SkipTest

from twisted.trial.unittest import SynchronousTestCase

from tests.nightly import nightly
from tests.pipeline.installed import missing as skip

if not skip:
    from fleximq.pipeline.command import java
    from tests.pipeline.end_to_end import EndToEnd, Outcome, outcomeOf, report
    from tests.pipeline.publishers import FlexiPublisher

#: More of them, or another order of what happens, are tried with these variables in the environment.
MESSAGES = int(os.environ.get("FLEXIMQ_LAKE_MESSAGES", "60000"))
SEED = int(os.environ.get("FLEXIMQ_LAKE_SEED", "7"))


@nightly
class EndToEndTests(SynchronousTestCase):
    """``python -m tests.pipeline.end_to_end`` with fewer messages."""

    def test_killsOfBrokerAndIngestLoseAndRepeatNothing(self) -> None:
        """Two kills of the broker and three of the ingest: nothing is lost, nothing twice, nothing made up."""
        try:
            java.find()
        except java.NoJava as error:
            raise SkipTest(str(error)) from None
        folder = tempfile.mkdtemp(prefix="fleximq-end-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        run = EndToEnd(folder, MESSAGES, SEED)
        run.run()
        said = report(run)
        self.assertEqual(run.faults, [], said)
        for outcome in run.outcomes.values():
            self.assertEqual((outcome.lost, outcome.twice), (0, 0), said)
            self.assertGreater(outcome.confirmed, MESSAGES // 20, said)
        self.assertGreaterEqual(sum(outcome.confirmed for outcome in run.outcomes.values()), MESSAGES)
        self.assertGreater(run.joined, 0, said)


class OutcomeTests(SynchronousTestCase):
    """That it sees what is wrong, on made-up lakes."""

    def setUp(self) -> None:
        """Three messages, of which the last is not confirmed."""
        self.publisher = FlexiPublisher(lambda: ("", 0), 1, random.Random(1))
        self.publisher.sent, self.publisher.confirmed = 3, [range(1, 3)]

    def look(self, *numbers: int) -> "Outcome":
        """Return what is said of a lake with these messages, and somebody else's."""
        counts = {b"other": 1}
        for number in numbers:
            digest = self.publisher.digest(number)
            counts[digest] = counts.get(digest, 0) + 1
        found = outcomeOf(self.publisher, counts)
        self.assertEqual(counts, {b"other": 1})
        return found

    def test_unconfirmedMessageMayBeThereOrNot(self) -> None:
        self.assertEqual(self.look(1, 2), (3, 2, 0, 0, 0))
        self.assertEqual(self.look(1, 2, 3), (3, 2, 0, 0, 1))

    def test_missingOrRepeatedMessageIsAFault(self) -> None:
        self.assertEqual(self.look(2, 3), (3, 2, 1, 0, 1))
        self.assertEqual(self.look(1, 2, 2, 3, 3), (3, 2, 0, 2, 1))
