"""Five real NATS servers become three, with settings and program of docs/guides/cluster-machines.rst."""

import contextlib
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from fleximq.cluster.interfaces import NodeRecord, Piece, StreamBounds, Unknown
from tests.cluster.nats.servers import MISSING, Servers
from tests.nightly import nightly

if not MISSING:
    from fleximq.cluster.nats.store import NatsCluster

_PAGE = Path(__file__).parents[3] / "docs" / "guides" / "cluster-machines.rst"
_LOGIN = {"user": "fleximq", "password": "a long password"}


@nightly
class FewerServersTests(TestCase):
    """Streams with three copies each, on any of five servers."""

    clock: Any
    if MISSING:
        skip = MISSING

    async def test_fewer(self) -> None:
        """After two servers were removed, three have all copies, and the loss of one of these is survived."""
        from twisted.internet import reactor

        self.clock = cast(Any, reactor)
        part = _PAGE.read_text().partition("From five NATS servers to three\n")[2]
        settings, program = map(textwrap.dedent, re.findall(r"code-block:: \w+\n\n((?:    .*\n|\n)+)", part)[:2])
        single = 'authorization { user: "fleximq", password: "a long password" }\n'
        folder = Path(self.mktemp())
        servers = Servers(str(folder), 5, single)
        self.addCleanup(servers.end)
        servers.wait()
        cluster = NatsCluster(
            servers.urls[:3], "test", self.clock.callFromThread, room=1 << 20, replicas=3, options=_LOGIN
        )
        self.addCleanup(cluster.stop)
        await cluster.start()
        await cluster.append(0, 0, [Piece(b"data", 8, 1, 0)])
        path = folder / "s0.conf"
        path.write_text(path.read_text().replace(single, settings))
        servers.processes[0].send_signal(signal.SIGHUP)
        for index in (4, 3):
            servers.processes[index].terminate()
            servers.processes[index].wait()

            def isRemoved(index: int = index) -> bool:
                words = [sys.executable, "-c", program, f"s{index}", servers.urls[0]]
                return '"success":true' in subprocess.run(words, capture_output=True, text=True, check=False).stdout

            await self.until(isRemoved)
            await self.answers(
                lambda: cluster.replicas([0]), lambda found: {each.current for each in found.values()} == {3}
            )
        servers.kill(2)
        await self.answers(lambda: cluster.bounds(0), lambda found: found.last == 1)
        await self.answers(lambda: Deferred.fromCoroutine(self.append(cluster)), lambda found: found.last == 2)
        await self.answers(lambda: cluster.beat("a", NodeRecord({})), lambda _: True)

    async def append(self, cluster: "NatsCluster") -> StreamBounds:
        """Append a second message, if it is not there; return what the stream has."""
        with contextlib.suppress(Unknown):
            await cluster.append(0, 1, [Piece(b"more", 16, 2, 0)])
        return await cluster.bounds(0)

    async def until(self, holds: Callable[[], object], seconds: float = 60.0) -> None:
        """Wait until something holds."""
        end = time.monotonic() + seconds
        while not holds():
            self.assertLess(time.monotonic(), end)
            await deferLater(self.clock, 0.5)

    async def answers(self, asked: Callable[[], "Deferred[Any]"], holds: Callable[[Any], bool]) -> None:
        """Ask until there is an answer of which something holds."""
        end = time.monotonic() + 60
        while True:
            try:
                if holds(await asked()):
                    return
            except Unknown:
                pass
            self.assertLess(time.monotonic(), end)
            await deferLater(self.clock, 0.5)
