"""Very many connections that do nothing for long, then all speak at once, and then all come back."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from benchmarks.peers.peer import Peer
from benchmarks.pump import Receipt, drive
from benchmarks.work.effort import Effort, Figures, Run
from benchmarks.work.fan import letters, names
from benchmarks.work.joining import joined


@dataclass(frozen=True, slots=True)
class Crowd:
    """Each idle connection publishes once to one subscriber, which has to get all; then all are made anew."""

    size: int = 100

    @contextmanager
    def on(self, peer: Peer, effort: Effort) -> Iterator[Run]:
        """Nothing to make ready."""
        topic, payload = names(1)[0], letters(self.size)

        def run() -> Figures:
            with peer.connect() as listener:
                peer.subscribe(listener, [topic])
                with ExitStack() as lines:
                    crowd = joined(peer, effort.idle, lines)
                    time.sleep(effort.rest)
                    publications = [(line, peer.publication(line.who, topic, payload)) for line in crowd]
                    due = sum(len(peer.delivery(line.who, topic, payload)) for line in crowd)

                    def speak() -> None:
                        for line, publication in publications:
                            line.send(publication)

                    peer.barrier(listener)
                    spoke = drive([speak], [Receipt(listener.socket, due)])
                started = time.perf_counter()
                with ExitStack() as lines:
                    joined(peer, effort.idle, lines)
                    return {"all publish, s": spoke, "reconnect, s": time.perf_counter() - started}

        yield run
