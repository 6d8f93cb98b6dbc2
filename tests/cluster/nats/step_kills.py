"""Kills the owner of a cluster at each step of each operation on queues, schedules and values, while clients work.

::

    python -m tests.cluster.nats.step_kills --steps 77 --dialect fleximq

The steps are those of :mod:`tests.cluster.nats.failpoints`; the next owner takes over after each. The clients are those
of the loops of kills over queues and over values, at all three nodes, with their checks, and some that cancel jobs and
schedules. Of what was confirmed about those:

- a cancelled job is not delivered, and one that was not cancelled is;
- a cancelled schedule waits no more, and one that was not cancelled does.

With ``--dialect fleximq`` the nodes form a mesh, and each serves its clients itself.
"""

import argparse
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from tests.cluster.nats.failpoints import OPERATIONS, STAGES
from tests.cluster.nats.queue_loop import ClusterLoop, Nodes
from tests.conversations.clients import FlexiClient, Stream
from tests.conversations.journal import queue_loop, value_loop
from tests.conversations.journal.queue_loop import begin, settle
from tests.conversations.journal.value_loop import ValueLoop

#: The queue and the topic of what is cancelled, and the milliseconds for which the schedules wait.
QUEUE, TOPIC, LONG = "cancelled", "never", 100_000_000
CANCELLERS = 3
#: Seconds in which a step is reached: all operations are under way all the time.
REACHED = 60.0
#: Operations that need a second commit: a dead letter and its note, a published message and its acknowledgement.
_LONG = frozenset({"reject", "due", "recur"})
_BEFORE = frozenset({"begun", "made"})


def steps() -> list[str]:
    """Return all steps: operation, stage, and the number of commits that are passed over."""
    return [
        f"{operation} {stage} {commits}"
        for operation in OPERATIONS
        for stage in STAGES
        for commits in range(1 + (operation in _LONG and stage not in _BEFORE))
    ]


@dataclass
class Cancelled:
    """What clients know of jobs and schedules: names and ids that were ``confirmed``, those that a client ``asked`` to
    cancel, and those whose cancelling was confirmed, ``done``.
    """

    confirmed: set[str | int] = field(default_factory=set)
    asked: set[str | int] = field(default_factory=set)
    done: set[str | int] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)
    numbers: "count[int]" = field(default_factory=count)

    def act(self, client: FlexiClient) -> None:
        """Make a job and a schedule, and cancel two times of three each."""
        name = f"job {next(self.numbers)}"
        client.tell("PUB", {"topic": QUEUE, "queue": True, "message_id": name}, name)
        if errors := client.barrier():
            self.faults.append(f"{name} was answered {errors}")
        self.confirmed.add(name)
        number = client.ask("/schedule/add", {"topic": TOPIC, "deliver_in": LONG, "header": {"queue": True}})["id"]
        self.confirmed.add(number)
        for each, path, arguments in (
            (name, "/queue/cancel", {"queue": QUEUE, "message_id": name}),
            (number, "/schedule/cancel", {"id": number}),
        ):
            if random.random() < 2 / 3:
                self.asked.add(each)
                if client.ask(path, arguments) != {"cancelled": True}:
                    self.faults.append(f"{each} was not there to be cancelled")
                self.done.add(each)

    def check(self, client: FlexiClient) -> None:
        """Compare with the queue and the list of schedules, and remove what is there."""
        left: set[str | int] = set()
        while rows := client.ask("/schedule/list", {"limit": 1000, "topic": TOPIC})["schedules"]:
            mine = [row["id"] for row in rows if row["topic"] == TOPIC]
            left.update(mine)
            for each in mine:
                client.ask("/schedule/cancel", {"id": each})
            if len(mine) < len(rows):
                break
        waiting = client.ask("/queue/list", {"after": QUEUE[:-1], "limit": 1})["queues"][0]["messages"]
        client.tell("SUB", {"topic": QUEUE, "queue": True, "prefetch": 65535})
        for _ in range(waiting):
            heard = client.hear()
            left.add(heard.value)
            settle(client, QUEUE, ack=[heard.header["delivery"]["tag"]])
        client.barrier()
        self.faults += [f"{each} was cancelled and is there" for each in left & self.done]
        self.faults += [f"{each} was confirmed and is lost" for each in self.confirmed - self.asked - left]


class StepKills(ClusterLoop):
    """The loop of kills over queues, with values and cancelling, and kills at chosen steps."""

    def __init__(self, nodes: Nodes) -> None:
        super().__init__(nodes)
        self.values = ValueLoop("")
        self.cancelled = Cancelled()
        self.unreached: list[str] = []

    @property
    def faults(self) -> list[str]:
        """All that is wrong."""
        return self.jobs.faults + self.values.values.faults + self.cancelled.faults + self.unreached

    def killAt(self, chosen: list[str]) -> None:
        """Kill the owner at these steps, one after the other, then check."""
        nodes, goesOn = self._nodes, True
        self.define(nodes.owner().address)

        def cancelling(number: int) -> None:
            with FlexiClient(Stream(nodes.addresses[number % 3])) as client:
                client.join()
                while goesOn:
                    self.cancelled.act(client)
                    time.sleep(0.02)

        threads = self.start(nodes.addresses, lambda: goesOn)
        threads += self.values.start(nodes.addresses, lambda: goesOn)
        threads += begin(
            [(cancelling, number) for number in range(CANCELLERS)], self.cancelled.faults.append, lambda: goesOn
        )
        for step in chosen:
            self.waitForJobs()
            owner = nodes.owner()
            nodes.arm(step)
            if not nodes.killed(owner, REACHED):
                self.unreached.append(f"{step} was not reached")
            nodes.owner()
        self.waitForJobs()
        goesOn = False
        owner = nodes.owner()
        time.sleep(1)  # clients that do not wait for a job end themselves, with confirmed work
        nodes.kill(owner)
        self.join(threads)
        address = nodes.owner().address
        standby = next(each for each in nodes.addresses if each != address)
        with FlexiClient(Stream(standby)) as client:
            client.join()
            self.cancelled.check(client)
        self.check(standby)
        self.values.check(standby)


def campaign(folder: str, chosen: list[str], dialect: str = "") -> StepKills:
    """Run a campaign with nodes in an empty folder, and return it."""
    with ExitStack() as held:
        options = (*queue_loop.OPTIONS, "--retention", "own=1GiB")
        loop = StepKills(Nodes(Path(folder), held, options, dialect, failpoints=True))
        loop.killAt(chosen)
        return loop


def report(chosen: list[str], loop: StepKills, seconds: float) -> str:
    """Return what a run has shown."""
    cancelled = loop.cancelled
    return "\n".join(
        (
            queue_loop.report(len(chosen), loop.jobs, seconds),
            value_loop.report(len(chosen), loop.values.values, seconds),
            f"{len(cancelled.confirmed)} jobs and schedules to cancel, {len(cancelled.done)} cancelled",
            f"{len(chosen) - len(loop.unreached)} steps reached, {len(loop.faults)} faults",
            *loop.faults[:20],
        )
    )


def main() -> int:
    """Run a campaign as the command line says, and print the report; 1 if anything is lost or wrong."""
    parser = argparse.ArgumentParser(description="Kill the owner of a cluster at single steps.")
    parser.add_argument("--steps", type=int, default=len(steps()), help="how many steps, at random")
    parser.add_argument("--dialect", default="", help="fleximq: the nodes form a mesh")
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    chosen = random.sample(steps(), arguments.steps)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        loop = campaign(folder, chosen, arguments.dialect)
    print(report(chosen, loop, time.monotonic() - began))
    return 1 if loop.faults else 0


if __name__ == "__main__":
    sys.exit(main())
