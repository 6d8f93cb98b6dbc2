"""The tests of channels_redis, fetched as a source distribution, pass with the layer of FlexiMQ in place of theirs."""

import shutil
from importlib.util import find_spec
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.broker_process import BrokerProcess
from tests.integrations.fetched import fetched, passedOf
from tests.pages import ROOT

_NEEDED = ("channels", "pytest", "pytest_asyncio", "async_timeout")
_MISSING = "" if all(map(find_spec, _NEEDED)) else "needs Channels and pytest-asyncio: tox -e frameworks"
#: The release whose tests are run.
_VERSION = "4.3.0"
#: Tests that are left out, and why.
LEFT_OUT = {
    "test_default_group_key_format": "the names of keys of Redis",
    "test_custom_group_key_format": "the names of keys of Redis",
    "test_receive_buffer_respects_capacity": "an attribute of their layer; see test_channels_mailboxes",
    "test_loop_instance_channel_layer_reference": "an attribute of their layer",
    "test_multi_event_loop_garbage_collection": "their connections, one for each event loop; ours have one in all",
    "test_auto_reconnect": "closes connections to Redis; RestartTests of test_channels restart the broker",
}
#: How many of the others pass. Two more of ``test_core`` are marked as failures with Redis: with FlexiMQ one of them
#: passes, and one fails, since it expects a message after its expiry.
_CORE, _PUBSUB = 23, 14


class SuiteTests(SynchronousTestCase):
    """Two files."""

    if _MISSING:
        skip = _MISSING

    def setUp(self) -> None:
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()
        self.tests = fetched("channels_redis", _VERSION, self.folder) / "tests"
        package = self.folder / "channels_redis"
        package.mkdir()
        for name in ("core", "pubsub", "utils"):
            shutil.copy(ROOT / "tests" / "integrations" / "channels_suite.py", package / f"{name}.py")

    def passed(self, name: str) -> int:
        """Return how many tests of a file passed."""
        shutil.copy(self.tests / name, self.folder)
        words = ["-o", "asyncio_mode=auto", "-k", " and ".join(f"not {each}" for each in LEFT_OUT), name]
        with BrokerProcess() as broker:
            return passedOf(self.folder, broker.port(), *words)

    def test_core(self) -> None:
        """For the layer on keys."""
        self.assertEqual(self.passed("test_core.py"), _CORE)

    def test_pubsub(self) -> None:
        """For the layer on publish and subscribe; ours is the same."""
        self.assertEqual(self.passed("test_pubsub.py"), _PUBSUB)
