"""Channel layers go on after the broker was killed at random moments."""

import asyncio
from importlib.util import find_spec

from twisted.trial.unittest import SynchronousTestCase

from tests.nightly import repetitions

_MISSING = "" if find_spec("channels") else "needs the extra channels"
if not _MISSING:
    from tests.integrations.channels_loop import ChannelsLoop


class ChannelsLoopTests(SynchronousTestCase):
    """The loop with few or many kills."""

    if _MISSING:
        skip = _MISSING

    def test_layersGoOn(self) -> None:
        """No receiver is dead, and nothing is lost or repeated when they are connected."""
        loop = ChannelsLoop()
        asyncio.run(loop.run(repetitions(2, 50)))
        self.assertEqual(loop.faults, [], loop.report())
