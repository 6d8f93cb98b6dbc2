"""The tutorial's programs do what the tutorial says, against a running broker."""

import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests import readme
from tests.broker_process import PATIENCE, BrokerProcess
from tests.conversations.clients import FlexiClient, Stream
from tests.pages import ShellCase
from tests.web_socket_client import WebSocketClient

TEXT = (Path(__file__).parents[1] / "docs" / "tutorials" / "messages.rst").read_text()


class TenMinutesTests(ShellCase):
    """The first half of the page, in the folder of a reader."""

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


class TutorialTests(SynchronousTestCase):
    """Its programs in a folder, beside a broker that pings whoever is silent for a fifth of a second."""

    def setUp(self) -> None:
        """Save what the page says to save; only the port differs."""
        self.broker = BrokerProcess("--keepalive", "0.2", "--redelivery", "0.2")
        self.broker.__enter__()
        self.addCleanup(self.broker.__exit__, None, None, None)
        self.folder = Path(tempfile.mkdtemp(prefix="tutorial-"))
        self.addCleanup(shutil.rmtree, self.folder)
        for name in ("frames", "station", "service", "ask"):
            code = readme.saved(TEXT, name).replace("7890", str(self.broker.port()))
            (self.folder / f"{name}.py").write_text(code)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Run one of the programs."""
        program = subprocess.Popen(
            [sys.executable, *words], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.addCleanup(self.end, program)
        return program

    def end(self, program: "subprocess.Popen[str]") -> None:
        """End a program that goes on for ever."""
        program.kill()
        program.communicate(timeout=PATIENCE)

    def line(self, program: "subprocess.Popen[str]") -> str:
        """Return the next line that a program prints."""
        assert program.stdout is not None
        return program.stdout.readline().rstrip()

    def shell(self, name: str) -> str:
        """Do what the lines of a shell would, each by a connection of its own that ends behind its commands."""
        answers = b""
        for line in readme.saved(TEXT, name).splitlines():
            printf, _ = line.split("|")
            with Stream(self.broker.address) as stream:
                stream.say(subprocess.run(["sh", "-c", printf], check=True, capture_output=True).stdout)
                stream.endInput()
                answers += stream.readAll()
        return answers.decode()

    def test_station(self) -> None:
        """It prints its own map, and what others say, also after longer than a client may be silent."""
        station = self.start("station.py")
        self.assertEqual(self.line(station), "weather {'wind': 7, 'from': 'west'}")
        with FlexiClient(Stream(self.broker.address), answersPings=False) as silent:
            silent.join()
            silent.untilEnd()
        with Stream(self.broker.address) as stream:
            stream.say(b"PRODUCE:weather.north:sun at last\n")
            self.assertEqual(self.line(station), "weather.north sun at last")

    def test_service(self) -> None:
        """Who asks by the number that the service printed is answered; who asks another number hears why not."""
        service = self.line(self.start("service.py"))
        self.assertRegex(service, r"^I am client \d+$")
        number = service.split()[-1]
        self.assertEqual(self.line(self.start("ask.py", number, "rain")), "rain, indeed!")
        self.assertIn("there is no client 999999", self.line(self.start("ask.py", "999999", "rain")))

    def test_crash(self) -> None:
        """What was put in before a crash is there after it; the station sees the past when it asks for it."""
        options = ("--journal", str(self.folder / "kept"), "--durable", "weather.#")
        with BrokerProcess(*options) as self.broker:
            self.assertEqual(self.shell("keep"), "j3\nw2\n")
            self.broker.stop(signal.SIGKILL)
        with BrokerProcess(*options) as self.broker:
            self.assertEqual(self.shell("take"), readme.printed(TEXT, "take"))
            for name in ("frames", "station"):
                code = readme.saved(TEXT, name).replace("7890", str(self.broker.port()))
                code = code.replace('{"topic": "weather.#"}', '{"topic": "weather.#", "from": "first"}')
                (self.folder / f"{name}.py").write_text(code)
            station = self.start("station.py")
            self.assertEqual(
                [self.line(station), self.line(station)], ["weather hail", "weather {'wind': 7, 'from': 'west'}"]
            )

    def test_work(self) -> None:
        """Two jobs are shared as the page prints."""
        self.assertEqual(self.shell("produce"), "j1\nj2\n")
        self.assertEqual(self.shell("consume"), readme.printed(TEXT, "consume"))
