"""Three hosts with faults of all kinds, in network namespaces."""

import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

from tests.cluster.nats.namespaces import missing
from tests.nightly import NIGHTLY, REASON

#: Seconds of the campaign.
_SECONDS = 3600


class CampaignTests(SynchronousTestCase):
    """The campaign, in a process of its own."""

    def test_campaign(self) -> None:
        """Nothing confirmed is lost, no offset and no message is there twice, and all copies are equal."""
        reason = missing() if NIGHTLY else REASON
        if reason:
            self.skipTest(reason)
        run = subprocess.run(
            [sys.executable, "-m", "tests.cluster.nats.campaign", str(_SECONDS)], capture_output=True, text=True
        )
        print(run.stdout, run.stderr)
        self.assertEqual(run.returncode, 0)
