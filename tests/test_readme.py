"""README's lines of Python do what README says, against a running broker."""

import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

from tests import readme
from tests.broker_process import PATIENCE, BrokerProcess

TEXT = readme.README.read_text()


class ConversationTests(SynchronousTestCase):
    """The one conversation in README, pasted as it is; only the port differs."""

    def test_connect(self) -> None:
        """The six lines print what README shows."""
        with BrokerProcess() as broker:
            code = readme.conversation(TEXT, "connect", broker.port())
            ended = subprocess.run(
                [sys.executable, "-c", code], cwd=readme.README.parent, capture_output=True, text=True, timeout=PATIENCE
            )
        self.assertEqual((ended.stderr, ended.stdout), ("", readme.printed(TEXT, "connect")))


class ReadingTests(SynchronousTestCase):
    """How the conversations are taken out of the text."""

    text = (
        ".. conversation: one\n\n.. code-block:: python\n\n    f(7890)\n\n    if x:\n        g()\n\nBehind.\n\n"
        ".. prints: one\n\n.. code-block:: text\n\n    1\n    2\n\nEnd.\n"
    )

    def test_conversation(self) -> None:
        """The block is dedented, ends where the text goes on, and gets the port."""
        self.assertEqual(readme.conversation(self.text, "one", 12), "f(12)\n\nif x:\n    g()\n")

    def test_printed(self) -> None:
        """What it prints is the other block."""
        self.assertEqual(readme.printed(self.text, "one"), "1\n2\n")

    def test_missing(self) -> None:
        """A conversation that is not there, or that names no port, is an error."""
        self.assertRaises(LookupError, readme.conversation, self.text, "two", 12)
        self.assertRaises(LookupError, readme.conversation, self.text.replace("7890", "1"), "one", 12)

    def test_twice(self) -> None:
        """Of two blocks with one name none is taken."""
        self.assertRaises(LookupError, readme.printed, self.text * 2, "one")

    def test_javaScript(self) -> None:
        """Sent frames, the path, and logged lines are found."""
        code = 'ws = new WebSocket("ws://h:1/a?b");\nws.send("A:b");\n  ws.send("");\n// C:d\n'
        self.assertEqual(readme.sentFrames(code), ["A:b", ""])
        self.assertEqual(readme.webSocketPath(code), "/a?b")
        self.assertEqual(readme.loggedLines(code), ["C:d"])

    def test_saysTheSame(self) -> None:
        """Only the place holder for names may differ, and only as names do."""
        self.assertTrue(readme.saysTheSame("I:user-01abcdef", "I:user-xxxxxxxx"))
        self.assertFalse(readme.saysTheSame("I:user-01abcde", "I:user-xxxxxxxx"))
        self.assertFalse(readme.saysTheSame("I.x", "I:x"))
