"""Three hosts in network namespaces, with faults of many kinds, while clients publish and take what was published, and
while an ``ingest`` follows the brokers.

``python -m tests.cluster.nats.campaign SECONDS [SEED] [KIND ...]`` prints what happened, as JSON, and ends with 1 if a
promise was broken; by default all kinds of :class:`Faults` take turns. It needs the rights to
make namespaces, and leaves nothing outside of them; the folder of a failed run stays.

Clients reach every broker at any time: an owner that is cut off from the others can still be asked.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgpack

from fleximq import reader
from fleximq.client.backoff import Backoff
from fleximq.client.blipmq.blocking import connect as connectBlip
from fleximq.client.blocking import connect
from tests.cluster.nats.broker_faults import BrokerFaults
from tests.cluster.nats.clients import PATIENCE, Publisher, SinkPublisher, Subscriber
from tests.cluster.nats.faults import KINDS
from tests.cluster.nats.hosts import MESH_PORT, PORT
from tests.cluster.nats.mini_clients import MiniClients
from tests.cluster.nats.namespaces import FURTHER, HOSTS
from tests.cluster.nats.network_faults import NetworkFaults
from tests.cluster.nats.operator_faults import OperatorFaults
from tests.cluster.nats.server_faults import ServerFaults
from tests.pipeline.installed import missing as withoutSpark

if not withoutSpark:
    from fleximq.pipeline.broker_link import BrokerAddress
    from tests.pipeline.end_to_end import Ingest

#: Seconds until all publishers have confirmations again after a fault.
_AGAIN = 120.0


class Faults(BrokerFaults, ServerFaults, NetworkFaults, OperatorFaults):
    """The hosts, and all that happens to them."""


class Campaign:
    """``counts`` has the faults, ``outages`` by fault the longest times without a confirmation."""

    def __init__(self, folder: Path, seed: int, held: ExitStack) -> None:
        self.folder = folder
        self.hosts = Faults(folder, seed)
        held.callback(self.hosts.end)
        self.counts: Counter[str] = Counter()
        self.outages: dict[str, list[float]] = {}
        self._ending = threading.Event()
        hosts = self.hosts
        self.mini = MiniClients([(hosts.network.addresses["b" + host], PORT) for host in HOSTS], seed)
        held.callback(self.mini.stop, 0)
        self.confirms(self.mini.confirmed.__len__, "a message of MiniMQ")
        more: dict[str, Any] = {"reconnect": Backoff(first=0.05, most=1.0), "keep_alive": 1.0, "timeout": 20.0}
        self.subscriber = Subscriber(
            connect(hosts.url(MESH_PORT, "c", "a", "b"), **more).subscribe("fleximq", resume=True)
        )  # fmt: skip
        self.publishers = [
            Publisher("fleximq", connect(hosts.url(MESH_PORT), **more), self._ending),
            Publisher("blipmq", connectBlip(hosts.url(PORT, "b", "c", "a"), **more), self._ending),
        ]
        if not withoutSpark:
            self.publishers.append(SinkPublisher("sink", BrokerAddress(hosts.url(PORT)), self._ending))
            (folder / "lake").mkdir()
            self._ingest = self._started("--trigger", "5s")
            held.callback(lambda: self._ingest.kill("all"))
            self.kinds = [*KINDS, "killIngest", "endIngest"]
        else:
            self.kinds = KINDS

    def _started(self, *words: str) -> "Ingest":
        return Ingest(self.folder / "lake", "--url", self.hosts.url(PORT), *words)

    def run(self, seconds: float, chosen: list[str]) -> None:
        """Disturb for some time."""
        for thread in (*self.publishers, self.subscriber):
            thread.start()
        self.flows("the start")
        self.mini.gaps.clear()
        end = time.monotonic() + seconds
        kinds: list[str] = []
        while time.monotonic() < end and not self.hosts.broken:
            if not kinds:
                kinds = list(chosen or self.kinds)
                self.hosts.random.shuffle(kinds)
            kind = kinds.pop()
            self.counts[kind] += 1
            gaps, began = len(self.mini.gaps), time.monotonic()
            print(f"{time.strftime('%H:%M:%S')} {kind}", end=" ", file=sys.stderr, flush=True)
            getattr(self if hasattr(self, kind) else self.hosts, kind)()
            self.hosts.heal()
            self.flows(kind)
            longest = max(self.mini.gaps[gaps:], default=0.0)
            print(f"{time.monotonic() - began:.0f} s, {longest:.1f} s without service, term {self.hosts.term}",
                  file=sys.stderr, flush=True)  # fmt: skip
            self.outages.setdefault(kind, []).append(longest)
            time.sleep(self.hosts.random.uniform(1, 4))

    def flows(self, after: str) -> None:
        """Wait until each publisher has a confirmation.

        :raises AssertionError: one has none, in this time.
        """
        self.confirms(self.mini.confirmed.__len__, f"a message of MiniMQ after {after}")
        for each in self.publishers:
            self.confirms(lambda: each.confirmed, f"a message of {each.topic} after {after}")  # noqa: B023

    def confirms(self, count: Any, what: str) -> None:
        """Wait until a count grows.

        :raises AssertionError: it does not.
        """
        before = count()
        if not self.hosts.wait(lambda: count() > before, _AGAIN):
            raise AssertionError(f"{what} was not confirmed within {_AGAIN:.0f} s")

    # -- the ingest --------------------------------------------------------------------------------

    def killIngest(self) -> None:
        """The ingest dies, with all that belongs to it, and is started again."""
        self._ingest.kill("all")
        self._ingest = self._started("--trigger", "5s")
        self.hosts.wait(self._ingest.isIngesting, PATIENCE)

    def endIngest(self) -> None:
        """The ingest ends in order, while the owner dies, and is started again."""
        self.hosts.wait(self._ingest.isIngesting, PATIENCE)
        self.hosts.brokers[self.hosts.owner].send(signal.SIGKILL)
        self._ingest.stop()
        self._ingest = self._started("--trigger", "5s")
        self.hosts.wait(self._ingest.isIngesting, PATIENCE)

    def _lake(self) -> list[str]:
        import pyarrow.dataset as ds

        if not self.hosts.wait(self._ingest.isIngesting, PATIENCE):
            return ["the ingest did not start"]
        self._ingest.stop()
        # The folder of a node goes on with the checkpoint.
        self._ingest = Ingest(self.folder / "lake", "--journal", str(self.hosts.journal("c")), "--once")
        self._ingest.wait(3 * PATIENCE)
        table = ds.dataset(str(self.folder / "lake" / "lake" / "messages"), format="parquet")
        found = Counter(table.to_table(columns=["offset"])["offset"].to_pylist())
        kept = Counter(self._table("c")["offset"].to_pylist())
        lost, twice = (kept - found).total(), (found - kept).total()
        self.hosts.notes["rows of the lake"] = found.total()
        return [f"the lake: {lost} lost, {twice} twice"] if lost or twice else []

    # -- checking ----------------------------------------------------------------------------------

    def finish(self) -> list[str]:
        """Stop everything in order, and return the broken promises."""
        self.hosts.heal()
        self._ending.set()
        for each in self.publishers:
            each.join(PATIENCE)
        self.mini.stop(120)
        broken = self.hosts.broken
        broken += [f"{each.topic} does not end" for each in self.publishers if each.is_alive()]
        wanted = self.publishers[0].confirmed
        if not self.hosts.wait(lambda: len(self.subscriber.got) >= wanted, 120):
            broken.append(f"the subscriber got {len(self.subscriber.got)} of {wanted} messages")
        self.subscriber.ending = True
        journals = [self.hosts.journal(host) for host in HOSTS]
        if not self.hosts.wait(lambda: len({reader.bounds(each).next for each in journals}) == 1, 300):
            broken.append("the copies do not become equal")
        time.sleep(2)
        if not withoutSpark:
            broken += self._lake()
        self.hosts.end()
        return broken + self._check()

    def _table(self, host: str) -> Any:
        columns = ["offset", "topic", "value", "timestamp"]
        return reader.read(self.hosts.journal(host), columns=columns).read_all().combine_chunks()

    def _check(self) -> list[str]:
        broken = []
        first, *others = map(self._table, HOSTS)
        if not all(first.equals(other) for other in others):
            broken.append(f"the copies differ: {[len(each) for each in (first, *others)]} records")
        offsets, topics, values, times = (first[name].to_pylist() for name in first.column_names)
        if offsets != sorted(set(offsets)):
            broken.append("an offset goes back, or is there twice")
        stored: dict[str, list[str]] = {}
        last = None
        for topic, value, at in zip(topics, values, times, strict=True):
            stored.setdefault("MiniMQ" if topic.startswith("q") else topic, []).append(_text(topic, bytes(value)))
            if topic != "sink":  # its times are those at which it was staged
                if last is not None and at < last:
                    broken.append(f"times go back, from {last} to {at}")
                last = at
        wanted = {each.topic: {f"{each.topic}-{n}" for n in range(each.confirmed)} for each in self.publishers}
        for topic, ids in (wanted | {"MiniMQ": set(self.mini.confirmed)}).items():
            found = Counter(stored.get(topic, ()))
            lost = ids - found.keys()
            twice = [] if topic == "blipmq" else [value for value, number in found.items() if number > 1]
            if lost or twice:
                broken.append(f"{topic}: {len(lost)} lost {sorted(lost)[:5]}, {len(twice)} twice {twice[:5]}")
        if missed := set(self.mini.confirmed) - self.mini.taken.keys():
            broken.append(f"{len(missed)} confirmed messages were never delivered: {sorted(missed)[:5]}")
        got = [value for _, value in self.subscriber.got]
        if got != stored.get("fleximq", []):
            broken.append(f"the subscriber got {len(got)} messages, or in another order")
        return broken

    def report(self) -> dict[str, object]:
        """Return what happened."""
        longest = sorted(each for outages in self.outages.values() for each in outages)
        return {
            "confirmed": {each.topic: each.confirmed for each in self.publishers}
            | {"MiniMQ": len(self.mini.confirmed)},
            "repeated": {each.topic: each.repeated for each in self.publishers},
            "deliveries": self.mini.taken.total(),
            "kinds": len(self.counts),
            "number": self.counts.total(),
            "faults": dict(self.counts),
            "outages": {name: sorted(outages) for name, outages in self.outages.items()},
            "p50": longest[len(longest) // 2] if longest else 0,
            "longest": longest[-1] if longest else 0,
            "notes": dict(self.hosts.notes),
            "ends": {host: dict(process.ends) for host, process in self.hosts.brokers.items()},
        }


def _text(topic: str, value: bytes) -> str:
    return str(msgpack.unpackb(value)) if topic in ("fleximq", "sink") else value.decode()


def _tidy(folder: Path, isKept: bool) -> None:
    """Copy the journals from their disks, or remove all of the folder."""
    for host in (*HOSTS, FURTHER):
        if isKept:
            shutil.copytree(folder / host, folder / f"disk-{host}")
        subprocess.run(["umount", "-l", str(folder / host)])
    if not isKept:
        shutil.rmtree(folder)


def main(arguments: list[str]) -> int:
    """Run one campaign, in namespaces of its own."""
    if "inside" not in arguments:
        words = [sys.executable, "-m", __spec__.name, *arguments, "inside"]
        spaces = ["unshare", "--net", "--mount-proc", "--pid", "--fork", "--kill-child"]
        os.execvpe(spaces[0], [*spaces, *words], {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"})
    arguments.remove("inside")
    seconds, seed, *chosen = (*arguments, "0") if len(arguments) < 2 else arguments
    folder = Path(tempfile.mkdtemp(prefix="campaign-"))
    print(f"the logs are in {folder}", file=sys.stderr)
    broken: list[str] = []
    with ExitStack() as held:
        campaign = Campaign(folder, int(seed), held)
        try:
            campaign.run(float(seconds), chosen)
        except AssertionError as error:
            broken.append(str(error))
        try:
            broken += campaign.finish()
        except AssertionError as error:
            broken.append(str(error))
    print(json.dumps(campaign.report() | {"broken": broken}))
    _tidy(folder, bool(broken))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
