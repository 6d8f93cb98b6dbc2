"""A node of a cluster whose system clock is set while it runs; the monotonic clock stays true."""

import contextlib
import io
import json
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from fleximq.cli.main import main
from fleximq.client import blocking
from tests.broker_process import BrokerProcess
from tests.cluster.nats.servers import MISSING as NATS_MISSING
from tests.cluster.nats.servers import Servers
from tests.stepped_clock import MISSING as CLOCK_MISSING
from tests.stepped_clock import SteppedClock

OWNS = "this node owns shard 0"


class ClockStepTests(SynchronousTestCase):
    """An owner, and a standby whose clock is set; on one real server."""

    skip = NATS_MISSING or CLOCK_MISSING

    def setUp(self) -> None:
        servers = Servers(self.mktemp())
        self.addCleanup(servers.end)
        servers.wait()
        self.url = servers.urls[0]
        self.folder = Path(tempfile.mkdtemp(dir=".")).absolute()
        self.clock = SteppedClock(self.folder)
        self.owner = self.start("a")
        self.owner.waitFor(lambda: OWNS in self.owner.output, "the owner")
        self.standby = self.start("b", environment=self.clock.environment)
        self.standby.waitFor(lambda: "clients are forwarded to node a" in self.standby.output, "its owner")

    def start(self, name: str, environment: dict[str, str] | None = None) -> BrokerProcess:
        """Start a node."""
        words = ["--cluster", self.url, "--node", name, "--durable", "#", "--cluster-bytes", "64MiB"]
        words += ["--journal", str(self.folder / name), "--allow-anonymous"]
        broker = BrokerProcess(*words, environment=environment, fresh=environment is not None)
        broker.start()
        self.addCleanup(broker.stop)
        return broker

    def status(self) -> dict[str, object]:
        """Return the row of the standby."""
        written = io.StringIO()
        with contextlib.redirect_stdout(written), contextlib.redirect_stderr(io.StringIO()):
            main(["cluster", "status", "--json", "--cluster", self.url])
        row: dict[str, object] = next(row for row in json.loads(written.getvalue())["nodes"] if row["node"] == "b")
        return row

    def test_steps(self) -> None:
        """A standby whose clock is set an hour back, or forward, is not silent; it follows, and takes over."""
        with blocking.connect(f"tcp://127.0.0.1:{self.owner.port()}") as client:
            for step in (-3600.0, 7200.0):
                self.clock.step(step)
                self.standby.waitFor(lambda: "The system clock was set by" in self.standby.output, "the step")
                client.publish("t", step)
                client.flush()
                self.standby.waitFor(lambda: self.status()["behind"] == 0, "its copy")
                row = self.status()
                self.assertEqual((row["living"], row["state"]), (True, "following"))
        self.assertGreater(abs(float(str(row["clock"]))), 1000)
        self.owner.stop()
        self.standby.waitFor(lambda: OWNS in self.standby.output, "the next owner")
        with blocking.connect(f"tcp://127.0.0.1:{self.standby.port()}") as client:
            with client.subscribe("t", from_="first") as got:
                found = [got.next(timeout=300) for _ in range(2)]
        self.assertEqual([message and message.value for message in found], [-3600.0, 7200.0])
