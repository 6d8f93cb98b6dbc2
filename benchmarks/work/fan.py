"""Publishers to subscribers as fast as they go: deliveries a second."""

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Literal

from benchmarks.peers.line import Line
from benchmarks.peers.peer import Peer
from benchmarks.pump import Load, Receipt, pump
from benchmarks.refused import Refused
from benchmarks.work.effort import Effort, Figures, Run

#: About how many bytes are prepared; they are sent again and again.
_BLOCK_BYTES = 1 << 18
#: About what a frame has besides its payload, the size from which payloads are numbered, and draws for each topic.
_FRAME, _NUMBERED, _DRAWS = 64, 16, 2
_SEED = 17
_LETTERS = b"The quick brown fox jumps over the lazy dog, 0123456789 times. "


def letters(size: int) -> bytes:
    """Return a payload of so many bytes; it is text, since some protocols carry nothing else."""
    return (_LETTERS * (size // len(_LETTERS) + 1))[:size]


def names(count: int) -> list[bytes]:
    """Return topics whose names have one length."""
    return [b"bench.%05d" % number for number in range(count)]


@dataclass(frozen=True, slots=True)
class Fan:
    """``pairs`` publishers, each with ``subscribers`` of its own that listen to its ``topics``.

    They listen to all by their names or by a wildcard, or there is one subscriber for each topic instead.
    Every payload has ``size`` bytes or one of ``sizes``; sizes and topics are drawn at random, and every broker gets
    the same ones. Where only a subscriber may publish, the publisher is one of its own subscribers.
    """

    size: int = 100
    subscribers: int = 1
    pairs: int = 1
    topics: int = 1
    by: Literal["names", "wildcard", "one"] = "names"
    sizes: tuple[int, ...] = ()
    figure: str = "deliveries/s"

    @property
    def receivers(self) -> int:
        """How many get a message."""
        return 1 if self.by == "one" else self.subscribers

    def messages(self, topics: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
        """Return topics and payloads, enough for a block; payloads of 16 bytes and more begin with their number.

        So no broker gains anything by knowing a payload from before.
        """
        draw, sizes = random.Random(_SEED), self.sizes or (self.size,)
        n = max(_BLOCK_BYTES * len(sizes) // (sum(sizes) + _FRAME * len(sizes)), _DRAWS * len(topics))
        texts = {size: letters(size) for size in sizes}
        drawn = zip(draw.choices(topics, k=n), draw.choices(sizes, k=n), strict=True)
        return [
            (topic, b"%08d" % number + texts[size][8:] if size >= _NUMBERED else texts[size])
            for number, (topic, size) in enumerate(drawn)
        ]

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
            perBlock = groups[0].perBlock * self.receivers * self.pairs
            needed = times * perBlock / self._run(groups, times)[self.figure]
            if needed >= min(seconds, 0.2) / 2:
                return max(1, round(times * seconds / needed))
            times *= 4

    def _run(self, groups: Sequence["_Group"], times: int) -> Figures:
        for group in groups:
            group.barrier()
        loads = [group.load(times) for group in groups]
        seconds = pump(loads, [receipt for group in groups for receipt in group.receipts(times)])
        deliveries = times * sum(group.perBlock * self.receivers for group in groups)
        return {self.figure: deliveries / seconds}


class _Group:
    """A publisher and its subscribers."""

    def __init__(self, peer: Peer, fan: Fan, topics: Sequence[bytes], lines: ExitStack) -> None:
        self._peer = peer
        self._fan = fan
        self._topics = topics
        self._publisher = lines.enter_context(peer.connect())
        wanted = [[topic] for topic in topics] if fan.by == "one" else [topics] * fan.subscribers
        others = [lines.enter_context(peer.connect()) for _ in wanted[peer.publisherListens :]]
        listeners = [*others, self._publisher] if peer.publisherListens else others
        self._subscribers = list(zip(listeners, wanted, strict=True))
        for line, each in self._subscribers:
            peer.subscribe(line, [peer.everyTopic] if fan.by == "wildcard" else each)
        messages = fan.messages(topics)
        self.perBlock = len(messages)
        self._block = b"".join(peer.publication(self._publisher.who, *message) for message in messages)
        self._lengths = {
            size: len(peer.delivery(self._publisher.who, topics[0], letters(size)))
            for size in {len(payload) for _, payload in messages}
        }
        due: defaultdict[bytes, int] = defaultdict(int)
        for topic, payload in messages:
            due[topic] += self._lengths[len(payload)]
        self._dues = [sum(due[topic] for topic in each) for _, each in self._subscribers]
        self._reply = peer.reply(fan.receivers)

    @property
    def lines(self) -> list[Line]:
        """All connections, the publisher's first."""
        return list(dict.fromkeys([self._publisher, *(line for line, _ in self._subscribers)]))

    def check(self) -> None:
        """Send one message to each topic, and one of each size, and compare everything that comes, byte by byte.

        :raises Refused: if something else comes.
        """
        who, peer = self._publisher.who, self._peer
        sizes = [letters(size) for size in sorted(self._lengths)]
        messages = [*((topic, sizes[0]) for topic in self._topics), *((self._topics[0], each) for each in sizes[1:])]
        self._publisher.send(b"".join(peer.publication(who, *message) for message in messages))
        for line, topics in self._subscribers:
            place = dict.fromkeys(topics, 0) if self._fan.by == "wildcard" else {t: n for n, t in enumerate(topics)}
            mine = [message for message in messages if message[0] in place]
            expected = [peer.delivery(who, *message, place[message[0]]) for message in mine]
            if [len(each) for each in expected] != [self._lengths[len(payload)] for _, payload in mine]:
                raise Refused("deliveries to different topics differ in length")
            _expect(line, b"".join(expected))
        _expect(self._publisher, self._reply * len(messages))

    def barrier(self) -> None:
        """Clear every connection of what is none of the run's."""
        for line in self.lines:
            self._peer.barrier(line)

    def load(self, times: int) -> Load:
        """Return what the publisher sends."""
        return self._publisher.load(self._block, times)

    def receipts(self, times: int) -> list[Receipt]:
        """Return what everybody gets."""
        sizes = dict.fromkeys(self.lines, 0)
        for (line, _), due in zip(self._subscribers, self._dues, strict=True):
            sizes[line] += times * due
        sizes[self._publisher] += times * self.perBlock * len(self._reply)
        return [Receipt(line.socket, size) for line, size in sizes.items()]


def _expect(line: Line, expected: bytes) -> None:
    got = line.read(len(expected))
    if got != expected:
        raise Refused(f"got {got[:120]!r} where {expected[:120]!r} was due")
