"""The stores of three real servers are set back while the brokers run: all serve again, and nothing is lost."""

import os
import shutil
import signal
from collections.abc import Callable

from fleximq.client.blocking import connect
from fleximq.client.errors import ClientError
from tests.cluster.nats.cluster_case import ClusterCase
from tests.nightly import nightly

#: Messages before the copy of the stores, and after it.
_MESSAGES = 1000
#: In the answer of ``refill`` when there is nothing to do.
_WHOLE = "no living node has more"


@nightly
class SetBackTests(ClusterCase):
    """The folders of all servers are copied, and put back later; a command refills the stream."""

    def publish(self, first: int) -> None:
        """Publish numbers, in any case once, with a client that connects again; return when all are confirmed."""
        for begin in range(first, first + _MESSAGES, 50):
            self.until(lambda: self._published(range(begin, begin + 50)))  # noqa: B023

    def _published(self, numbers: range) -> bool:
        try:
            with connect(self.url(next(iter(self.brokers))), timeout=20) as client:
                for number in numbers:
                    client.publish("t", number, message_id=str(number))
        except (ClientError, TimeoutError, OSError):
            self.command("refill", "0")  # the owner may have noticed the older stream only now
            return False
        return True

    def setBack(self, between: Callable[[str], object] = lambda owner: None) -> str:
        """Set the stores back; return the owner. ``between`` is called with it while the servers are away."""
        self.start("a", "b", "c")
        self.publish(0)
        self.until(self.isSettled)
        stores, kept = self.folder / "nats", self.folder / "kept"
        self.servers.end()
        shutil.copytree(stores, kept)
        self.serve()
        self.until(self.isSettled)
        self.publish(_MESSAGES)
        self.until(self.isSettled)
        owner = self.owner()
        self.servers.end()
        for index in range(3):
            shutil.rmtree(stores / f"s{index}")
            shutil.copytree(kept / f"s{index}", stores / f"s{index}")
        between(owner)
        self.serve()
        return owner

    def refill(self) -> None:
        """Give the command until all nodes serve, and none has more than the stream."""
        self.until(lambda: _WHOLE in self.command("refill", "0") and self.isSettled())

    def check(self) -> None:
        """Check that each node delivers all, once, in order, and that a new message is stored."""
        self.publish(2 * _MESSAGES)
        self.refill()
        for node in "abc":
            with connect(self.url(node), timeout=60) as client, client.subscribe("t", from_="first") as got:
                found = [message.value for _ in range(3 * _MESSAGES) if (message := got.next(timeout=30))]
            self.assertEqual(found, list(range(3 * _MESSAGES)), node)

    def test_owner(self) -> None:
        """While the owner publishes: its append can never succeed, so that it gives the shard up."""
        client = connect(self.url(self.setBack()))
        client.publish("other", 1)
        self.refill()
        client.hang_up()
        self.check()

    def test_follower(self) -> None:
        """While nothing is published, the followers have joined the stream long before."""
        self.setBack()
        self.refill()
        self.check()

    def test_takeover(self) -> None:
        """While the owner is away, so that another node claims the shard; the owner returns later."""
        owner = self.setBack(lambda owner: self.stop(signal.SIGTERM, owner))
        self.until(lambda: all(state in ("following", "silent") for state in self.nodes().values()) and self.nodes())
        self.command("refill", "0")
        self.start(owner)
        self.refill()
        self.check()

    def test_late(self) -> None:
        """A follower that was stopped meanwhile finds the older stream when it goes on."""
        stopped: list[str] = []

        def stop(owner: str) -> None:
            stopped.append(next(name for name in self.brokers if name != owner))
            os.kill(self.brokers[stopped[0]].pid, signal.SIGSTOP)

        self.setBack(stop)
        self.until(lambda: "silent" in self.nodes().values())
        self.command("refill", "0")
        os.kill(self.brokers[stopped[0]].pid, signal.SIGCONT)
        self.refill()
        self.check()
