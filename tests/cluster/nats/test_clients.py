"""Clients of every form, and ``ingest``, over three brokers whose owners are killed and stopped."""

import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

from tests.cluster.nats.servers import MISSING
from tests.nightly import nightly
from tests.pipeline.installed import missing as withoutSpark

#: Seconds of the campaign.
_SECONDS = 600


class ClientsTests(SynchronousTestCase):
    """The campaign, in a process of its own."""

    @nightly
    def test_campaign(self) -> None:
        """All that was confirmed is in the journal and in both lakes, with message ids once; subscribers get all."""
        if MISSING or withoutSpark:
            self.skipTest(MISSING or str(withoutSpark))
        run = subprocess.run(
            [sys.executable, "-m", "tests.cluster.nats.clients", str(_SECONDS), "0", "ingest"],
            capture_output=True,
            text=True,
        )
        print(run.stdout, run.stderr)
        self.assertEqual(run.returncode, 0)
