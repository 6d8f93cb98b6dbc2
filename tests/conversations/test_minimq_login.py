"""MiniMQ's Python client where credentials are required: by a listener's principal, or by a client certificate."""

from contextlib import ExitStack
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.errors import ConsumeFailed, JoinRefused, ProduceFailed
from fleximq.client.minimq.blocking import connect
from fleximq.client.settings import Tls
from tests.broker_process import BrokerProcess
from tests.certificates import makeCertificate

SETTINGS = """\
auth = ["certificate:"]

[principals.workers]
consume = ["jobs"]
publish = ["done"]

[principals.alice]
publish = ["jobs"]
"""


class LoginTests(SynchronousTestCase):
    """A broker with a listener for workers, one for all dialects, and one inside TLS."""

    def setUp(self) -> None:
        """Start the broker."""
        opened = ExitStack()
        self.addCleanup(opened.close)
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        server = makeCertificate(folder)
        alice = makeCertificate(folder, "alice", server)
        (folder / "fleximq.toml").write_text(SETTINGS)
        tls = (
            f"minimq+fleximqtls:cert={server.certificate}:key={server.key}:clientCA={server.certificate}"
            ":inner=tcp\\:0\\:interface=127.0.0.1"
        )
        listeners = (
            "minimq+tcp:0:principal=workers",
            "tcp:0:interface=127.0.0.1",
            tls,
            "minimq+unix:jobs:principal=workers",
        )
        words = [word for each in listeners for word in ("--listen", each)]
        self.broker = opened.enter_context(BrokerProcess("--config", str(folder / "fleximq.toml"), *words))
        self.authority = str(server.certificate)
        self.tls = Tls(self.authority, str(alice.certificate), str(alice.key))

    def url(self, number: int, scheme: str = "tcp", host: str = "127.0.0.1") -> str:
        """Return the URL of a listener."""
        return f"{scheme}://{host}:{self.broker.port(number)}"

    def test_workersAndAliceHaveTheirOwnRights(self) -> None:
        """Both have their own rights: alice makes the jobs, the workers take them, by TCP and by a UNIX socket."""
        with connect(self.url(2, "tls", "localhost"), tls=self.tls) as alice:
            alice.produce_many("jobs", ["sweep", "mend"])
            self.assertEqual(self.assertRaises(ConsumeFailed, alice.consume, "jobs").status, 403)
        for url, job in ((self.url(0), "sweep"), (f"ipc://{self.broker.folder / 'jobs'}", "mend")):
            with connect(url) as worker:
                found = worker.consume("jobs")
                assert found is not None
                self.assertEqual(found.content, job)
                worker.ack(found)
                worker.produce("done", job)
                self.assertEqual(self.assertRaises(ProduceFailed, worker.produce, "jobs", "x").status, 403)

    def test_onAnotherListenerErrorSaysWhatMiniMQHasInsteadOfCredentials(self) -> None:
        """On another listener the error says what MiniMQ has instead of credentials."""
        refused = self.assertRaises(JoinRefused, connect, self.url(1))
        self.assertEqual(
            str(refused),
            "401 unauthorized: credentials are required here; MiniMQ has no credentials but a client certificate, or a "
            "listener of the broker with principal=NAME",
        )
