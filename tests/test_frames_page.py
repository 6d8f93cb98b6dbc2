"""The conversations of docs/tutorials/frames-by-hand.rst do what the page says, against a running broker."""

import shutil
import socket
import subprocess
import sys

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests import readme
from tests.broker_process import BrokerProcess
from tests.web_socket_client import WebSocketClient

TEXT = (readme.README.parent / "docs" / "tutorials" / "frames-by-hand.rst").read_text()


def _run(command: list[str]) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=300).stdout.decode()


class ConversationTests(SynchronousTestCase):
    """Each conversation, pasted as it stands; only the port differs."""

    def setUp(self) -> None:
        """Start a broker of the test's own."""
        self.broker = BrokerProcess()
        self.broker.__enter__()
        self.addCleanup(self.broker.__exit__, None, None, None)

    def code(self, name: str) -> str:
        """Return a conversation for this broker."""
        return readme.conversation(TEXT, name, self.broker.port())

    def test_fleximq(self) -> None:
        """The FlexiMQ conversation prints what the page shows."""
        self.assertEqual(_run([sys.executable, "-c", self.code("fleximq")]), readme.printed(TEXT, "fleximq"))

    def test_blipmq(self) -> None:
        """The BlipMQ conversation prints what the page shows."""
        self.assertEqual(_run([sys.executable, "-c", self.code("blipmq")]), readme.printed(TEXT, "blipmq"))

    def test_minimq(self) -> None:
        """What the MiniMQ conversation pipes into netcat is answered as the page shows, after our side has closed."""
        printf, _ = self.code("minimq").split("|")
        with socket.create_connection(self.broker.address, timeout=300) as stream:
            stream.sendall(_run(["sh", "-c", printf]).encode())
            stream.shutdown(socket.SHUT_WR)
            with stream.makefile("r") as answers:
                self.assertEqual(answers.read(), readme.printed(TEXT, "minimq"))

    def test_minimqByNetcat(self) -> None:
        """The MiniMQ conversation prints what the page shows when a shell runs it."""
        netcat = shutil.which("nc")
        usage = netcat and subprocess.run([netcat, "-h"], capture_output=True, timeout=300).stderr.decode()
        if not usage or "-N" not in usage:
            raise SkipTest("there is no netcat that knows -N")
        self.assertEqual(_run(["sh", "-c", self.code("minimq")]), readme.printed(TEXT, "minimq"))

    def test_identity(self) -> None:
        """What a browser sends in the Identity conversation is answered as the comments say, and by nothing else."""
        code = self.code("identity")
        documented = readme.loggedLines(code)
        headers = (f"Origin: http://127.0.0.1:{self.broker.port()}",)
        with WebSocketClient(self.broker.address, readme.webSocketPath(code), headers=headers) as browser:
            for text in readme.sentFrames(code):
                browser.sendText(text)
            browser.sendText("UNSUBSCRIBE:the-end")
            logged = []
            while "UNSUB-ACK:the-end" not in logged:
                logged.append(browser.receiveText())
        self.assertEqual(len(logged[:-1]), len(documented), logged)
        for line, expected in zip(logged, documented, strict=False):
            self.assertTrue(readme.saysTheSame(line, expected), (line, expected))
