"""The tutorial's programs do what the tutorial says, against a running broker."""

import signal
import subprocess
from pathlib import Path

from tests import readme
from tests.broker_process import PATIENCE, BrokerProcess
from tests.conversations.clients import Stream
from tests.pages import ShellCase
from tests.web_socket_client import WebSocketClient

TEXT = (Path(__file__).parents[1] / "docs" / "tutorials" / "messages.rst").read_text()


class TenMinutesTests(ShellCase):
    """The page up to the crash, in the folder of a reader."""

    text = TEXT
    options = ("--redelivery", "2")

    def test_chat(self) -> None:
        """What the terminal says the page hears, and what the page says is shown in the terminal."""
        page = self.code("chat")
        listens = self.start(self.code("listen"))
        with WebSocketClient(self.broker.address, readme.webSocketPath(page), headers=("Origin: null",)) as browser:
            (subscribe,) = readme.sentFrames(page)
            browser.sendText(subscribe)
            self.untilSubscribed(2)
            self.done(self.code("say"))
            browser.sendText("PUBLISH:chat:and from: the page")
            heard = [text for text in (browser.receiveText() for _ in range(5)) if text.startswith("MSG:")]
        said = ["hello from the terminal", "and from: the page"]
        self.assertEqual([each.split(":", 3)[3] for each in heard], said)
        self.assertEqual(self.lines(listens, 2), said)

    def test_service(self) -> None:
        """The shell answers."""
        offers = self.start(self.code("offer"))
        assert offers.stderr is not None
        code = self.code("askit").replace("1004", offers.stderr.readline().split()[1])
        self.assertEqual(self.done(code), readme.printed(TEXT, "askit"))

    def test_workers(self) -> None:
        """Two workers do every job once, and a job whose worker was stopped is done by the other."""
        (self.folder / "worker.py").write_text(self.code("worker"))
        both = [self.start(f"exec .venv/bin/python worker.py {name}") for name in ("anna", "ben")]
        self.assertEqual([self.lines(each, 1) for each in both], [["anna is ready"], ["ben is ready"]])
        self.done(self.code("jobs"))
        got = [line for each in both for line in self.lines(each, 2)]
        jobs = ["mend the roof", "paint the fence", "sweep the yard", "water the roses"]
        self.assertEqual(sorted(line.split(": ")[1] for line in got), jobs)
        self.assertEqual(sorted(line.split()[0] for line in got), ["anna", "anna", "ben", "ben"])
        both[0].kill()
        both[0].wait(PATIENCE)
        self.done("fleximq pub jobs last")
        self.assertEqual(self.lines(both[1], 2)[-1].split()[0], "ben")


class CrashTests(ShellCase):
    """The end of the page: a broker with a journal."""

    text = TEXT

    def shell(self, name: str) -> str:
        """Do what the lines of a shell would, each by a connection of its own that ends with its commands."""
        answers = b""
        for line in readme.saved(TEXT, name).splitlines():
            printf, _ = line.split("|")
            with Stream(self.broker.address) as stream:
                stream.say(subprocess.run(["sh", "-c", printf], check=True, capture_output=True).stdout)
                stream.endInput()
                answers += stream.readAll()
        return answers.decode()

    def test_crash(self) -> None:
        """Messages stored before a crash are there after it: the job in its queue, the hail for a later subscriber."""
        options = ("--journal", str(self.folder / "kept"), "--durable", "weather.#")
        with BrokerProcess(*options) as self.broker:
            self.assertEqual(self.shell("keep"), "j3\nw2\n")
            self.broker.stop(signal.SIGKILL)
        with BrokerProcess(*options) as self.broker:
            self.assertEqual(self.shell("take"), readme.printed(TEXT, "take"))
            self.variables["FLEXIMQ_URL"] = f"tcp://127.0.0.1:{self.broker.port()}"
            self.assertEqual(self.done(self.code("past")), readme.printed(TEXT, "past"))
