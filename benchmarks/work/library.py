"""What a program in Python gets out of a client library: publishing, receiving, asking."""

import multiprocessing
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.peers.clients import TOPIC, Library
from benchmarks.peers.peer import Peer
from benchmarks.percentiles import percentile
from benchmarks.refused import Refused
from benchmarks.work.effort import Effort, Figures, Run
from benchmarks.work.fan import letters

_WARM = 200
_PATIENCE = 30.0
PUBLISHED, RECEIVED, ASKED = "publish msg/s", "receive msg/s", "p50, us"


@dataclass(frozen=True, slots=True)
class Libraries:
    """One client at a time; payloads have ``size`` bytes.

    Published is from the library to the broker, which confirms; received what a bare socket publishes; requests are
    answered by the same library in another process.
    """

    size: int = 100

    @contextmanager
    def on(self, peer: Peer, effort: Effort) -> Iterator[Run]:
        """Prepare the bytes, and start who answers."""
        assert isinstance(peer, Library)
        count, payload = effort.queued * 2, letters(self.size)
        payloads = [b"%08d" % number + payload[8:] for number in range(count)]
        with peer.connect() as line, _answering(peer) as whom:
            data = b"".join(peer.publication(line.who, TOPIC.encode(), each) for each in payloads)

            def run() -> Figures:
                published = peer.publishAll(payloads)
                sending = threading.Thread(target=line.socket.sendall, args=(data,), daemon=True)
                received, last = peer.receiveAll(count, sending.start)
                sending.join(_PATIENCE)
                if last != payloads[-1]:
                    raise Refused(f"the last delivery is {last[:20]!r}")
                trips = peer.askAll(whom, payload, effort.exchanges)
                return {
                    PUBLISHED: count / published,
                    RECEIVED: count / received,
                    ASKED: percentile(trips[min(_WARM, len(trips) // 2) :], 50) / 1000,
                }

            yield run


@contextmanager
def _answering(peer: Library) -> Iterator[object]:
    """Run who answers in a process of its own; yield what a requester has to know."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=peer.echo, args=(theirs.send,), daemon=True)
    process.start()
    try:
        if not ours.poll(_PATIENCE):
            raise Refused("who is to answer did not begin")
        yield ours.recv()
    finally:
        process.terminate()
        process.join(_PATIENCE)
