"""A real server dies that leads the stream, the keys and the servers: the owner stays the same."""

import random
import time
from collections import Counter
from threading import Event, Thread

from fleximq.client.backoff import Backoff
from fleximq.client.blocking import connect
from tests.cluster.nats.cluster_case import ClusterCase
from tests.nightly import nightly

#: How many deaths.
_DEATHS = 24
#: Seconds for which a server is away: NATS elects meanwhile.
_AWAY = 15, 25


@nightly
class LeaderDeathTests(ClusterCase):
    """Messages are published all the time."""

    def test_deaths(self) -> None:
        """Of 24 deaths none changes the owner; all that was confirmed is there once, in order."""
        self.start("a", "b", "c")
        owner = self.owner()
        self.until(self.isSettled)
        urls = ",".join(self.url(name) for name in "abc")
        url, ending, longest = "tcp://" + urls.replace("tcp://", ""), Event(), [0.0]
        published: list[int] = []

        def publish() -> None:
            with connect(url, reconnect=Backoff(first=0.05, most=1.0), timeout=120) as client:
                while not ending.is_set():
                    began = time.monotonic()
                    client.publish("t", len(published), message_id=str(len(published)))
                    client.flush(300)
                    published.append(len(published))
                    longest[0] = max(longest[0], time.monotonic() - began)

        thread = Thread(target=publish)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(ending.set)
        chance, deaths = random.Random(1), Counter[str]()
        while deaths.total() < _DEATHS:
            leader = self.metaLeader()
            self.until(lambda: self.leads(leader))  # noqa: B023
            if self.metaLeader() != leader:
                continue
            deaths[leader] += 1
            index = int(leader[1:])
            self.servers.kill(index)
            time.sleep(chance.uniform(*_AWAY))
            self.servers.restart(index)
            confirmed = len(published)
            self.until(lambda: len(published) > confirmed)  # noqa: B023
        ending.set()
        thread.join()
        owned = sum(broker.output.count("this node owns shard 0") for broker in self.brokers.values())
        print(
            f"{dict(deaths)}: {owned - 1} changes of the owner; {len(published)} confirmed, longest {longest[0]:.1f} s"
        )
        self.assertEqual((owned, self.owner()), (1, owner))
        with connect(self.url(owner)) as client, client.subscribe("t", from_="first") as got:
            found = [message.value for _ in published if (message := got.next(timeout=30))]
        self.assertEqual(found, published)
