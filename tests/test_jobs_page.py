"""The examples of docs/guides/background-jobs.rst print what the page says, against a running broker."""

from twisted.trial.unittest import SynchronousTestCase

from tests import readme
from tests.broker_process import BrokerProcess
from tests.pages import ROOT, answer, conversations

TEXT = (ROOT / "docs" / "guides" / "background-jobs.rst").read_text()


class ExamplesTests(SynchronousTestCase):
    """Each example, as a program of its own."""

    def test_examples(self) -> None:
        """All print what the page says, with a journal."""
        with BrokerProcess("--journal", "journal", "--durable", "#") as broker:
            for name in conversations(TEXT):
                self.assertEqual(answer(TEXT, name, broker.port()), ("", readme.printed(TEXT, name)), name)
