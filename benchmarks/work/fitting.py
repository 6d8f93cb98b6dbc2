"""Publications of one document to a topic without subscribers, which a schema may check."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.peers.fitted import Unchecked
from benchmarks.peers.line import Line
from benchmarks.peers.peer import Peer
from benchmarks.refused import Refused
from benchmarks.work.effort import Effort, Figures, Run
from benchmarks.work.fan import names
from benchmarks.work.posts import WORKED, processorSeconds

_BLOCK = 1_000


@dataclass(frozen=True, slots=True)
class Fitting:
    """One connection publishes as fast as it can; the clock stops when the broker has worked through all of it.

    The figures are the rate, and what one costs the broker: the time of its process, which other load changes less.
    """

    @contextmanager
    def on(self, peer: Peer, effort: Effort) -> Iterator[Run]:
        """See that a schema refuses what does not fit and nothing else, and find out how many blocks fill the time.

        :raises Refused: a schema does not do so.
        """
        assert isinstance(peer, Unchecked)
        topic = names(1)[0]
        checked = peer.file and peer.pattern == "bench.#"
        with peer.connect() as line:
            peer.barrier(line)
            for document, fits in ((peer.document, True), (b"\xff", not checked)):
                line.send(peer.publication(line.who, topic, document))
                if (not peer.answers(line)) != fits:
                    raise Refused(f"{document!r} was {'refused' if fits else 'accepted'}")
            block = peer.publication(line.who, topic, peer.document) * _BLOCK
            blocks = 1
            while (seconds := self._seconds(peer, line, block, blocks)) < effort.seconds / 4:
                blocks *= 2
            blocks = max(1, round(blocks * effort.seconds / seconds))

            def run() -> Figures:
                count, before = blocks * _BLOCK, processorSeconds(peer.pid)
                rate = count / self._seconds(peer, line, block, blocks)
                return {"published msg/s": rate, WORKED: (processorSeconds(peer.pid) - before) / count * 1e6}

            yield run

    def _seconds(self, peer: Unchecked, line: Line, block: bytes, blocks: int) -> float:
        started = time.perf_counter()
        for _ in range(blocks):
            line.send(block)
        if said := peer.answers(line):
            raise Refused(f"a publication was answered: {said[:200]!r}")
        return time.perf_counter() - started
