"""The examples of docs/guides/javascript.rst run."""

import os
import re
import shutil
import subprocess
import tempfile
import textwrap
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from fleximq.client.blocking import connect
from tests.broker_process import BrokerProcess
from tests.js.chromium import Browser
from tests.js.workshop import PATIENCE, ROOT, node, workshop
from tests.nightly import NIGHTLY

_PAGE = (ROOT / "docs" / "guides" / "javascript.rst").read_text()
_PORT = "localhost:7890"

#: Says something in the page, and reports its lines when there are as many as are expected.
_WATCHING = """
<script type="module">
const lines = () => [...document.querySelectorAll("li")].map((line) => line.textContent);
while (!document.querySelector("#form")?.onsubmit && !document.querySelector("ul")) {
  await new Promise((resolve) => setTimeout(resolve, 10));
}
if (document.querySelector("#form")) {
  while (!document.querySelector("#form").onsubmit) await new Promise((resolve) => setTimeout(resolve, 10));
  document.querySelector("#text").value = "<b>typed</b>";
  document.querySelector("#form").requestSubmit();
}
await fetch("/ready", { method: "POST", body: "" });
while (lines().length < EXPECTED) await new Promise((resolve) => setTimeout(resolve, 10));
fetch("/result", { method: "POST", body: JSON.stringify(lines()) });
</script>
"""


def example(kind: str, name: str) -> str:
    """Return the code of an example."""
    found = re.search(rf"^\.\. {kind}: {name}\n\n\.\. code-block:: \w+\n\n((?:    .*\n|\n)+)", _PAGE, re.MULTILINE)
    assert found is not None, name
    return textwrap.dedent(found[1]).rstrip() + "\n"


class GuideTests(SynchronousTestCase):
    """Programs and pages of the guide, as they are there but for the port."""

    def inFolder(self, broker: BrokerProcess, name: str) -> Path:
        """Write a program of the guide into a folder in which the package is found."""
        folder = Path(tempfile.mkdtemp(prefix="fleximq-js-guide-"))
        self.addCleanup(shutil.rmtree, folder)
        (folder / "node_modules").mkdir()
        (folder / "node_modules" / "fleximq").symlink_to(workshop() / "js")
        (folder / "program.mjs").write_text(example("program", name).replace(_PORT, f"127.0.0.1:{broker.port()}"))
        return folder

    def test_node(self) -> None:
        """The program prints what the guide says."""
        with BrokerProcess() as broker:
            folder = self.inFolder(broker, "node")
            ended = subprocess.run(
                [node(), "program.mjs"], cwd=folder, capture_output=True, text=True, timeout=PATIENCE
            )
        self.assertEqual((ended.stdout, ended.stderr), ("49\nalice 1\n", ""))
        for line in ended.stdout.splitlines():
            self.assertIn(f"``{line}``", _PAGE)

    def test_plain(self) -> None:
        """The page imports the client from the broker, shows what was typed as text, and what a program publishes."""
        ports: list[int] = []
        with Browser({}, {"/ready": lambda: _publish(ports[0], "hello")}) as browser:
            with BrokerProcess("--allowed-origin", browser.origin) as broker:
                ports.append(broker.port())
                page = example("page", "plain").replace(_PORT, f"127.0.0.1:{broker.port()}")
                browser.files["/"] = (page + _WATCHING.replace("EXPECTED", "2")).encode()
                self.assertEqual(sorted(browser.result("/")), ["<b>typed</b>", "hello"])

    def test_react(self) -> None:
        """The React example shows the lines."""
        if not NIGHTLY:
            raise SkipTest("React is installed in the nightly environment only")
        with BrokerProcess() as broker:
            folder = self.inFolder(broker, "react")
            (folder / "package.json").write_text('{"private": true}')
            install = ["npm", "install", "--no-save", "--no-audit", "--no-fund", "react", "react-dom"]
            subprocess.run(install, cwd=folder, check=True, capture_output=True, timeout=PATIENCE)
            package = folder / "node_modules" / "fleximq"
            package.unlink(missing_ok=True)
            package.symlink_to(workshop() / "js")
            bundler = workshop() / "js" / "node_modules" / ".bin" / "esbuild"
            subprocess.run(
                [bundler, "program.mjs", "--bundle", "--format=esm", "--external:ws", "--outfile=main.js"],
                cwd=folder,
                check=True,
                capture_output=True,
                env={**os.environ, "NODE_ENV": "production"},
            )
            page = (
                f"<!DOCTYPE html><body><script type=module src=/main.js></script>{_WATCHING.replace('EXPECTED', '2')}"
            )
            files = {"/": page.encode(), "/main.js": (folder / "main.js").read_bytes()}
            with Browser(files, {"/ready": lambda: _publish(broker.port(), "one", "two")}) as browser:
                self.assertEqual(browser.result("/"), ["one", "two"])


def _publish(port: int, *lines: str) -> None:
    """Publish lines to the chat, when the page has subscribed."""
    with connect(f"tcp://127.0.0.1:{port}") as client:
        while not any(each["subscribers"] for each in client.ask("/broker/topics")["topics"]):
            pass
        client.publish_many("chat", lines)
