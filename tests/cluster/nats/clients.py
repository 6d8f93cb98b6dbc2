"""Clients of every form with the addresses of three real brokers, whose owners are killed and stopped.

``python -m tests.cluster.nats.clients SECONDS [SEED] [ingest]`` prints what happened. All that was confirmed must be in
the journal, with message ids and in transactions once, and subscribers that resume must get it. With ``ingest`` two
lakes are filled meanwhile, from the three folders and from the three brokers; both must have each record once.
"""

import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgpack

from fleximq.client.backoff import Backoff
from fleximq.client.errors import Answered, BufferFull, ConnectionLost
from fleximq.reader import read
from tests.client.forms import FORMS
from tests.cluster.nats.servers import Servers, freePorts
from tests.pipeline.installed import missing as withoutSpark

if not withoutSpark:
    from fleximq.pipeline.broker_link import BrokerAddress, BrokerLink
    from fleximq.pipeline.errors import PipelineError

PATIENCE = 300.0
#: Messages of one batch, which a client publishes again until it is confirmed.
_BATCH = 20
#: The errors of a batch that may be published again.
_AGAIN = (ConnectionLost, TimeoutError, BufferFull, Answered)


class Broker:
    """One node, which is started again when its process has ended."""

    def __init__(self, folder: Path, name: str, port: int, urls: list[str]) -> None:
        self.journal, self._log = folder / name, folder / f"{name}.log"
        words = [f"--cluster={url}" for url in urls]
        words += ["--node", name, "--journal", str(self.journal), "--durable", "#", "--minimq-idempotent"]
        words += ["--allow-anonymous"]  # clients that a standby forwards are not local
        words += ["--listen", f"tcp:{port}:interface=127.0.0.1", "--journal-segment", "4MiB"]
        self._command = [sys.executable, "-m", "fleximq", "broker", *words]
        self._ending = threading.Event()
        self.starts = 0
        self.process = self._started()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _started(self) -> "subprocess.Popen[bytes]":
        self.starts += 1
        with self._log.open("ab") as log:
            return subprocess.Popen(self._command, stdout=log, stderr=log)

    def _run(self) -> None:
        while self.process.wait() is not None and not self._ending.wait(0.5):
            self.process = self._started()

    @property
    def term(self) -> int:
        """The term in which it owned the journal for the last time."""
        found = [line for line in self._log.read_text().splitlines() if "this node owns shard" in line]
        return int(found[-1].rpartition(" ")[2]) if found else 0

    def end(self) -> None:
        """End it."""
        self._ending.set()
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        self._thread.join(PATIENCE)


class Publisher(threading.Thread):
    """One client that publishes batches until ``ending`` is set; ``confirmed`` is the number of its first messages that
    were confirmed.
    """

    def __init__(self, topic: str, client: Any, ending: threading.Event) -> None:
        super().__init__(daemon=True)
        self.topic = topic
        self.client = client
        self.confirmed = self.repeated = 0
        self.longest = 0.0
        self.errors: set[str] = set()
        self._ending = ending

    def run(self) -> None:
        while not self._ending.is_set():
            began = time.monotonic()
            while not self._publish(range(self.confirmed, self.confirmed + _BATCH)):
                self.repeated += 1
                time.sleep(0.05)
            self.confirmed += _BATCH
            self.longest = max(self.longest, time.monotonic() - began)

    def _publish(self, numbers: range) -> bool:
        client, topic = self.client, self.topic
        try:
            for number in numbers:
                id = f"{topic}-{number}"
                if topic.startswith("minimq"):
                    client.produce(topic, id, id)
                elif topic.startswith("blipmq"):
                    client.publish(topic, id)
                else:
                    client.publish(topic, id, message_id=id)
            if not topic.startswith("minimq"):
                client.flush(PATIENCE)
        except _AGAIN:
            return False
        return True


class SinkPublisher(Publisher):
    """Publishes each batch in a transaction, as a task and the driver of Spark's sink do."""

    def _publish(self, numbers: range) -> bool:
        query, batch = "campaign", numbers.start // _BATCH
        records = [{"topic": self.topic, "value": f"{self.topic}-{number}"} for number in numbers]
        try:
            with BrokerLink(self.client) as task, BrokerLink(self.client) as driver:
                staged = {"query": query, "batch": batch, "part": f"0-{self.repeated}", "records": records}
                tokens = [task.ask("/sink/stage", staged)["token"]]
                driver.ask("/sink/commit", {"query": query, "batch": batch, "tokens": tokens})
        except PipelineError as error:
            self.errors.add(str(error))
            return False
        return True


class Subscriber(threading.Thread):
    """Takes the messages of a topic, from a subscription that resumes, into ``got``."""

    def __init__(self, subscription: Any) -> None:
        super().__init__(daemon=True)
        self._subscription = subscription
        self.got: list[tuple[int, str]] = []
        self.ending = False

    def run(self) -> None:
        while not self.ending:
            delivery = self._subscription.next(0.5)
            if delivery is not None:
                self.got.append((delivery.offset, delivery.value))


class Clients:
    """The campaign in a folder."""

    def __init__(self, folder: Path, servers: Servers, seed: int, held: ExitStack) -> None:
        self._random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self._ending = threading.Event()
        ports = freePorts(3)
        self.url = "tcp://" + ",".join(f"127.0.0.1:{port}" for port in ports)
        self.brokers = []
        for name, port in zip("abc", ports, strict=True):
            self.brokers.append(Broker(folder, name, port, servers.urls))
            held.callback(self.brokers[-1].end)
        self.until(lambda: any(each.term for each in self.brokers), "an owner")
        self.publishers: list[Publisher] = []
        self.subscribers: dict[str, Subscriber] = {}
        forms: list[tuple[str, Any]] = [(f"fleximq-{form.name}", form()) for form in FORMS]
        for dialect in ("blipmq", "minimq"):
            forms += [(f"{dialect}-{form.name}", form(dialect)) for form in FORMS]
        more = {"reconnect": Backoff(first=0.05, most=1.0), "keep_alive": 1.0, "timeout": 20.0}
        for topic, form in forms:
            held.callback(form.end)
            self.until(lambda: self._connect(topic, form, more), f"a client {topic}")  # noqa: B023

        if not withoutSpark:
            self.publishers.append(SinkPublisher("sink", BrokerAddress(self.url), self._ending))

    def _connect(self, topic: str, form: Any, more: dict[str, Any]) -> bool:
        try:
            client = form.connect(self.url, **more)
        except _AGAIN:
            return False
        self.publishers.append(Publisher(topic, client, self._ending))
        if topic.startswith("fleximq"):
            self.subscribers[topic] = Subscriber(form.connect(self.url, **more).subscribe(topic, resume=True))
        return True

    def until(self, holds: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
        """Wait until something holds."""
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, f"{what} did not come"
            time.sleep(0.1)

    def run(self, seconds: float) -> None:
        """Publish for some time, while owners are killed and stopped."""
        for thread in (*self.publishers, *self.subscribers.values()):
            thread.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(self._random.uniform(4, 10))
            owner = max(self.brokers, key=lambda each: each.term)
            if self._random.random() < 0.5:
                self.counts["killed"] += 1
                owner.process.kill()
            else:
                self.counts["stopped"] += 1
                owner.process.send_signal(signal.SIGSTOP)
                time.sleep(self._random.uniform(6, 15))
                owner.process.send_signal(signal.SIGCONT)
        self._ending.set()
        for each in self.publishers:
            each.join(PATIENCE)
            assert not each.is_alive(), f"{each.topic} does not end"

    def check(self) -> list[str]:
        """Return what is wrong with the journal and the subscribers."""
        faults: list[str] = []
        wanted = {each.topic: each.confirmed for each in self.publishers}
        self.until(
            lambda: all(len(each.got) >= wanted[topic] for topic, each in self.subscribers.items()), "a delivery"
        )
        for subscriber in self.subscribers.values():
            subscriber.ending = True
            subscriber.join(PATIENCE)
        rows = self.rows()
        for publisher in self.publishers:
            topic = publisher.topic
            found = [value for _, name, value in rows if name == topic]
            lost = {f"{topic}-{number}" for number in range(publisher.confirmed)} - set(found)
            twice = len(found) - len(set(found))
            print(f"{topic:18} {publisher.confirmed:7} confirmed, {publisher.repeated:3} batches repeated, "
                  f"{len(lost)} lost, {twice} twice, longest {publisher.longest:.1f} s")  # fmt: skip
            for error in publisher.errors:
                print("   ", error)
            if lost or (twice and not topic.startswith("blipmq")):
                faults.append(f"{topic}: {len(lost)} lost, {twice} twice")
        for topic, subscriber in self.subscribers.items():
            kept = [(offset, value) for offset, name, value in rows if name == topic]
            if subscriber.got != kept[len(kept) - len(subscriber.got) :] or len(subscriber.got) != len(kept):
                faults.append(f"{topic}: {len(subscriber.got)} deliveries of {len(kept)} records")
        return faults

    def rows(self) -> list[tuple[int, str, str]]:
        """Return offset, topic and value of all records of the journal."""
        table = read([each.journal for each in self.brokers], columns=["offset", "topic", "value"]).read_all()
        found = []
        for row in table.to_pylist():
            isPacked = row["topic"].startswith(("fleximq", "sink"))
            value = msgpack.unpackb(row["value"]) if isPacked else row["value"]
            found.append((row["offset"], row["topic"], value if isinstance(value, str) else value.decode()))
        return found

    def lakes(self, folder: Path) -> dict[Path, tuple[str, ...]]:
        """Return the source of each lake."""
        folders = tuple(word for each in self.brokers for word in ("--journal", str(each.journal)))
        return {folder / "from folders": folders, folder / "from brokers": ("--url", self.url)}


def main(arguments: list[str]) -> None:
    """Run one campaign; raises SystemExit with what is wrong."""
    seconds, seed = float(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 0
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory()))
        servers = Servers(str(folder / "servers"), 3)
        held.callback(servers.end)
        servers.wait()
        campaign = Clients(folder, servers, seed, held)
        faults = _ingesting(campaign, folder, seconds) if "ingest" in arguments else _running(campaign, seconds)
        print(dict(campaign.counts), "starts", [each.starts for each in campaign.brokers])
    if faults:
        raise SystemExit("\n".join(faults))


def _running(campaign: Clients, seconds: float) -> list[str]:
    campaign.run(seconds)
    return campaign.check()


def _ingesting(campaign: Clients, folder: Path, seconds: float) -> list[str]:
    import pyarrow.dataset as ds

    from tests.pipeline import end_to_end
    from tests.pipeline.end_to_end import Ingest

    end_to_end.PATIENCE = 500.0  # two drivers, and all the rest, on one machine
    lakes = campaign.lakes(folder)
    for lake in lakes:
        lake.mkdir()
    running = [Ingest(lake, *source, "--trigger", "1s") for lake, source in lakes.items()]
    try:
        for each in running:
            campaign.until(each.isIngesting, "an ingest", end_to_end.PATIENCE)
        faults = _running(campaign, seconds)
        for each in running:
            each.stop()
        kept = Counter(offset for offset, _, _ in campaign.rows())
        for lake, source in lakes.items():
            # Another node's folder goes on with the checkpoint.
            Ingest(lake, *source[-2:], "--once").wait()
            rows = ds.dataset(str(lake / "lake" / "messages"), format="parquet").to_table(columns=["offset"])
            found = Counter(rows["offset"].to_pylist())
            print(f"the lake {lake.name}: {found.total()} rows of {kept.total()} records")
            if found != kept:
                faults.append(f"the lake {lake.name}: {(kept - found).total()} lost, {(found - kept).total()} twice")
        return faults
    finally:
        for each in running:
            each.kill("all")


if __name__ == "__main__":
    main(sys.argv[1:])
