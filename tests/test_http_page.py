"""The examples of docs/guides/http.rst do what the page says, against a running broker."""

import re
import subprocess
import sys
import tempfile
import time
from shutil import which

from twisted.trial.unittest import SkipTest

from fleximq.client.blocking import connect
from fleximq.dialects.http.operations.route_table import ROUTES
from tests import readme
from tests.broker_process import PATIENCE
from tests.pages import ROOT, ShellCase


class ExamplesTests(ShellCase):
    """The lines of curl, in the order of the page."""

    text = (ROOT / "docs" / "guides" / "http.rst").read_text()

    def setUp(self) -> None:
        """Start a broker as the page does."""
        if which("curl") is None:
            raise SkipTest("curl is not installed")
        journal = tempfile.TemporaryDirectory(prefix="fleximq-http-page-")
        self.addCleanup(journal.cleanup)
        self.options = ("--journal", journal.name, "--durable", "orders.#")
        super().setUp()
        (self.folder / ".curlrc").write_text("silent\nno-buffer\n")

    def test_lines_of_the_shell(self) -> None:
        """Each block prints what stands behind it."""
        service = subprocess.Popen(
            [sys.executable, "-c", self.code("service")], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            self.untilServed("calc")
            names = [each for each in re.findall(r"^\.\. saved: (\w+)$", self.text, re.MULTILINE) if each != "service"]
            for name in names:
                self.assertEqual(self.done(self.code(name)), readme.printed(self.text, name), name)
        finally:
            service.communicate(b"\n", timeout=PATIENCE)

    def untilServed(self, name: str) -> None:
        """Wait until a client of this name is there."""
        with connect(self.variables["FLEXIMQ_URL"]) as client:
            deadline = time.monotonic() + PATIENCE
            while name not in [each["client_name"] for each in client.ask("/broker/clients")["clients"]]:
                self.assertLess(time.monotonic(), deadline)

    def test_parameters(self) -> None:
        """Every parameter of a route is spoken of."""
        for route in ROUTES:
            for each in route.parameters:
                self.assertRegex(self.text, rf"\b{each.name}\b|{each.field or 'none'}", route.path)
