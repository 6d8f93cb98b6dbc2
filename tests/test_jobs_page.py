"""The examples of docs/guides/background-jobs.rst do what the page says, against a running broker."""

from tests import readme
from tests.pages import ROOT, ShellCase, answer, conversations


class ExamplesTests(ShellCase):
    """Each example, with a journal."""

    text = (ROOT / "docs" / "guides" / "background-jobs.rst").read_text()
    options = ("--journal", "journal")

    def test_examples(self) -> None:
        """Each program prints what the page says; the commands then return its dead letter."""
        for name in conversations(self.text):
            found = answer(self.text, name, self.broker.port())
            self.assertEqual(found, ("", readme.printed(self.text, name)), name)
        shown = self.done(self.code("dead"))
        self.assertIn("there is no such customer", shown)
        self.assertTrue(shown.endswith("dead letters returned to the queue parcels: 1\n"), shown)
