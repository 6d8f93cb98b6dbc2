"""Kills a broker with a journal again and again, and looks whether all that it confirmed is there.

::

    python -m tests.conversations.journal.crash_loop --kills 100

prints the report that docs/measurements/crashes.txt shows. Between two kills clients of three dialects publish and
consume; after each restart a FlexiMQ subscriber reads back everything that was made durable since the last one, and
queues go on where they were. At the end the queues are emptied and the whole journal is read once more.
"""

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from typing import Any, NamedTuple

from tests.broker_process import BrokerProcess
from tests.conversations.clients import BlipClient, FlexiClient, MiniClient, Stream
from tests.conversations.journal.crash_load import (
    BLIP_TOPIC,
    FLEXI_TOPICS,
    Ledger,
    Load,
    Sent,
    consumeBlip,
    consumeMini,
    textOf,
)

#: Seconds until a broker is killed, from the moment at which all clients may begin.
LIVES = 0.05, 0.7
#: Seconds until a MiniMQ message that was not acknowledged comes again.
REDELIVERY = "1"
#: Seconds that emptying the queues may take.
PATIENCE = 300.0
_DIALECTS = {"flexi": "FlexiMQ, topics of --durable", "blip": "BlipMQ, QoS 1", "mini": "MiniMQ"}


class Count(NamedTuple):
    """What became of the messages of one dialect.

    ``confirmed``: the broker said that they are safe. ``lost``: of these, not there afterwards. ``duplicated``: kept
    more often than they were sent. ``recovered``: confirmed before a kill and read back or delivered after it.
    ``unconfirmed``: kept, though the broker died before it could say so. ``again``: deliveries from a queue beyond the
    first, which is right as long as no acknowledgement was confirmed.
    """

    confirmed: int
    lost: int
    duplicated: int
    recovered: int
    unconfirmed: int
    again: int


class CrashLoop:
    """A journal and what happens to it.

    :param folder: an empty folder for the journal.
    :param fsync: as for ``--fsync``: killing a process loses nothing in any mode.
    """

    def __init__(self, folder: str, fsync: str = "always") -> None:
        self.ledger = Ledger()
        self.kept: list[Sent] = []
        self._offset = 0
        self._subscription = 0
        self._arguments = (
            *("--listen", "tcp:0:interface=127.0.0.1", "--journal", folder, "--durable", f"{FLEXI_TOPICS}#"),
            *("--fsync", fsync, "--redelivery", REDELIVERY, "--journal-segment", "1MiB", "--max-deliveries", "1000"),
        )

    def run(self, kills: int) -> dict[str, Count]:
        """Kill so many times, then look at everything; what is wrong stands in ``ledger.faults``."""
        for _ in range(kills):
            with BrokerProcess(*self._arguments) as broker:
                self._lookBack(broker.address)
                load = Load(broker.address, self.ledger, self._subscription).start()
                time.sleep(random.uniform(*LIVES))
                broker.stop(signal.SIGKILL)
                load.join()
            self.ledger.round += 1
        with BrokerProcess(*self._arguments) as broker:
            self._lookBack(broker.address)
            self._empty(broker.address)
            self._readAll(broker.address)
        return self._count()

    def _lookBack(self, address: tuple[str, int]) -> None:
        """Read what was kept since the last look; make the subscription in the first round."""
        if not self._subscription:
            with BlipClient(address) as client:
                self._subscription = client.login().subscribe(BLIP_TOPIC)
        self.kept += self._read(address, self._offset + 1 if self._offset else "first")

    def _readAll(self, address: tuple[str, int]) -> None:
        """Read everything from the beginning: it must be what was read after each restart, one behind the other."""
        self._offset = 0
        again = self._read(address, "first")
        if again != self.kept:
            self.ledger.fault("the whole journal, read at once, is not what was read after each restart")

    def _read(self, address: tuple[str, int], start: Any) -> list[Sent]:
        """Return FlexiMQ's messages from an offset on up to a mark that is published now."""
        found: list[Sent] = []
        with FlexiClient(Stream(address)) as client:
            client.join()
            [mark] = self.ledger.next("mark", 1)
            client.publish(f"{FLEXI_TOPICS}mark", str(mark))
            if errors := client.barrier():
                self.ledger.fault(f"the mark was answered {errors[0]}")
            client.tell("SUB", {"topic": f"{FLEXI_TOPICS}#", "from": start})
            while True:
                heard = client.hear()
                if heard.kind != "PUB":
                    raise AssertionError(f"the replay from {start} was answered {heard}")
                message = Sent.of(textOf(heard.payload))
                if heard.header["offset"] <= self._offset:
                    self.ledger.fault(f"offset {heard.header['offset']} came behind {self._offset}")
                self._offset = heard.header["offset"]
                if message == mark:
                    return found
                if message.sender != "mark":
                    found.append(message)

    def _empty(self, address: tuple[str, int]) -> None:
        """Take all there is from both queues, also what was in flight when the broker died."""
        with BlipClient(address) as blip:
            blip.login()
            while consumeBlip(blip, self._subscription, self.ledger):
                pass
        deadline = time.monotonic() + PATIENCE
        with MiniClient(address) as mini:
            while time.monotonic() < deadline:
                while consumeMini(mini, self.ledger):
                    pass
                if all(each in self.ledger.seen for each in self.ledger.confirmed if each.sender.startswith("mini")):
                    return
                time.sleep(0.1)

    def _count(self) -> dict[str, Count]:
        self._checkOrder("FlexiMQ", self.kept)
        self._checkOrder("BlipMQ", [self.ledger.tags[tag] for tag in sorted(self.ledger.tags)])
        kept = Counter(self.kept)
        for message in kept:
            if message.number > self.ledger.sent.get(message.sender, 0):
                self.ledger.fault(f"{message} was never sent")
        return {dialect: self._countOf(dialect, kept) for dialect in _DIALECTS}

    def _countOf(self, dialect: str, kept: "Counter[Sent]") -> Count:
        ledger = self.ledger
        confirmed = {each: round for each, round in ledger.confirmed.items() if each.sender.startswith(dialect)}
        if dialect == "flexi":
            found = dict.fromkeys(kept, ledger.round)
            duplicated, again = sum(kept.values()) - len(kept), 0
        else:
            found = {each: max(rounds) for each, rounds in ledger.seen.items() if each.sender.startswith(dialect)}
            tags = [each for each in ledger.tags.values() if dialect == "blip"]
            duplicated = len(tags) - len(set(tags))
            again = sum(len(ledger.seen[each]) - 1 for each in found)
        return Count(
            len(confirmed),
            len(confirmed.keys() - found.keys()),
            duplicated,
            sum(found.get(each, -1) > round for each, round in confirmed.items()),
            len(found.keys() - confirmed.keys()),
            again,
        )

    def _checkOrder(self, where: str, messages: list[Sent]) -> None:
        last: dict[str, int] = {}
        for sender, number in messages:
            if number <= last.get(sender, 0):
                self.ledger.fault(f"{where}: {sender}:{number} came behind {sender}:{last[sender]}")
            last[sender] = number


def report(kills: int, counts: dict[str, Count], faults: list[str], seconds: float) -> str:
    """Return what a run has shown, as a table."""
    titles = ("", "acknowledged", "lost", "duplicated", "recovered", "kept unconfirmed", "delivered again")
    rows = [titles, *((_DIALECTS[name], *map(str, count)) for name, count in counts.items())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(titles))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    rule = "  ".join("=" * width for width in widths)
    head = f"{kills} kills in {seconds:.0f} seconds; {len(faults)} faults"
    return "\n".join([head, "", rule, lines[0], rule, *lines[1:], rule, *faults[:20]])


def main() -> int:
    """Run as the command line says, and print the report; 1 if anything is lost or wrong."""
    parser = argparse.ArgumentParser(description="Kill a broker again and again, and look whether anything is lost.")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--fsync", default="always")
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        loop = CrashLoop(folder, arguments.fsync)
        counts = loop.run(arguments.kills)
    print(report(arguments.kills, counts, loop.ledger.faults, time.monotonic() - began))
    return 1 if loop.ledger.faults or any(count.lost or count.duplicated for count in counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
