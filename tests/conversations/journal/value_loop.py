"""Kills a broker at random moments while clients change values, and compares what was confirmed.

::

    python -m tests.conversations.journal.value_loop --kills 100

Writers put, replace and delete values of keys of their own, with and without an expiry; all add to a few sums; some
take locks, values that are put only if there is none, and release them by their revision; readers wait for each new
revision of a sum. Then, of all that was confirmed:

- each key of a writer has the state of its last confirmed change, or of a later one that was not confirmed;
- a sum is that of all confirmed additions, and some of the others; none was counted twice;
- no lock was confirmed for two clients at once;
- revisions of a key only grew, for those who change it and for readers.
"""

import argparse
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgpack

from tests.broker_process import BrokerProcess
from tests.conversations.clients import FlexiClient, Stream
from tests.conversations.journal.queue_loop import begin
from tests.wire.flexi_frames import Heard

WRITERS, ADDERS, LOCKERS, READERS = 4, 4, 4, 2
#: Keys of one writer, sums, and locks.
KEYS, SUMS, LOCKS = 5, 3, 2
#: Changes that are confirmed until a broker is killed, at least and at most; most changes of one burst.
LIVES, BURST = (1, 500), 20
#: Most bytes of a value: segments of the journal end often, and are cleaned.
MOST = 20_000
#: Milliseconds of a short expiry, and of one after the end.
SHORT, LONG = 300, 10_000_000
OPTIONS = (
    "--listen", "tcp:0:interface=127.0.0.1", "--journal-segment", "1MiB", "--durable", "#", "--retention", "#=4MiB",
)  # fmt: skip


class Values:
    """What all clients know.

    ``states`` has for each key of a writer the states after its last confirmed change: each a value, None without
    one, and the time after which it may be gone. ``added`` and ``perhaps`` are the sums of confirmed and of all
    additions; ``sums`` all confirmed sums. ``revisions`` is the largest that is known of each key.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.states: dict[str, list[tuple[bytes | None, float]]] = {}
        self.added: Counter[str] = Counter()
        self.perhaps: Counter[str] = Counter()
        self.sums: defaultdict[str, set[int]] = defaultdict(set)
        self.holders: dict[str, str] = {}
        self.revisions: Counter[str] = Counter()
        self.confirmed: Counter[str] = Counter()
        self.faults: list[str] = []

    def fault(self, sentence: str) -> None:
        """Remember that something is wrong."""
        with self.lock:
            self.faults.append(sentence)

    def revised(self, key: str, revision: int, before: int, atLeast: bool = False) -> None:
        """Check a revision against the one that was known before it was asked for."""
        with self.lock:
            if revision < before + (not atLeast):
                self.faults.append(f"{key} has the revision {revision}, after {before}")
            self.revisions[key] = max(self.revisions[key], revision)

    def addition(self, key: str, number: int, total: int) -> None:
        """Check a confirmed sum of positive additions."""
        with self.lock:
            if total in self.sums[key]:
                self.faults.append(f"{key} had the sum {total} twice")
            self.sums[key].add(total)
            self.added[key] += number

    def took(self, key: str, token: str) -> None:
        """Check that nobody else holds a lock that was confirmed."""
        with self.lock:
            if self.holders.setdefault(key, token) != token:
                self.faults.append(f"{key} was given to {token}, but {self.holders[key]} holds it")


class Asking:
    """Requests of one client, several at a time, each with its answer."""

    def __init__(self, client: FlexiClient) -> None:
        self._client = client.join()
        self._number = 0

    def all(self, *requests: tuple[str, dict[str, Any]]) -> list[Heard]:
        """Send all, and return their answers in order."""
        ids = []
        for path, arguments in requests:
            self._number += 1
            ids.append(f"v-{self._number}")
            self._client.request(1, f"/value/{path}", ids[-1], arguments)
        answers: dict[str, Heard] = {}
        while len(answers) < len(ids):
            heard = self._client.hear()
            answers[heard.header["reqrep"]["id"]] = heard
        return [answers[each] for each in ids]

    def one(self, path: str, **arguments: Any) -> Heard:
        """Return the answer of one."""
        return self.all((path, arguments))[0]


def write(asking: Asking, values: Values, number: int) -> None:
    """Put and delete a few values of this writer's own keys."""
    requests, changes = [], []
    for _ in range(random.randint(1, BURST)):
        key = f"own/{number}/{random.randrange(KEYS)}"
        content, gone = None, float("inf")
        if random.random() < 0.7:
            content = b"%d %d " % (number, random.getrandbits(60)) + bytes(random.randrange(MOST))
            arguments: dict[str, Any] = {"key": key, "value": content}
            if random.random() < 0.3:
                arguments["expires_in"] = random.choice((SHORT, LONG))
                gone = time.time() + arguments["expires_in"] / 1000
            requests.append(("put", arguments))
        else:
            requests.append(("delete", {"key": key}))
        state = content, gone
        changes.append((key, state))
        values.states.setdefault(key, [(None, 0.0)]).append(state)
    before = Counter(values.revisions)
    for (key, state), heard in zip(changes, asking.all(*requests), strict=True):
        if heard.status != 200:
            values.fault(f"a change of {key} was answered {heard}")
            continue
        states = values.states[key]
        del states[: states.index(state)]
        if "revision" in heard.value:
            values.revised(key, heard.value["revision"], before[key])
            before[key] = heard.value["revision"]
        values.confirmed["changes"] += 1


def add(asking: Asking, values: Values, _: int) -> None:
    """Add to a few sums."""
    additions = [(f"sum/{random.randrange(SUMS)}", random.randint(1, 9)) for _ in range(random.randint(1, BURST))]
    with values.lock:
        for key, number in additions:
            values.perhaps[key] += number
    answers = asking.all(*(("add", {"key": key, "number": number}) for key, number in additions))
    for (key, number), heard in zip(additions, answers, strict=True):
        if heard.status != 200:
            values.fault(f"an addition was answered {heard}")
            continue
        values.addition(key, number, heard.value["sum"])
        values.confirmed["additions"] += 1


def lock(asking: Asking, values: Values, number: int) -> None:
    """Take a lock, or release the one that this client holds; a request without an answer is asked about first."""
    key, token = f"lock/{number % LOCKS}", f"locker {number}"
    found = asking.one("get", keys=[key]).value["values"].get(key)
    if found is None:
        heard = asking.one("put", key=key, value=token.encode(), if_revision=0)
        if heard.status == 200:
            values.took(key, token)
            values.confirmed["locks"] += 1
        elif heard.status != 409:
            values.fault(f"a lock was answered {heard}")
    elif found[1] == token.encode():
        values.took(key, token)
        with values.lock:
            del values.holders[key]
        heard = asking.one("delete", key=key, if_revision=found[0])
        if heard.status != 200 or heard.value != {"deleted": True}:
            values.fault(f"the release of {key} by {token} was answered {heard}")


def read(asking: Asking, values: Values, number: int) -> None:
    """Wait for a newer revision of a sum."""
    key = f"sum/{number % SUMS}"
    before = values.revisions[key]
    heard = asking.one("get", keys=[key], after=before, wait=200)
    for revision, _ in heard.value["values"].values():
        values.revised(key, revision, before)
        values.confirmed["reads"] += 1


class ValueLoop:
    """A journal, the brokers that open it one after the other, and what their clients know.

    :param folder: an empty folder for the journal.
    """

    def __init__(self, folder: str) -> None:
        self.values = Values()
        self.folder = folder

    def run(self, kills: int) -> None:
        """Kill so many times, then check; faults are in ``values.faults``."""
        for _ in range(kills):
            with BrokerProcess(*OPTIONS, "--journal", self.folder) as broker:
                threads = self.start([broker.address])
                self._wait()
                broker.stop(signal.SIGKILL)
                for thread in threads:
                    thread.join(300)
                    if thread.is_alive():
                        self.values.fault("a client did not notice that the broker is gone")
            with BrokerProcess(*OPTIONS, "--journal", self.folder) as broker:
                self.check(broker.address)
                if random.random() < 0.5:
                    broker.stop(signal.SIGKILL)

    def _wait(self) -> None:
        confirmed = self.values.confirmed
        wanted, until = confirmed.total() + random.randint(*LIVES), time.monotonic() + 60
        while confirmed.total() < wanted and time.monotonic() < until:
            time.sleep(random.uniform(0, 0.02))

    def start(
        self, addresses: Sequence[tuple[str, int]], goesOn: Callable[[], bool] | None = None
    ) -> list[threading.Thread]:
        """Start all clients, in turn at these addresses; one that is cut off connects again while ``goesOn``."""

        def acting(act: Callable[[Asking, Values, int], None], number: int) -> None:
            with FlexiClient(Stream(addresses[number % len(addresses)])) as client:
                asking = Asking(client)
                while goesOn is None or goesOn():
                    act(asking, self.values, number)

        acts = ((write, WRITERS), (add, ADDERS), (lock, LOCKERS), (read, READERS))
        works = [(partial(acting, act), number) for act, most in acts for number in range(most)]
        return begin(works, self.values.fault, goesOn)

    def check(self, address: tuple[str, int]) -> None:
        """Compare all values with what was confirmed; what is there now counts as confirmed from now on."""
        values = self.values
        with FlexiClient(Stream(address)) as client:
            asking = Asking(client)
            for key, states in values.states.items():
                found = asking.one("get", keys=[key]).value["values"].get(key)
                content, now = None if found is None else found[1], time.time()
                if not any(content == state or (content is None and gone <= now + 1) for state, gone in states):
                    values.fault(f"{key} is {str(content)[:30]}, not one of {[str(each)[:30] for each in states]}")
                if found is not None:
                    values.revised(key, found[0], values.revisions[key], atLeast=True)
                gone = max((each for state, each in states if state == content), default=0.0)
                values.states[key] = [(content, gone)]
            for key in values.perhaps:
                found = asking.one("get", keys=[key]).value["values"].get(key)
                total = 0 if found is None else msgpack.unpackb(found[1])
                if not values.added[key] <= total <= values.perhaps[key]:
                    values.fault(f"{key} is {total}, of {values.added[key]} to {values.perhaps[key]}")
                values.added[key] = values.perhaps[key] = total
            listed = asking.one("list", limit=1000, prefix="own/").value["values"]
            counted = asking.one("count", prefix="own/").value["count"]
            if len(listed) > counted:
                values.fault(f"{len(listed)} keys are listed, {counted} counted")


def report(kills: int, values: Values, seconds: float) -> str:
    """Return what a run has shown."""
    return f"{kills} kills in {seconds:.0f} seconds: {dict(values.confirmed)}, {len(values.faults)} faults" + "".join(
        f"\n{fault}" for fault in values.faults[:20]
    )


def main() -> int:
    """Run a campaign as the command line says, and print the report; 1 if anything is lost or wrong."""
    parser = argparse.ArgumentParser(description="Kill a broker again and again, and compare its values.")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        loop = ValueLoop(folder)
        loop.run(arguments.kills)
    print(report(arguments.kills, loop.values, time.monotonic() - began))
    return 1 if loop.values.faults else 0


if __name__ == "__main__":
    sys.exit(main())
