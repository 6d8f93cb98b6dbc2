"""The suites of the JavaScript client in node, against a real broker."""

import os
import re
import subprocess

from twisted.trial.unittest import SynchronousTestCase

from tests.client.cases import Place
from tests.js.workshop import HERE, PATIENCE, node, workshop
from tests.nightly import repetitions

_broker = Place(lambda: ("--journal", "journal", "--durable", "#"))
_FAILED = re.compile(r"^\s*not ok \d+ - (.*)$", re.MULTILINE)


class SuiteTests(SynchronousTestCase):
    """One test for each suite, which tells the tests in it that failed."""

    def run_(self, suite: str) -> None:
        """Run a suite."""
        folder = workshop()
        ended = subprocess.run(
            [
                node(), "--test", "--test-reporter=tap", f"--test-timeout={int(PATIENCE * 1000)}",
                f"tests/suites/{suite}.test.mjs",
            ],
            cwd=folder,
            env={
                **os.environ,
                "FLEXIMQ_URL": f"ws://127.0.0.1:{_broker.broker.port()}/ws",
                "FLEXIMQ_CUTS": str(repetitions(10, 1000)),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=2 * PATIENCE,
        )  # fmt: skip
        failed = [name for name in _FAILED.findall(ended.stdout) if not name.endswith(".mjs")]
        self.assertEqual((failed, ended.returncode), ([], 0), ended.stdout[-4000:])

    def test_attacks(self) -> None:
        """Whatever a hostile broker sends, the client does not hang, grow or change the program."""
        self.run_("attacks")

    def test_client(self) -> None:
        """What the client promises beside the conversations that all forms have."""
        self.run_("client")

    def test_codec(self) -> None:
        """MessagePack there and back, and what is none."""
        self.run_("codec")

    def test_cuts(self) -> None:
        """Nothing is lost or repeated on a durable topic over many cut connections."""
        self.run_("cuts")

    def test_identity(self) -> None:
        """The Identity dialect."""
        self.run_("identity")

    def test_everySuiteIsRun(self) -> None:
        """There is a test for each file."""
        suites = {path.name.removesuffix(".test.mjs") for path in (HERE / "suites").glob("*.test.mjs")}
        tests = {name.removeprefix("test_") for name in dir(self) if name.startswith("test_")}
        self.assertEqual(suites - tests, set())
