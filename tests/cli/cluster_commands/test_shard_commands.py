"""``fleximq cluster adopt`` with real servers; ``refill`` is in tests.cluster.test_cluster_service."""

import io
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from fleximq.cli.main import main
from fleximq.journal.files.folder_files import IDENTITY
from tests.broker_process import BrokerProcess
from tests.cluster.nats.servers import MISSING, Servers
from tests.cluster.test_cluster_service import OWNS, say


class AdoptTests(SynchronousTestCase):
    """A journal of a single broker."""

    if MISSING:
        skip = MISSING

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=".")).absolute()
        self.servers = Servers(self.mktemp())
        self.addCleanup(self.servers.end)
        self.servers.wait()
        self.options = ["--cluster", self.servers.urls[0], "--cluster-bytes", "64MiB"]

    def started(self, folder: str, *options: str) -> BrokerProcess:
        """Start a broker."""
        words = ("--durable", "#", "--redelivery", "300", "--journal-segment", "64KiB")
        broker = BrokerProcess("--journal", f"{self.folder}/{folder}", *words, *options)
        broker.start()
        self.addCleanup(broker.stop)
        broker.waitFor(lambda: bool(broker.listeners), "its listener")
        return broker

    def adopt(self, folder: str) -> str:
        """Adopt a folder; return what is written, or the sentence of an error."""
        with redirect_stdout(io.StringIO()) as written:
            try:
                main(["cluster", "adopt", f"{self.folder}/{folder}", *self.options])
            except SystemExit as error:
                return str(error)
        return written.getvalue()

    def test_adopted(self) -> None:
        """A cluster has the messages, the queues and the id of the journal, in several segments."""
        broker = self.started("single")
        published = b"".join(b"PRODUCE:m%d:::q:::%s\n" % (number, b"x" * 30_000) for number in range(6))
        self.assertEqual(len(say(broker, published, 6)), 6)
        self.assertEqual(say(broker, b"CONSUME:q\nACK:m0\nCONSUME:q\n", 2)[1].split(b":")[0], b"m1")
        self.assertIn("is in use by another broker", self.adopt("single"))
        broker.stop()
        self.assertIn("single is not the folder of a journal", self.adopt("none/single"))
        written = self.adopt("single")
        self.assertIn("and 6 as its last offset", written)
        self.assertIn("is not empty: only a new cluster can adopt a journal", self.adopt("single"))
        node = self.started("node", *self.options, "--node", "a")
        node.waitFor(lambda: OWNS in node.output, "the node to own the shard")
        found = say(node, b"CONSUME:q\nACK:m1\nCONSUME:q\n", 2)
        # The first one is in flight, as it was.
        self.assertEqual([line.split(b":")[0] for line in found], [b"m2", b"m3"])
        self.assertIn("brokers of this cluster are running", self.adopt("single"))
        copied, single = self.folder / "node", self.folder / "single"
        self.assertEqual((copied / IDENTITY).read_bytes(), (single / IDENTITY).read_bytes())
        names = sorted(path.name for path in single.glob("*.fxj"))
        self.assertGreater(len(names), 1)
        for name in names:
            self.assertEqual((copied / name).read_bytes(), (single / name).read_bytes(), name)

    def test_damaged(self) -> None:
        """A folder with damage is refused, and stays as it is."""
        broker = self.started("single")
        say(broker, b"PRODUCE:m:::q:::text\n", 1)
        broker.stop()
        (path,) = (self.folder / "single").glob("*.fxj")
        damaged = bytearray(path.read_bytes())
        damaged[-100] ^= 1
        path.write_bytes(damaged)
        self.assertIn("single is damaged; start its broker", self.adopt("single"))
        self.assertEqual(path.read_bytes(), damaged)
