"""The code of docs/guides/extending.rst runs, on the reactor of epoll and on that of asyncio."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from twisted.internet import reactor
from twisted.trial.unittest import SynchronousTestCase, TestCase

from fleximq.api import EVERYTHING, makeService
from tests import readme
from tests.broker_process import PATIENCE

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "guides" / "extending.rst").read_text()
ASYNCIO = "from twisted.internet import asyncioreactor\nasyncioreactor.install()\n"


class EmbeddingTests(SynchronousTestCase):
    """The program at the top of the page."""

    def test_itPrintsWhatThePageSaysOnEitherReactor(self) -> None:
        code = readme.labelled(TEXT, "runs", "embedding").replace("7890", "0")
        for first in ("", ASYNCIO):
            ended = subprocess.run(
                [sys.executable, "-c", first + code], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE
            )
            self.assertEqual((ended.stderr, ended.stdout), ("", readme.printed(TEXT, "embedding")), first)

    def test_everyBlockIsTried(self) -> None:
        named = re.findall(r"^\.\. runs: (\w+)\n\.\. code-block:: python$", TEXT, re.MULTILINE)
        self.assertEqual((named, TEXT.count(".. code-block:: python\n")), (["embedding", "factory", "extension"], 3))


class PartsTests(TestCase):
    """The shorter pieces of code, with a broker."""

    timeout = PATIENCE

    def setUp(self) -> None:
        """A broker in this process."""
        self.broker = makeService(reactor, listen=["tcp:0:interface=127.0.0.1"], drain_timeout=0)
        self.broker.startService()
        self.addCleanup(self.broker.stopService)

    def names(self, name: str) -> dict[str, Any]:
        """Return what a block defines."""
        found: dict[str, Any] = {}
        exec(readme.labelled(TEXT, "runs", name).replace("7892", "0"), found)
        return found

    async def test_theFactoryListens(self) -> None:
        port = await self.names("factory")["listen"](reactor, self.broker)
        self.assertGreater(port.getHost().port, 0)
        await port.stopListening()

    async def test_theExtensionAnswersAndPublishes(self) -> None:
        self.names("extension")["Doubler"](self.broker.context, None).startService()
        client = self.broker.connect(EVERYTHING)
        self.assertEqual(await client.request("doubler", "/double", 4), 8)
        doubles = await client.subscribe("doubles")
        await client.publish("numbers", 21)
        self.assertEqual((await anext(doubles)).value, 42)
