"""The examples of docs/client.rst print what the page says, against a running broker."""

import re
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client import errors
from tests import readme
from tests.broker_process import PATIENCE, BrokerProcess

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "client.rst").read_text()


class ExamplesTests(SynchronousTestCase):
    """Each example, as a program of its own."""

    def test_examples(self) -> None:
        """All print what stands behind them."""
        with BrokerProcess() as broker:
            for name in re.findall(r"^\.\. conversation: (\w+)$", TEXT, re.MULTILINE):
                code = readme.conversation(TEXT, name, broker.port())
                ended = subprocess.run(
                    [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE
                )
                self.assertEqual((ended.stderr, ended.stdout), ("", readme.printed(TEXT, name)), name)

    def test_errors(self) -> None:
        """All errors are in the table, but the two that are only bases."""
        for name, value in vars(errors).items():
            if isinstance(value, type) and issubclass(value, errors.ClientError):
                self.assertEqual(
                    f"    * - ``{name}``\n" in TEXT, value not in (errors.ClientError, errors.Answered), name
                )
