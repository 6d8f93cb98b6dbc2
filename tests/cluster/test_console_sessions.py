"""Sessions of the console in a cluster: at the owner, whichever node the browser reaches."""

import json
import signal
import tempfile
import time
from http.client import HTTPConnection
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
        """Start them."""
        servers = Servers(self.mktemp())
        self.addCleanup(servers.end)
        servers.wait()
        passwords = secretFile(self, f"anna:{CHEAP.hash('right')}\n")
        self.brokers = []
        for name in "ab":
            folder = Path(tempfile.mkdtemp(dir=".")).absolute()
            words = ["--cluster", servers.urls[0], "--node", name, "--cluster-bytes", "64MiB", "--cluster-wait", "60"]
            words += ["--journal", f"{folder}/journal", "--auth", f"passwords:{passwords}"]
            broker = BrokerProcess("--listen", "tcp:0:interface=127.0.0.1", *words)
            broker.start()
            self.addCleanup(broker.stop)
            self.brokers.append(broker)

    def owner(self) -> BrokerProcess:
        """Return the broker that owns the journal, when one does."""
        limit = time.monotonic() + PATIENCE
        while time.monotonic() < limit:
            for each in self.brokers:
                if OWNS in each.output:
                    return each
            time.sleep(0.05)
        raise AssertionError([each.output for each in self.brokers])

    def test_takeover(self) -> None:
        """A session that began at a follower's port is the owner's; after a takeover the page signs in again."""
        owner = self.owner()
        (follower,) = (each for each in self.brokers if each is not owner)
        follower.waitFor(lambda: follower.listeners, "its listener")
        code, value, cookie = self.ask(follower, "POST", "/console/session", _ANNA)
        self.assertEqual((code, value["principal"]), (200, "anna"), value)
        session = {"Cookie": cookie}
        self.assertEqual(self.ask(follower, "GET", "/api/topics", None, session)[0], 200)
        change = {**session, "X-FlexiMQ-CSRF": value["csrf"]}
        code, ticket, _ = self.ask(follower, "POST", "/console/ticket", {}, change)
        self.assertEqual(code, 200)
        credentials = {"Authorization": f"Bearer {ticket['token']}"}
        self.assertEqual(self.ask(follower, "GET", "/api/topics", None, credentials)[0], 200)
        owner.stop(signal.SIGKILL)
        self.brokers.remove(owner)
        self.assertIs(self.owner(), follower)
        code, value, _ = self.ask(follower, "GET", "/api/topics", None, session)
        self.assertEqual((code, value), (401, {"error": "this session has ended, sign in again"}))
        code, value, _ = self.ask(follower, "GET", "/console/session", None, session)
        self.assertEqual((code, value["methods"]), (401, ["password"]))
        _, _, cookie = self.ask(follower, "POST", "/console/session", _ANNA, session)
        self.assertEqual(self.ask(follower, "GET", "/api/topics", None, {"Cookie": cookie})[0], 200)

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
