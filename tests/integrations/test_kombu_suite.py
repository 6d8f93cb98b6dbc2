"""Kombu's own integration tests, fetched as a source distribution of the installed release, pass with our transport."""

import shutil
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.broker_process import BrokerProcess
from tests.integrations.fetched import fetched, passedOf
from tests.pages import ROOT

_MISSING = "" if find_spec("amqp") and find_spec("pytest") else "needs kombu and pytest: tox -e frameworks"


class SuiteTests(SynchronousTestCase):
    """All seven classes of kombu's tests."""

    if _MISSING:
        skip = _MISSING

    def test_allPass(self) -> None:
        """38 of them, 11 of which run for several addresses too."""
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        shutil.copy(fetched("kombu", version("kombu"), folder) / "t" / "integration" / "common.py", folder)
        shutil.copy(ROOT / "tests" / "integrations" / "kombu_suite.py", folder / "test_suite.py")
        with BrokerProcess("--journal", str(folder / "journal")) as broker:
            self.assertGreaterEqual(passedOf(folder, broker.port(), "test_suite.py"), 38)
