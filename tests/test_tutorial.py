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

TEXT = (Path(__file__).parents[1] / "docs" / "tutorial.rst").read_text()


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
