"""fleximq.cli.cluster_commands.status; with real servers in tests.cluster.test_cluster_service."""

import contextlib
import io
import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.cli.cluster_commands.connection import Survey
from fleximq.cli.cluster_commands.shard_commands import afterRefill
from fleximq.cli.cluster_commands.status import nodeRows, shardRow, show, synced, warnings
from fleximq.cluster.interfaces import AHEAD, ClusterError, Replicas, ShardOwner, StreamBounds
from fleximq.cluster.node_state import lackingCopies, whyNotTo
from tests.cluster.test_node_state import record


class StatusTests(SynchronousTestCase):
    """Two living nodes and a silent one."""

    def setUp(self) -> None:
        self.survey = Survey()
        for _ in range(2):
            self.survey.nodeChanged("owner", record(9, durable="a"))
            self.survey.nodeChanged("other", record(7, 99.0, durable="b"))
        self.survey.nodeChanged("silent", record(3))
        self.survey.ownerChanged(0, ShardOwner("owner", 4, 1))

    def found(self) -> dict[str, Any]:
        """Return all that is shown."""
        shards = [shardRow(self.survey, 0, StreamBounds(1, 2, 9, 950, 1000))]
        return {"shards": shards, "nodes": list(nodeRows(self.survey)), "isOld": bool(self.survey.unread)}

    def test_rows(self) -> None:
        """Each node says how far behind the owner it is, and which settings differ."""
        found = self.found()
        self.assertEqual([row["state"] for row in found["nodes"]], ["following", "following", "silent"])
        self.assertEqual([row.get("behind") for row in found["nodes"]], [2, None, 6])
        self.assertEqual([row.get("differs") for row in found["nodes"]], [["durable"], None, []])
        self.assertEqual(found["shards"][0]["term"], 4)

    def test_unknown(self) -> None:
        """While a stream does not answer, its row says what is known, and no node is said to be missing."""
        row = shardRow(self.survey, 0, None)
        self.assertEqual((row["owner"], row["last"]), ("owner", None))
        empty: dict[str, Any] = {"shards": [row], "nodes": [], "isOld": False}
        self.assertEqual(list(warnings(self.survey, empty)), ["no node has joined this cluster yet"])
        with contextlib.redirect_stdout(io.StringIO()) as written:
            show({**empty, "warnings": []})
        self.assertNotIn("None", written.getvalue())
        self.survey.unread = "they elect"
        said = list(warnings(self.survey, {**empty, "shards": []}))
        self.assertEqual(said, ["the keys of the nodes cannot be read, no server gives its copy of them: they elect"])

    def test_unread(self) -> None:
        """While the keys cannot be read, the last known states are shown with their age; nodes that answer say more."""
        self.survey = Survey()
        self.survey.unread = "they elect"
        for node, age in (("owner", 30.0), ("other", 31.0)):
            self.survey.nodeChanged(node, record(9))
            self.survey.clocks[node] = -age
        self.survey.ownerChanged(0, ShardOwner("owner", 4, 1))
        self.survey.answering.add("other")
        found = self.found()
        shown = [(row["node"], row["state"], row["last"], row["silent"]) for row in found["nodes"]]
        self.assertEqual(shown, [("other", "following", "following", 31.0), ("owner", "unknown", "following", 30.0)])
        self.assertEqual(
            list(warnings(self.survey, found))[:2],
            [
                "the keys of the nodes cannot be read, the last are 30 seconds old: they elect",
                "it is not known whether shard 0 has an owner; the last known is owner",
            ],
        )
        said = list(warnings(self.survey, found))
        self.assertIn("owner does not answer; its state of 30 seconds ago is following", said)
        written = io.StringIO()
        with contextlib.redirect_stdout(written), contextlib.redirect_stderr(io.StringIO()):
            show(found | {"warnings": []})
        self.assertIn("shard 0 was owned by owner in term 4", written.getvalue())
        self.assertRegex(written.getvalue(), "owner +following 30 s ago")
        self.assertLessEqual(max(map(len, written.getvalue().splitlines())), 80)

    def test_setBack(self) -> None:
        """A stream with less than the copies is not said to be whole before the nodes notice it themselves."""
        self.assertEqual([self.survey.setBack(0, last) for last in (None, 9)], ["", ""])
        self.survey.nodeChanged("owner", record(10, durable="a"))
        why = (
            "the stream of shard 0 ends with message 9, but the copy of owner has 10: it was set back, or has a new "
            "leader; ask again in 10 seconds"
        )
        self.assertEqual(self.survey.setBack(0, 9), why)
        self.assertIn(why, list(warnings(self.survey, self.found())))
        self.survey.nodeChanged("owner", record(AHEAD, durable="a"))
        self.assertEqual(self.survey.setBack(0, 9), "")

    def test_answers(self) -> None:
        """A node that answers, but does not write its key, is not said to be stopped."""
        self.survey.answering.add("silent")
        self.survey.clocks["silent"] = -7.0
        row = self.found()["nodes"][2]
        self.assertEqual((row["state"], row["living"]), ("following", True))
        said = list(warnings(self.survey, self.found()))
        self.assertIn("silent runs, but has not written its key for 7 seconds", said)

    def test_afterRefill(self) -> None:
        """After a refill from a shorter copy than that of a living node, no node is promised to own the shard."""
        self.assertEqual(afterRefill(self.survey, "other", 0), "a node will own it within seconds")
        own = record(9)
        self.survey.nodeChanged("owner", own._replace(about={**own.about, "end": 11}))
        self.assertEqual(afterRefill(self.survey, "owner", 0), "a node will own it within seconds")
        self.assertEqual(
            afterRefill(self.survey, "other", 0),
            "but the copy of owner has more, so no node may own the shard: cluster refill 0 appends that, "
            "and refill 0 --to owner gives it up",
        )

    def test_copies(self) -> None:
        """Missing copies have a sentence each: a stream that was made with fewer, or servers that are behind."""
        replicas = {"shard 0": Replicas(3, 1, 1), "keys": Replicas(3, 3, 2), "shard 1": Replicas(3, 3, 3)}
        self.assertEqual(
            lackingCopies(replicas),
            [
                "shard 0 has 1 of 3 copies on the NATS servers, since it was made with 1",
                "keys has 2 of 3 copies on the NATS servers, the others are missing or behind",
            ],
        )

    def test_forgotten(self) -> None:
        """A node that was removed is not shown."""
        self.survey.nodeForgotten("silent")
        self.assertEqual(sorted(self.survey.nodes), ["other", "owner"])

    def test_warnings(self) -> None:
        """There is a sentence for each thing that needs an operator."""
        self.assertEqual(
            [words.partition(":")[0] for words in warnings(self.survey, self.found())],
            [
                "the stream of shard 0 is almost full",
                "other does not follow",
                "other has other settings than the owner",
                "owner does not follow",
                "silent is silent",
            ],
        )
        self.survey.nodeChanged("other", record(AHEAD))
        self.survey.ownerChanged(0, ShardOwner("silent", 5, 2))
        said = list(warnings(self.survey, self.found()))
        self.assertEqual(said[0], "shard 0 has no living owner; the last was silent")
        self.assertIn(
            "the stream has less than the copy of other, so no node may own the shard; see cluster refill", said
        )

    def test_clock(self) -> None:
        """A clock that differs from those of the other nodes is named, with by how much."""
        now = 1e9
        for node, ahead in (("a", 0.0), ("b", -3600.0), ("c", 0.5)):
            for _ in range(2):
                self.survey.nodeChanged(node, record(9))
            self.survey.clocks[node] = now + ahead
        del self.survey.nodes["owner"], self.survey.nodes["other"], self.survey.nodes["silent"]
        said = [words for words in warnings(self.survey, self.found()) if "clock" in words]
        self.assertEqual(said, ["the clock of b is 3,600 seconds behind the others"])

    def test_speed(self) -> None:
        """A copy that is behind says how fast it reads, and for how long."""
        late = record(9)._replace(applied={0: 3}, about={**record(9, 50.0).about, "speed": 2.0})
        self.survey.nodeChanged("other", late)
        written = io.StringIO()
        with contextlib.redirect_stdout(written), contextlib.redirect_stderr(io.StringIO()):
            show(self.found() | {"warnings": []})
        self.assertIn("other reads 2 messages of the stream a second: 3 seconds more", written.getvalue())
        living = {"owner": record(9), "other": late}
        said = whyNotTo(0, "other", ShardOwner("owner", 4, 1), living)
        self.assertIn("seconds, behind, reads 2 a second and has the rest in 3 seconds", said)

    def test_narrow(self) -> None:
        """The output fits a terminal of 80 columns."""
        written = io.StringIO()
        with contextlib.redirect_stdout(written), contextlib.redirect_stderr(io.StringIO()):
            show(self.found() | {"warnings": []})
        self.assertIn("its stream has messages 2 to 9, 950 bytes of 1000 (95%)", written.getvalue())
        self.assertLessEqual(max(map(len, written.getvalue().splitlines())), 80)


class Monitor(BaseHTTPRequestHandler):
    """The monitoring port of a NATS server."""

    config: dict[str, object] = {}

    def do_GET(self) -> None:  # noqa: N802
        """Answer."""
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"jetstream": {"config": self.config}}).encode())

    def log_message(self, *ignored: object) -> None:
        """Print nothing."""


class MonitorTests(SynchronousTestCase):
    """What a server's monitoring port says."""

    def setUp(self) -> None:
        server = HTTPServer(("127.0.0.1", 0), Monitor)
        self.url = f"http://127.0.0.1:{server.server_port}/"
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)

    def test_synced(self) -> None:
        """A server that syncs later is said to lose messages."""
        self.patch(Monitor, "config", {"sync_always": True, "sync_interval": 120_000_000_000})
        self.assertEqual(synced(self.url), (True, f"{self.url}: sync_interval is always"))
        self.patch(Monitor, "config", {"sync_interval": 120_000_000_000})
        good, words = synced(self.url)
        self.assertFalse(good)
        self.assertIn("sync_interval is 120 seconds, not always: a loss of power", words)

    def test_wrong(self) -> None:
        """Something else is refused."""
        for url in ("file:///etc/passwd", "http://127.0.0.1:1", self.url):
            self.patch(Monitor, "config", None)
            self.assertRaises(ClusterError, synced, url)
