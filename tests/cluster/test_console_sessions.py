"""Sessions of the console in a cluster: at the owner, whichever node the browser reaches."""

import json
import signal
import tempfile
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.broker_process import PATIENCE, BrokerProcess
from tests.cluster.nats.servers import MISSING, Servers
from tests.security.secrets_on_disk import CHEAP, secretFile

#: In the log of an owner.
OWNS = "this node owns shard 0"
_FIELDS = {"Content-Type": "application/json"}
_ANNA = {"name": "anna", "password": "right"}


class TakeoverTests(SynchronousTestCase):
    """Two brokers on a real server, one of which is killed; the browser reaches the other one."""

    if MISSING:
        skip = MISSING

    def setUp(self) -> None:
        """Start the server."""
        servers = Servers(self.mktemp())
        self.addCleanup(servers.end)
        servers.wait()
        passwords = secretFile(self, f"anna:{CHEAP.hash('right')}\n")
        self.words = ["--listen", "tcp:0:interface=127.0.0.1", "--http", "tcp:0:interface=127.0.0.1"]
        self.words += ["--cluster", servers.urls[0]]
        self.words += ["--cluster-bytes", "64MiB", "--cluster-wait", "60", "--auth", f"passwords:{passwords}"]

    def start(self, name: str) -> BrokerProcess:
        """Start a node that was not there before."""
        folder = Path(tempfile.mkdtemp(dir=".")).absolute()
        broker = BrokerProcess(*self.words, "--node", name, "--journal", f"{folder}/journal")
        broker.start()
        self.addCleanup(broker.stop)
        return broker

    def test_takeover(self) -> None:
        """A session that began at a follower's port is the owner's; after a takeover the page signs in again."""
        owner, number = self.start("n0"), 0
        owner.waitForOutput(OWNS)
        while True:
            number += 1
            follower = self.start(f"n{number}")
            try:
                # A node that began with an empty folder may own the journal only after it has seen an owner.
                follower.waitFor(lambda: self.isReady(follower), "its health")  # noqa: B023
                session = self.begin(follower)
                break
            except (OSError, HTTPException, AssertionError):
                if not owner.hasEnded(0):
                    raise
                owner = follower  # the former one lost the journal, as it was not run for some seconds
                owner.waitForOutput(OWNS)
        owner.stop(signal.SIGKILL)
        follower.waitForOutput(OWNS)
        code, value, _ = self.ask(follower, "GET", "/api/topics", None, session)
        self.assertEqual((code, value), (401, {"error": "this session has ended, sign in again"}))
        code, value, _ = self.ask(follower, "GET", "/console/session", None, session)
        self.assertEqual((code, value["methods"]), (401, ["password"]))
        _, _, cookie = self.ask(follower, "POST", "/console/session", _ANNA, session)
        self.assertEqual(self.ask(follower, "GET", "/api/topics", None, {"Cookie": cookie})[0], 200)

    def isReady(self, broker: BrokerProcess) -> bool:
        """Whether a node's own ``/readyz`` is 200."""
        if len(broker.listeners) < 2:
            return False
        connection = HTTPConnection("127.0.0.1", broker.port(1), timeout=PATIENCE)
        self.addCleanup(connection.close)
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200

    def begin(self, follower: BrokerProcess) -> dict[str, str]:
        """Sign in at a follower, and use the session and its ticket; return the session's header."""
        code, value, cookie = self.ask(follower, "POST", "/console/session", _ANNA)
        self.assertEqual((code, value["principal"]), (200, "anna"), value)
        session = {"Cookie": cookie}
        self.assertEqual(self.ask(follower, "GET", "/api/topics", None, session)[0], 200)
        change = {**session, "X-FlexiMQ-CSRF": value["csrf"]}
        code, ticket, _ = self.ask(follower, "POST", "/console/ticket", {}, change)
        self.assertEqual(code, 200)
        credentials = {"Authorization": f"Bearer {ticket['token']}"}
        self.assertEqual(self.ask(follower, "GET", "/api/topics", None, credentials)[0], 200)
        return session

    def ask(
        self, broker: BrokerProcess, method: str, path: str, value: object = None, fields: dict[str, str] | None = None
    ) -> tuple[int, Any, str]:
        """Return the status of an answer, its value, and the cookie that it sets."""
        connection = HTTPConnection(*broker.address, timeout=PATIENCE)
        self.addCleanup(connection.close)
        body = None if value is None else json.dumps(value)
        connection.request(method, path, body, {**(fields or {}), **(_FIELDS if body else {})})
        answer = connection.getresponse()
        cookie = (answer.getheader("set-cookie") or "").partition(";")[0]
        return answer.status, json.loads(answer.read()), cookie
