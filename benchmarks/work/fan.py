"""Publishers to subscribers as fast as they go: deliveries a second."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from benchmarks.peers.line import Line
from benchmarks.peers.peer import Peer
from benchmarks.pump import Load, Receipt, pump
from benchmarks.refused import Refused
from benchmarks.work.effort import Effort, Figures, Run

#: About how many bytes are prepared; they are sent again and again.
_BLOCK_BYTES = 1 << 18
_LETTERS = b"The quick brown fox jumps over the lazy dog, 0123456789 times. "


def letters(size: int) -> bytes:
    """Return a payload of so many bytes; it is text, since some protocols carry nothing else."""
    return (_LETTERS * (size // len(_LETTERS) + 1))[:size]


def names(count: int) -> list[bytes]:
    """Return topics whose names have one length."""
    return [b"bench.%04d" % number for number in range(count)]


@dataclass(frozen=True, slots=True)
class Fan:
    """``pairs`` publishers, each with ``subscribers`` of its own that listen to its ``topics``.

    A publisher goes through its topics in turn; every payload has ``size`` bytes. Where only a subscriber may
    publish, the publisher is one of its own subscribers.
    """

    size: int = 100
    subscribers: int = 1
    pairs: int = 1
    topics: int = 1
    figure: str = "deliveries/s"

    @contextmanager
    def on(self, peer: Peer, effort: Effort) -> Iterator[Run]:
        """Connect everybody, check one delivery, and find out how many messages fill the time."""
        with ExitStack() as lines:
            every = names(self.topics * self.pairs)
            groups = [
                _Group(peer, self, every[place * self.topics : (place + 1) * self.topics], lines)
                for place in range(self.pairs)
            ]
            peer.becomeQuiet([line for group in groups for line in group.lines])
            for group in groups:
                group.check()
            times = self._fitting(peer, groups, effort.seconds)
            yield lambda: self._run(groups, times)

    def _fitting(self, peer: Peer, groups: Sequence["_Group"], seconds: float) -> int:
        """Return how often a block is sent in so many seconds; doing so warms up."""
        times = 1
        while True:
            perBlock = groups[0].perBlock * self.subscribers * self.pairs
            needed = times * perBlock / self._run(groups, times)[self.figure]
            if needed >= min(seconds, 0.2) / 2:
                return max(1, round(times * seconds / needed))
            times *= 4

    def _run(self, groups: Sequence["_Group"], times: int) -> Figures:
        for group in groups:
            group.barrier()
        loads = [group.load(times) for group in groups]
        seconds = pump(loads, [receipt for group in groups for receipt in group.receipts(times)])
        deliveries = times * sum(group.perBlock * self.subscribers for group in groups)
        return {self.figure: deliveries / seconds}


class _Group:
    """A publisher and its subscribers."""

    def __init__(self, peer: Peer, fan: Fan, topics: Sequence[bytes], lines: ExitStack) -> None:
        self._peer = peer
        self._topics = topics
        self._payload = letters(fan.size)
        others = fan.subscribers - peer.publisherListens
        self._publisher = lines.enter_context(peer.connect())
        self._subscribers = [lines.enter_context(peer.connect()) for _ in range(others)]
        if peer.publisherListens:
            self._subscribers.append(self._publisher)
        for line in self._subscribers:
            peer.subscribe(line, topics)
        one = peer.publication(self._publisher.who, topics[0], self._payload)
        rounds = max(1, _BLOCK_BYTES // (len(one) * len(topics)))
        self.perBlock = rounds * len(topics)
        self._block = peer.prepare(self._publisher.who, topics, self._payload, self.perBlock)
        self._delivery = len(peer.delivery(self._publisher.who, topics[0], self._payload))
        self._reply = peer.reply(fan.subscribers)

    @property
    def lines(self) -> list[Line]:
        """All connections, the publisher's first."""
        return list(dict.fromkeys([self._publisher, *self._subscribers]))

    def check(self) -> None:
        """Send one message to each topic and compare everything that comes, byte by byte.

        :raises Refused: if something else comes.
        """
        publisher, payload = self._publisher, self._payload
        publisher.send(b"".join(self._peer.publication(publisher.who, each, payload) for each in self._topics))
        expected = [
            self._peer.delivery(publisher.who, topic, payload, place) for place, topic in enumerate(self._topics)
        ]
        if {len(each) for each in expected} != {self._delivery}:
            raise Refused("deliveries to different topics differ in length")
        for line in self._subscribers:
            _expect(line, b"".join(expected))
        _expect(publisher, self._reply * len(self._topics))

    def barrier(self) -> None:
        """Clear every connection of what is none of the run's."""
        for line in self.lines:
            self._peer.barrier(line)

    def load(self, times: int) -> Load:
        """Return what the publisher sends."""
        return Load(self._publisher.socket, self._block, times)

    def receipts(self, times: int) -> list[Receipt]:
        """Return what everybody gets."""
        messages = times * self.perBlock
        sizes = dict.fromkeys(self.lines, 0)
        for line in self._subscribers:
            sizes[line] += messages * self._delivery
        sizes[self._publisher] += messages * len(self._reply)
        return [Receipt(line.socket, size) for line, size in sizes.items()]


def _expect(line: Line, expected: bytes) -> None:
    got = line.read(len(expected))
    if got != expected:
        raise Refused(f"got {got[:120]!r} where {expected[:120]!r} was due")
