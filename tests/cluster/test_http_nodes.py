"""Plain HTTP and the console at a node that does not own the journal: a standby, and a node of a mesh."""

import json
import tempfile
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.broker_process import PATIENCE, BrokerProcess
from tests.cluster.nats.servers import MISSING, Servers
from tests.cluster.test_console_sessions import OWNS


class HttpNodeTests(SynchronousTestCase):
    """Two brokers on a real server; ``node`` does not own the journal."""

    if MISSING:
        skip = MISSING

    def begin(self, *more: str) -> None:
        """Start them with the same options, the owner first."""
        servers = Servers(self.mktemp())
        self.addCleanup(servers.end)
        servers.wait()
        words = ["--cluster", servers.urls[0], "--cluster-bytes", "64MiB", "--durable", "news", "--allow-anonymous"]
        words += ["--listen", "tcp:0:interface=127.0.0.1", "--http", "tcp:0:interface=127.0.0.1", *more]
        for name in "ab":
            folder = Path(tempfile.mkdtemp(dir=".")).absolute()
            self.node = BrokerProcess(*words, "--node", name, "--journal", f"{folder}/journal")
            self.node.start()
            self.addCleanup(self.node.stop)
            if name == "a":
                self.node.waitFor(lambda: OWNS in self.node.output, "its ownership")
        self.node.waitFor(lambda: len(self.node.listeners) == 2, "its listeners")

    def request(self, method: str, path: str, value: object = None, port: int = 0, **fields: str) -> HTTPResponse:
        """Return an answer at the n-th listener of the node; its body is not read."""
        connection = HTTPConnection("127.0.0.1", self.node.port(port), timeout=PATIENCE)
        self.addCleanup(connection.close)
        body = None if value is None else json.dumps(value)
        connection.request(method, path, body, {"Content-Type": "application/json", **fields})
        return connection.getresponse()

    def ask(self, method: str, path: str, value: object = None, port: int = 0) -> tuple[int, Any]:
        """Return the status of an answer and its JSON."""
        answer = self.request(method, path, value, port)
        return answer.status, json.loads(answer.read())

    def useAll(self) -> None:
        """Publish, read, work and look as at the owner."""
        self.assertEqual(self.ask("POST", "/topics/news", {"n": 1}), (200, {"offset": 1}))
        self.assertEqual(self.ask("POST", "/queues/jobs", "job")[0], 200)
        _, taken = self.ask("POST", "/queues/jobs/take?most=1&wait=60&lease=60")
        [job] = taken["jobs"]
        self.assertEqual(job["value"], "job")
        _, found = self.ask("GET", "/api/queues")
        self.assertEqual([(each["topic"], each["in_flight"]) for each in found["queues"]], [("jobs", 1)])
        self.assertEqual(self.ask("POST", "/queues/jobs/settle", {"ack": [job["tag"]]}), (200, {"unsettled": []}))
        stream = self.request("GET", "/topics/news?from=first", Accept="text/event-stream")
        lines = iter(stream.readline, b"")
        first = next(line for line in lines if line.startswith(b"data: "))
        self.assertEqual(json.loads(first.removeprefix(b"data: "))["offset"], 1)
        self.ask("POST", "/topics/news", {"n": 2})
        live = next(line for line in lines if line.startswith(b"data: "))
        self.assertEqual(json.loads(live.removeprefix(b"data: "))["value"], {"n": 2})
        page = self.request("GET", "/console/")
        self.assertEqual((page.status, b"FlexiMQ console" in page.read()), (200, True))

    def test_standby(self) -> None:
        """A standby forwards all of it; its own ``--http`` listener shows the console with the node, and names the
        owner for all else.
        """
        self.begin()
        self.useAll()
        self.own("/api/queues", "/api/topics", "/api/schedules")

    def test_mesh(self) -> None:
        """A node of a mesh does so too; its own ``--http`` listener also shows the topics of all nodes."""
        self.begin("--mesh")
        self.node.waitFor(lambda: "serves its clients itself" in self.node.output, "its mesh")
        self.useAll()
        self.own("/api/queues", "/api/schedules", "/api/values", "/api/groups")
        path = "/api/topics/messages?topic=news&from=first"
        self.node.waitFor(lambda: self.ask("GET", path, port=1)[1].get("messages"), "its copy of the journal")
        self.assertEqual(self.ask("GET", path, port=1)[1]["messages"][0]["value"], {"n": 1})
        _, found = self.ask("GET", "/api/topics?contains=news", port=1)
        self.assertEqual([(each["topic"], each["node"]) for each in found["topics"]], [("news", "a"), ("news", "b")])

    def own(self, *refused: str) -> None:
        """Look at the node's own ``--http`` listener, which refuses some paths."""
        self.assertEqual(self.request("GET", "/console/", port=1).status, 200)
        _, found = self.ask("GET", "/api/cluster", port=1)
        self.assertEqual((found["cluster"]["node"], found["cluster"]["owner"]), ("b", "a"))
        for path in refused:
            code, found = self.ask("GET", path, port=1)
            self.assertEqual((code, found["error"][:42]), (503, "this node does not own the journal; a does"), path)
