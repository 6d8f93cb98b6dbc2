"""Power losses at every moment of many loads: what is left is opened, and compared with what was promised.

``python -m tests.journal.power_loss --points 15000`` prints a report, and ends with 1 if a promise was broken. A point
is one disk as a power loss may leave it. It has to be opened, to have every message and every note that was promised,
in order, nothing that was never appended and nothing twice; the next message must get an offset that nobody was ever
told. Now and then the power goes again while the journal is being opened, at each moment of that.

What is promised: with ``always`` all that was said to be safe; with ``interval`` and ``never`` all that was said to be
safe before the last sync that they do promise: of the time, of a sealed segment, of a clean stop.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os.path import commonprefix
from random import Random
from typing import Any

from fleximq.config.journal_options import Fsync
from fleximq.journal.recovery.recovered_state import RecoveredJournal
from fleximq.journal.recovery.recovery import TORN
from fleximq.values.records import StoredBatch
from tests.journal.at_once import JournalAtOnce, published
from tests.journal.load import TOPICS, WEIGHTS, Load, Queues
from tests.journal.recorder import WAYS, Recorder, State, crashes

FOLDER = "/disk/journal"
MODES = (Fsync("always"), Fsync("always"), Fsync("interval", 50), Fsync("never"))


class Broken(Exception):
    """A promise was not kept; the text says which."""


@dataclass
class Report:
    """What was tried, and what came of it; ``sites`` are the syncs that were asked for."""

    points: Counter[str] = field(default_factory=Counter)
    again: int = 0
    torn: int = 0
    messages: int = 0
    notes: int = 0
    broken: list[str] = field(default_factory=list)
    sites: set[str] = field(default_factory=set)

    def lines(self) -> Iterator[str]:
        """Yield the report."""
        yield f"crash points            {self.points.total()}"
        for how, number in sorted(self.points.items()):
            yield f"  {how:<22}{number}"
        yield f"while recovering again  {self.again}"
        yield f"unfinished ends cut     {self.torn}"
        yield f"promised messages seen  {self.messages}"
        yield f"promised notes seen     {self.notes}"
        yield f"broken promises         {len(self.broken)}"
        yield from self.broken[:20]


def explore(
    seed: int,
    fsync: Fsync,
    report: Report,
    *,
    enough: Callable[[], bool] = lambda: False,
    ways: Mapping[str, int] = WAYS,
    weights: Sequence[int] = WEIGHTS,
    topics: Sequence[str] = TOPICS,
    steps: int = 60,
    again: int = 16,
    every: int = 1,
    broken: frozenset[str] = frozenset(),
) -> None:
    """Let the power go at every moment of one load.

    :param enough: asked before each point.
    :param every: of so many points, one is taken.
    :param again: of so many of these, in one the power goes again while it is opened.
    :param broken: syncs that do nothing.
    """
    load = Load(seed, fsync, steps=steps, broken=broken, weights=weights, topics=topics)
    random = Random(seed)
    for number, (done, how, state) in enumerate(crashes(load.disk, random, ways)):
        if enough():
            break
        if number % every:
            continue
        report.points[how] += 1
        try:
            _point(load, done, state, report, broken, again=number // every % again == 0)
        except Exception as error:
            report.broken.append(f"seed {seed}, {fsync.mode}, {how} after {done} operations: {error!r}")
    report.sites |= load.disk.sites


def _point(load: Load, done: int, state: State, report: Report, broken: frozenset[str], again: bool) -> None:
    disk = Recorder(state, broken)
    journal = JournalAtOnce(disk, fsync=load.fsync)
    queues = Queues()
    found = journal.open(queues)
    _check(load, done, found, journal.everything(), report)
    if done in load.closed and not found.clean:
        raise Broken("a clean stop is not seen")
    _keptBeside(state, disk.now())
    report.torn += len(found.torn)
    queues.restore(found)
    _goOn(load, done, journal)
    report.sites |= disk.sites
    if again:
        _again(load, done, state, disk, report, broken)


def _goOn(load: Load, done: int, journal: JournalAtOnce) -> None:
    """See that the next message gets an offset that nobody was told, and that a clean stop leaves no gap."""
    given = max((end for when, end in load.given if when <= done), default=1)
    journal.begin()
    told: list[int] = []
    journal.append(*published([b"next"]), lambda offset, reason: told.append(offset))
    journal.worker.drain()
    if told[0] < given:
        raise Broken(f"offset {told[0]} is given, but those below {given} were already")
    journal.close()


def _again(load: Load, done: int, state: State, disk: Recorder, report: Report, broken: frozenset[str]) -> None:
    """Let the power go again, at each moment of the opening and of the first commit behind it."""
    random = Random(done)
    for number, (_, _, again) in enumerate(crashes(disk, random, {"dropped": 1, "kept": 1, "torn": 1})):
        if number > 40:
            break
        report.again += 1
        second = Recorder(again, broken)
        journal = JournalAtOnce(second, fsync=load.fsync)
        found = journal.open()
        _check(load, done, found, journal.everything(), report)
        _keptBeside(state, second.now())


# -- what was promised -----------------------------------------------------------------------------


def _check(load: Load, done: int, found: RecoveredJournal, batches: Sequence[StoredBatch], report: Report) -> None:
    if found.lost:
        raise Broken(f"a power loss is taken for damage: {found.lost}")
    records = list(_records(batches))
    _checkMessages(load, done, records, report)
    _checkTransactions(load, done, found, records)
    _checkNotes(load, done, found, report)
    _checkBounds(found, records)


def _records(batches: Sequence[StoredBatch]) -> Iterator[tuple[int, tuple[Any, ...]]]:
    for batch in batches:
        for place, offset in enumerate(batch.offsets):
            yield (
                offset,
                (
                    batch.payloads[place],
                    batch.topics[batch.topicOf[place]],
                    batch.publishers[batch.publisherOf[place]][0],
                    batch.headers[place],
                ),
            )


def _checkMessages(load: Load, done: int, records: list[tuple[int, tuple[Any, ...]]], report: Report) -> None:
    records = [each for each in records if each[1][0] != b"next"]
    offsets = [offset for offset, _ in records]
    if offsets != sorted(set(offsets)):
        raise Broken("offsets do not ascend")
    _checkOrder(load, done, [record for _, record in records])
    there = dict(records)
    for kept in load.kept:
        if kept.lasting <= done and not load.mayBeGone(kept, done):
            for place, payload in enumerate(kept.payloads):
                if there.get(kept.offset + place, (None,))[0] != payload:
                    raise Broken(f"offset {kept.offset + place} was safe and is gone")
                report.messages += 1
        elif kept.said <= done:
            for place, payload in enumerate(kept.payloads):
                if there.get(kept.offset + place, (payload,))[0] != payload:
                    raise Broken(f"offset {kept.offset + place} is another message now")


def _checkOrder(load: Load, done: int, found: list[tuple[Any, ...]]) -> None:
    """See that what is there begins as what was appended does; but for what was refused, of which it is not said."""
    place = 0
    for kept in load.kept:
        if kept.appended > done or place == len(found):
            break
        for payload in kept.payloads:
            if place < len(found) and found[place] == (payload, kept.topic, kept.publisher, kept.header):
                place += 1
            elif not load.mayBeGone(kept, done) and place < len(found):
                raise Broken("what is there is not what was appended, in order")
    if place < len(found):
        raise Broken("more is there than was appended, or in another order")


def _checkTransactions(
    load: Load, done: int, found: RecoveredJournal, records: list[tuple[int, tuple[Any, ...]]]
) -> None:
    there = {offset: record[0] for offset, record in records}
    payloads = set(there.values())
    for query, (batch, base, count) in found.transactions.items():
        kept = next(kept for name, number, kept in load.transactions if (name, number) == (query, batch))
        if [there.get(base + place) for place in range(count)] != list(kept.payloads):
            raise Broken(f"batch {batch} is said to be committed, and its records are not there")
    for _, batch, kept in load.transactions:
        if len(payloads.intersection(kept.payloads)) not in (0, len(kept.payloads)):
            raise Broken(f"a part of batch {batch} is there")
        if kept.lasting <= done and found.transactions.get("query", (0,))[0] < batch:
            raise Broken(f"batch {batch} was committed, and nobody knows")


def _checkNotes(load: Load, done: int, found: RecoveredJournal, report: Report) -> None:
    queues = Queues()
    queues.restore(found)
    facts = queues.facts()
    known = {fact[:2] if fact[0] == "client ids" else fact for fact in facts}
    for barrier in load.barriers:
        if barrier.lasting <= done:
            for fact in barrier.facts:
                if fact[0] == "client ids":
                    if queues.clientIds < fact[2]:
                        raise Broken(f"client ids below {fact[2]} were given, and only {queues.clientIds} is known")
                elif fact not in known:
                    raise Broken(f"the note {fact} was safe and is gone")
                report.notes += 1
    invented = facts - load.queues.facts() - {("client ids", "", queues.clientIds)}
    if invented:
        raise Broken(f"notes that nobody made: {sorted(invented)[:3]}")


def _checkBounds(found: RecoveredJournal, records: list[tuple[int, tuple[Any, ...]]]) -> None:
    counted = Counter(record[1] for _, record in records)
    if {topic: bounds.count for topic, bounds in found.segments.bounds().items()} != counted:
        raise Broken("the bounds do not count what is there")


def _keptBeside(before: State, after: State) -> None:
    """See that whatever was cut off stands in a file beside, byte for byte."""
    beside = [after.files[number] for name, number in after.names.items() if name.endswith(TORN)]
    for name, number in before.names.items():
        if name.endswith(".fxj"):
            content, left = before.files[number], after.files.get(after.names.get(name, -2), b"")
            rest = content[len(commonprefix([content, left])) :]
            if rest and len(left) < len(content) and not any(each.endswith(rest) for each in beside):
                raise Broken(f"{len(rest)} bytes of {name} were cut and are nowhere")


# -- the whole run ---------------------------------------------------------------------------------


def run(points: int, seed: int = 0) -> Report:
    """Try so many points, over as many loads as that takes."""
    report = Report()
    while report.points.total() < points:
        explore(seed, MODES[seed % len(MODES)], report, enough=lambda: report.points.total() >= points)
        seed += 1
    return report


def main(arguments: Sequence[str]) -> int:
    """Run what the command line says, print the report, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.journal.power_loss", description=__doc__)
    parser.add_argument("--points", type=int, default=15_000, help="how many crash points; default: 15000")
    parser.add_argument("--seed", type=int, default=0, help="of the first load; default: 0")
    options = parser.parse_args(arguments)
    begun = time.monotonic()
    report = run(options.points, options.seed)
    for line in report.lines():
        print(line)
    print(f"seconds                 {time.monotonic() - begun:.0f}")
    return 1 if report.broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
