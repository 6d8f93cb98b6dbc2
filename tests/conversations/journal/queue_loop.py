"""Kills a broker at random moments while producers enqueue and workers settle jobs, and compares what was confirmed.

::

    python -m tests.conversations.journal.queue_loop --kills 100

Four producers enqueue to a queue with priorities and leases, to a queue ordered by key, and for a later time; each
waits for its PONG; a recurring schedule publishes each second. Eight workers acknowledge, retry, reject, extend leases,
or close their connection with unsettled deliveries. At the end all queues are emptied and the scheduled messages are
read from the journal. Then, of all that was confirmed:

- no message is lost: each was acknowledged, or is a dead letter that a worker made;
- none was delivered after its confirmed acknowledgement;
- each schedule was published once, and not early, and so was each due time of the recurring one;
- while a message of a key was not settled, no later one of that key was delivered.
"""

import argparse
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgpack

from tests.broker_process import BrokerProcess
from tests.conversations.clients import Ended, FlexiClient, Stream
from tests.wire.flexi_frames import Heard

#: The queues: with priorities, ordered by key, and that of the scheduled messages.
JOBS, ORDERED, LATER = "jobs", "ordered", "later"
#: The topic of the recurring schedule, and its interval in milliseconds.
TICKS, EVERY = "ticks", 1000
#: Seconds of the lease of a job with a priority.
LEASE = 60
PRODUCERS, WORKERS = 4, 8
#: Most messages between two confirmations, most unsettled deliveries of a worker.
BURST, PREFETCH = 20, 10
#: Jobs that are confirmed until a broker is killed, at least and at most.
LIVES = 1, 200
#: Most milliseconds for which a message is scheduled, and for which a retry is delayed.
DELAY, RETRY = 1500, 100
#: Seconds that emptying the queues may take after the last delivery; jobs of one key arrive one by one.
PATIENCE = 60.0


class Jobs:
    """What all producers and workers know. A job's name is ``<queue> <key> <number>``; numbers of a key ascend.

    ``due`` has the earliest time of each scheduled job in milliseconds since 1970. ``settling`` are jobs for which an
    acknowledgement or rejection was sent, which a broker may have stored before it was killed; ``finished`` are those
    for which it was confirmed too. ``buried`` are those whose rejection was confirmed, ``letters`` the dead letters.
    """

    def __init__(self) -> None:
        self.confirmed: set[str] = set()
        self.due: dict[str, int] = {}
        self.settling: set[str] = set()
        self.finished: set[str] = set()
        self.rejected: set[str] = set()
        self.buried: set[str] = set()
        self.letters: set[str] = set()
        self.deliveries = 0
        self.extended = 0
        self.ticks = 0
        self.faults: list[str] = []
        self._numbers: Counter[str] = Counter()
        self._ordered: dict[str, list[str]] = {}
        self._lock = threading.Lock()

    def new(self, queue: str, key: str) -> str:
        """Return the name of a new job."""
        with self._lock:
            self._numbers[f"{queue} {key}"] += 1
            return f"{queue} {key} {self._numbers[f'{queue} {key}']}"

    def delivered(self, name: str) -> None:
        """Check a delivery against all that is known before it."""
        queue, key, number = name.split()
        with self._lock:
            self.deliveries += 1
            if name in self.finished:
                self.faults.append(f"{name} was delivered after its confirmed acknowledgement")
            if queue == ORDERED:
                earlier = (f"{queue} {key} {each}" for each in range(1, int(number)))
                missing = [each for each in earlier if each in self.confirmed and each not in self.settling]
                if missing:
                    self.faults.append(f"{name} was delivered before {missing[0]} was settled")

    def fault(self, sentence: str) -> None:
        """Remember that something is wrong."""
        with self._lock:
            self.faults.append(sentence)


def settle(client: FlexiClient, queue: str, **settled: Any) -> None:
    """Settle deliveries; a later barrier waits until that is on disk."""
    client.tell("NOTIF", {"routing": [{"client_id": 1, "path": "/queue/settle"}]}, {"queue": queue, **settled})


def produce(client: FlexiClient, jobs: Jobs, producer: int) -> None:
    """Enqueue a burst of jobs and wait until they are on disk."""
    sent = []
    for _ in range(random.randint(1, BURST)):
        queue = random.choice((JOBS, ORDERED, LATER))
        key = f"p{producer}-{random.randint(1, 3)}"
        name = jobs.new(queue, key)
        header: dict[str, Any] = {"topic": queue, "queue": True, "key": key}
        if queue == JOBS:
            header["priority"] = random.randint(0, 9)
        elif queue == LATER:
            header["deliver_in"] = random.randint(1, DELAY)
            jobs.due[name] = int(time.time() * 1000) + header["deliver_in"]
        client.send("PUB", header, msgpack.packb(name))
        sent.append(name)
    errors = client.barrier()
    if errors:
        jobs.fault(f"a producer was answered {errors[0]}")
    jobs.confirmed.update(sent)


def work(client: FlexiClient, jobs: Jobs, queue: str, heard: list[Heard]) -> None:
    """Settle deliveries at random, and wait until that is on disk; deliveries that arrive meanwhile are next."""
    while True:
        deliveries = [each for each in heard if each.kind == "PUB"] or [client.hear()]
        for each in heard:
            if each.kind not in ("PUB", "PONG"):
                jobs.fault(f"a worker was answered {each}")
        acks, retries, rejects, done = [], [], [], []
        buried: list[str] = []
        extends: list[list[int]] = []
        for each in deliveries:
            if each.kind != "PUB":
                jobs.fault(f"a worker was answered {each}")
                continue
            name, tag = msgpack.unpackb(each.payload), each.header["delivery"]["tag"]
            jobs.delivered(name)
            act = random.random()
            if act < 0.2:
                extends.append([tag, LEASE * 1000])
            if act < 0.8:
                acks.append(tag)
            elif act < 0.95:
                retries.append([tag, random.randint(0, RETRY)])
                continue
            else:
                rejects.append([tag, f"no use for {name}"])
                buried.append(name)
            done.append(name)
        if random.random() < 0.05:
            return  # with unsettled deliveries
        jobs.settling.update(done)
        jobs.rejected.update(buried)
        if extends:
            settle(client, queue, extend=extends)
            jobs.extended += len(extends)
        settle(client, queue, ack=acks, retry=retries, reject=rejects)
        heard = client.barrier()
        jobs.finished.update(done)
        jobs.buried.update(buried)


def begin(
    works: Sequence[tuple[Callable[[int], object], int]],
    fault: Callable[[str], None],
    goesOn: Callable[[], bool] | None = None,
) -> list[threading.Thread]:
    """Start a thread for each client, a function and its argument; a client that is cut off begins again while
    ``goesOn``.
    """

    def until(act: Callable[[int], object], number: int) -> None:
        try:
            while True:
                try:
                    act(number)
                    return
                except (Ended, OSError):  # the broker was killed
                    time.sleep(0.05)
                if goesOn is None or not goesOn():
                    return
        except Exception as error:
            fault(f"{act} {number}: {error!r}")

    threads = [threading.Thread(target=until, args=each, daemon=True) for each in works]
    for thread in threads:
        thread.start()
    return threads


#: The options of a broker.
OPTIONS = (*("--durable", LATER, "--durable", TICKS, "--journal-segment", "1MiB", "--max-deliveries", "1000"),)


class QueueLoop:
    """A journal, the brokers that open it one after the other, and what their clients know.

    :param folder: an empty folder for the journal.
    """

    def __init__(self, folder: str) -> None:
        self.jobs = Jobs()
        self._arguments = (*OPTIONS, "--journal", folder)

    def run(self, kills: int) -> None:
        """Kill so many times, then empty the queues and check; faults are in ``jobs.faults``."""
        for number in range(kills):
            with BrokerProcess(*self._arguments) as broker:
                if not number:
                    self.define(broker.address)
                threads = self.start([broker.address])
                self.waitForJobs()
                broker.stop(signal.SIGKILL)
                self.join(threads)
        with BrokerProcess(*self._arguments) as broker:
            self.check(broker.address)

    def waitForJobs(self) -> None:
        """Wait until a random number of further jobs is confirmed."""
        wanted = len(self.jobs.confirmed) + random.randint(*LIVES)
        deadline = time.monotonic() + 300
        while len(self.jobs.confirmed) < wanted and time.monotonic() < deadline:
            time.sleep(random.uniform(0, 0.02))

    def join(self, threads: list[threading.Thread]) -> None:
        """Wait for the end of the clients whose broker was killed."""
        for thread in threads:
            thread.join(300)
            if thread.is_alive():
                self.jobs.fault("a client did not notice that the broker is gone")

    def check(self, address: tuple[str, int]) -> None:
        """Empty the queues, and compare all with what was confirmed."""
        self._empty(address)
        self._checkSchedules(address)
        self._checkRecurring(address)

    def define(self, address: tuple[str, int]) -> None:
        with FlexiClient(Stream(address)) as client:
            client.join()
            client.ask("/queue/define", {"queue": ORDERED, "ordered_by": "key"})
            client.ask("/queue/define", {"queue": JOBS, "lease": LEASE})
            client.ask("/schedule/repeat", {"name": TICKS, "topic": TICKS, "every": EVERY, "catch_up": "all"})

    def start(
        self, addresses: Sequence[tuple[str, int]], goesOn: Callable[[], bool] | None = None
    ) -> list[threading.Thread]:
        """Start all clients, in turn at these addresses; one that is cut off connects again while ``goesOn``."""

        def producing(number: int) -> None:
            with FlexiClient(Stream(addresses[number % len(addresses)])) as client:
                client.join()
                while goesOn is None or goesOn():
                    produce(client, self.jobs, number)

        def working(number: int) -> None:
            queue = (JOBS, ORDERED, LATER)[number % 3]
            while goesOn is None or goesOn():
                self.serve(addresses[number % len(addresses)], queue)

        works = [(producing, number) for number in range(PRODUCERS)] + [(working, number) for number in range(WORKERS)]
        return begin(works, self.jobs.fault, goesOn)

    def serve(self, address: tuple[str, int], queue: str) -> None:
        """Work on a queue by one connection, until it leaves with unsettled deliveries."""
        with FlexiClient(Stream(address)) as client:
            client.join()
            client.tell("SUB", {"topic": queue, "queue": True, "prefetch": random.randint(1, PREFETCH)})
            work(client, self.jobs, queue, client.barrier())

    def _empty(self, address: tuple[str, int]) -> None:
        """Acknowledge all jobs until no queue and no schedule has any, and read the dead letters."""
        jobs, deadline = self.jobs, time.monotonic() + PATIENCE
        with FlexiClient(Stream(address)) as client:
            client.join()
            for queue in (JOBS, ORDERED, LATER):
                client.tell("SUB", {"topic": queue, "queue": True, "prefetch": 1000})
                client.tell("SUB", {"topic": f"$dead/{queue}", "queue": True, "prefetch": 1000})
            isEmpty = False
            # A message that is being published is neither in the list of schedules nor in a queue.
            while not isEmpty or jobs.confirmed - jobs.settling:
                if time.monotonic() > deadline:
                    break
                isEmpty = _isEmpty(address)
                for each in client.barrier():
                    if each.kind == "PUB":
                        self._take(client, each)
                        deadline = time.monotonic() + PATIENCE
                    else:
                        jobs.fault(f"the last worker was answered {each}")
        if not isEmpty:
            jobs.fault("the queues are not emptied")
        jobs.faults += [f"{each} was confirmed and is lost" for each in sorted(jobs.confirmed - jobs.settling)]
        jobs.faults += [f"{each} was rejected and is no dead letter" for each in sorted(jobs.buried - jobs.letters)]

    def _take(self, client: FlexiClient, each: Heard) -> None:
        name, queue = msgpack.unpackb(each.payload), each.header["delivery"]["queue"]
        settle(client, queue, ack=[each.header["delivery"]["tag"]])
        if queue.startswith("$dead/"):
            if name not in self.jobs.rejected:
                self.jobs.fault(f"{name} is a dead letter, but no worker rejected it")
            self.jobs.letters.add(name)
        else:
            # A job whose rejection was not confirmed may be delivered again, and be a dead letter as well.
            self.jobs.delivered(name)
            self.jobs.settling.add(name)
            self.jobs.finished.add(name)

    def _checkSchedules(self, address: tuple[str, int]) -> None:
        """Read all scheduled messages from the journal: each is there once, not before its time."""
        found: Counter[str] = Counter()
        with FlexiClient(Stream(address)) as client:
            client.join()
            client.publish(LATER, "end")
            client.barrier()
            client.tell("SUB", {"topic": LATER, "from": "first"})
            while (heard := client.hear()).kind == "PUB" and (name := msgpack.unpackb(heard.payload)) != "end":
                found[name] += 1
                early = self.jobs.due[name] - heard.header["stored_at"]
                if early > 0:
                    self.jobs.fault(f"{name} was published {early:.0f} ms early")
        self.jobs.faults += [f"{name} was published {times} times" for name, times in found.items() if times > 1]
        lost = {each for each in self.jobs.confirmed if each.startswith(LATER)} - found.keys()
        self.jobs.faults += [f"the schedule of {name} was confirmed and is lost" for name in sorted(lost)]

    def _checkRecurring(self, address: tuple[str, int]) -> None:
        """Read the publications of the recurring schedule from the journal: one for each due time, none early."""
        dues: list[int] = []
        with FlexiClient(Stream(address)) as client:
            client.join()
            client.ask("/schedule/cancel", {"name": TICKS})
            client.publish(TICKS, "end")
            client.barrier()
            client.tell("SUB", {"topic": TICKS, "from": "first"})
            while "schedule" in (heard := client.hear()).header:
                dues.append(heard.header["schedule"]["due"])
                if heard.header["stored_at"] < dues[-1]:
                    self.jobs.fault(f"the schedule {TICKS} was published early: {heard.header}")
        self.jobs.ticks = len(dues)
        if not dues or dues != list(range(dues[0], dues[-1] + 1, EVERY)):
            self.jobs.fault(f"the schedule {TICKS} was published at {dues}, followed by {heard}")


def _isEmpty(address: tuple[str, int]) -> bool:
    """Return whether no message waits, for a consumer or for its time, or is unsettled."""
    with FlexiClient(Stream(address)) as client:
        client.join()
        if client.ask("/schedule/list", {})["schedules"]:
            return False
        return not any(each["messages"] or each["in_flight"] for each in client.ask("/queue/list", {})["queues"])


def report(kills: int, jobs: Jobs, seconds: float) -> str:
    """Return what a run has shown."""
    scheduled = sum(each.startswith(LATER) for each in jobs.confirmed)
    return (
        f"{kills} kills in {seconds:.0f} seconds: {len(jobs.confirmed)} jobs confirmed, {scheduled} of them scheduled, "
        f"{jobs.deliveries} deliveries, {jobs.extended} extended, {len(jobs.rejected)} rejected, "
        f"{len(jobs.letters)} dead letters, {jobs.ticks} times recurring, {len(jobs.faults)} faults"
        + "".join(f"\n{fault}" for fault in jobs.faults[:20])
    )


def campaign(folder: str, kills: int) -> QueueLoop:
    """Run a campaign with a journal in an empty folder, and return it."""
    loop = QueueLoop(folder)
    loop.run(kills)
    return loop


def main(description: str, campaign: Callable[[str, int], QueueLoop]) -> int:
    """Run a campaign as the command line says, and print the report; 1 if anything is lost or wrong."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        loop = campaign(folder, arguments.kills)
    print(report(arguments.kills, loop.jobs, time.monotonic() - began))
    return 1 if loop.jobs.faults else 0


if __name__ == "__main__":
    sys.exit(main("Kill a broker again and again, and compare its queues.", campaign))
