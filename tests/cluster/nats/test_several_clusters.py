"""Two clusters on one NATS server, each with two nodes, whose owners have different names."""

import contextlib
import io
import json
import re
import tempfile
import textwrap
import time
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from fleximq.cli.main import main
from fleximq.client.blocking import Client, connect
from tests.broker_process import BrokerProcess
from tests.cluster.nats.servers import MISSING, Servers
from tests.pages import ROOT

PAGE = ROOT / "docs" / "guides" / "cluster.rst"
_PATIENCE = 300.0


class SeveralClustersTests(SynchronousTestCase):
    """``orders`` and ``metrics``, in which all topics are durable."""

    if MISSING:
        skip = MISSING

    def setUp(self) -> None:
        folder = Path(tempfile.mkdtemp(dir=".")).absolute()
        servers = Servers(str(folder / "nats"))
        self.addCleanup(servers.end)
        servers.wait()
        self.servers = ("--cluster", servers.urls[0])
        self.nodes: dict[str, list[BrokerProcess]] = {"orders": [], "metrics": []}
        for name, nodes in self.nodes.items():
            for node in "ab":
                words = ("--cluster-name", name, "--node", node, "--journal", f"{folder}/{name}-{node}")
                more = ("--durable", "#", "--allow-anonymous", "--cluster-bytes", "64MiB")
                broker = BrokerProcess(*self.servers, *words, *more)
                broker.start()
                self.addCleanup(broker.stop)
                nodes.append(broker)

    def command(self, *words: str) -> tuple[int, str]:
        """Run a command of a cluster; return its exit code and what it prints."""
        with contextlib.redirect_stdout(io.StringIO()) as written, contextlib.redirect_stderr(written):
            try:
                code = main(["cluster", *words, *self.servers])
            except SystemExit as error:
                return 1, str(error)
        return code or 0, written.getvalue()

    def owners(self) -> dict[str, str]:
        """Return the owner of each cluster, when all nodes follow or own and nothing is to be warned of."""
        end = time.monotonic() + _PATIENCE
        while True:
            code, written = self.command("status", "--all", "--json")
            if code == 0 and len(found := json.loads(written)["clusters"]) == 2:
                states = [row["state"] for each in found.values() for row in each["nodes"]]
                if sorted(states) == ["following", "following", "owning", "owning"]:
                    return {name: each["shards"][0]["owner"] for name, each in found.items()}
            self.assertLess(time.monotonic(), end, written)
            time.sleep(0.2)

    def urls(self, name: str) -> str:
        """Return the addresses of a cluster."""
        return ",".join(f"127.0.0.1:{broker.port()}" for broker in self.nodes[name])

    def test_apart(self) -> None:
        """A program reaches both by the map that the guide shows; none has messages or offsets of the other, and one
        changes its owner while the other goes on.
        """
        owners = self.owners()
        if owners["orders"] == owners["metrics"]:
            other = "b" if owners["metrics"] == "a" else "a"
            code, written = self.command("move", "0", other, "--cluster-name", "metrics")
            self.assertEqual(code, 0, written)
        self.example()
        for name in self.nodes:
            with connect(self.urls(name), timeout=60) as client:
                self.assertEqual(self.stored(client), [({"orders": "orders.new", "metrics": "metrics.cpu"}[name], 1)])
        code, written = self.command("status", "--all")
        self.assertEqual(re.findall("^cluster (.*)$", written, re.MULTILINE), ["metrics", "orders"])
        found = re.findall("owned by ([ab]) ", written)
        self.assertEqual(sorted(found), ["a", "b"], written)

    def example(self) -> None:
        """Run the program of the guide at these clusters."""
        code = re.findall(r"^\.\. code-block:: python\n\n((?:    .*\n|\n)+)", PAGE.read_text(), re.MULTILINE)
        self.assertEqual(len(code), 1)
        program = textwrap.dedent(code[0])
        for name in self.nodes:
            program, number = re.subn(rf'("{name}": )"[^"]*"', rf'\1"{self.urls(name)}"', program)
            self.assertEqual(number, 1)
        with contextlib.redirect_stdout(io.StringIO()) as written:
            exec(compile(program, PAGE, "exec"), {})
        self.assertEqual(written.getvalue(), "orders.new 7\n")

    def stored(self, client: Client) -> list[tuple[str, int | None]]:
        """Return topics and offsets of all messages of a cluster."""
        client.publish("last", None)
        found: list[tuple[str, int | None]] = []
        with client.subscribe("#", from_="first") as messages:
            for message in messages:
                if message.topic == "last":
                    break
                found.append((message.topic, message.offset))
        return found
