"""The compiled core and the reference, fed with the same bytes in the same pieces: equal results, equal errors."""

import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.envelope import QueueDelivery
from fleximq.compiled import choice
from fleximq.errors import BrokerError
from fleximq.values import message_cost, message_loops
from fleximq.values.message import Content, Message
from fleximq.values.message_cost import ANY, OVERHEAD
from fleximq.values.publication_head import Head
from fleximq.wire import blipmq_frame, fleximq_layout_b, fleximq_scanner, websocket_frame
from fleximq.wire.blipmq_payload import encodePublish
from fleximq.wire.fleximq_scanner import FIXED_BYTES, FrameTooLarge, singleFrames
from fleximq.wire.websocket_frame import BINARY, TEXT
from tests.compiled.twins import COMPILED, REASON, REFERENCE, reference
from tests.dialects.flexi_peer import FlexiServer
from tests.dialects.fleximq.test_runs import ENDS, OTHERS, PUBLICATIONS, Everybody, said
from tests.wire.flexi_variants import LAYOUT_B, MAPS, Variant, inLayoutB
from tests.wire.test_fleximq_scanner import STREAM
from tests.wire.transcoded import TranscodedScanner

LIMIT = 600
cuts = st.lists(st.integers(0, 1500), max_size=12)
frames = st.one_of(
    st.sampled_from(STREAM),
    st.builds(
        lambda frame, place, byte: frame[: place % len(frame)] + bytes((byte,)) + frame[place % len(frame) + 1 :],
        st.sampled_from(STREAM),
        st.integers(0, 40),
        st.sampled_from([0, 1, 2, 127, 128, 255]),
    ),
    st.builds(lambda size: STREAM[2][:-8] + size.to_bytes(8, "big") + bytes(min(size, 700)), st.integers(0, 2**64 - 1)),
    st.builds(lambda size: STREAM[2][:-8] + size.to_bytes(8, "big") + bytes(size), st.integers(0, 700)),
    st.binary(max_size=30),
)
streams = st.lists(frames, max_size=25)
#: PUBLISHes, POLLs and others, whole and broken.
blipFrames = st.one_of(
    st.builds(
        lambda topic, id, message: blipmq_frame.encodeRun(encodePublish(topic, 1), [id], [message]),
        st.sampled_from(["a", "b", "longer"]),
        st.integers(0, 2**64 - 1),
        st.binary(max_size=40),
    ),
    st.builds(
        blipmq_frame.encodeFrame,
        st.sampled_from(blipmq_frame.FrameType),
        st.integers(0, 3),
        st.sampled_from([b"", b"\0", b"\0\0\1", b"\0\xff\xffa", bytes(8), bytes(7) + b"\1"]),
    ),
    st.builds(
        lambda length, kind: length.to_bytes(4, "big") + bytes((kind,)) + bytes(8),
        st.one_of(st.integers(0, LIMIT + 2), st.integers(2**31 - 2, 2**32 - 1)),
        st.integers(0, 11),
    ),
)
#: Messages with ids and headers of all costs.
ids = st.none() | st.text(max_size=8)
messages = st.builds(
    lambda size, one, two, three, pairs: Message(
        bytes(size),
        Content.BYTES,
        message_id=one,
        correlation_id=two,
        reply_to=three,
        head=None if pairs is None else Head("t", bytes(pairs)),
    ),
    st.integers(0, 500),
    ids,
    ids,
    ids,
    st.none() | st.sampled_from([0, OVERHEAD, OVERHEAD + 1, 1000]),
)
socketFrames = st.builds(
    lambda first, size, wide, mask, text: _masked(first, (text * (size // max(1, len(text)) + 1))[:size], mask, wide),
    st.sampled_from([TEXT, TEXT, BINARY, 0x89, 0x01]),
    st.one_of(st.integers(0, 130), st.sampled_from([65_535, 65_536])),
    st.booleans(),
    st.binary(min_size=4, max_size=4),
    st.sampled_from([b"text", "\u00e9t\u00e9".encode(), b"\xff", b""]),
)


def _masked(first: int, payload: bytes, mask: bytes, wide: bool) -> bytes:
    """Return a frame of a client; ``wide`` spends two bytes on a length that needs one."""
    size = len(payload)
    if size > 0xFFFF:
        length = b"\xff" + size.to_bytes(8, "big")
    else:
        length = b"\xfe" + size.to_bytes(2, "big") if size > 125 or wide else bytes((0x80 | size,))
    return bytes((first,)) + length + mask + bytes(byte ^ mask[place % 4] for place, byte in enumerate(payload))


def pieces(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    """Return data cut at these places, empty pieces included."""
    return [data[start:end] for start, end in pairwise([0, *sorted(cuts), len(data)])]


def steps(scanner: Any, data: bytes, cuts: Iterable[int]) -> Iterator[Any]:
    """Yield the single frames of each piece and the bytes that are buffered after it; at the end the error, if any."""
    for piece in pieces(data, cuts):
        found: list[tuple[bytes, bytes]] = []
        try:
            for envelope, source, start, end, count in scanner.spans(piece):
                run = singleFrames(source[start:end], len(envelope))
                assert len(run) == count
                found += [(envelope, frame) for frame in run]
        except BrokerError as error:
            yield found, type(error), str(error), error.envelope if isinstance(error, FrameTooLarge) else None
            return
        yield found, scanner.buffered


class SameTests(SynchronousTestCase):
    """One class or function after the other, then whole sessions."""

    if not COMPILED:
        skip = REASON

    @given(st.booleans(), st.booleans(), streams, cuts)
    def test_scanners(self, isTranscoded: bool, isB: bool, stream: list[bytes], cuts: list[int]) -> None:
        """Scanners, with a transcoder before them or not, yield and buffer the same and raise the same errors."""
        data = b"".join(inLayoutB(each) if isB and each in STREAM else each for each in stream)
        if isTranscoded:
            compiled, reference = (list(steps(TranscodedScanner(LIMIT, each), data, cuts)) for each in (True, False))
        else:
            kinds = choice.FlexiScanner, REFERENCE["FlexiScanner"]
            compiled, reference = (list(steps(kind(LIMIT), data, cuts)) for kind in kinds)
        self.assertEqual(compiled, reference)

    @given(streams, cuts)
    def test_spans(self, stream: list[bytes], cuts: list[int]) -> None:
        """In layout A the runs are the same as well."""
        compiled, reference = choice.FlexiScanner(LIMIT), REFERENCE["FlexiScanner"](LIMIT)
        for piece in pieces(b"".join(stream), cuts):
            spans: list[Any] = []
            for scanner in (compiled, reference):
                try:
                    spans.append(list(scanner.spans(piece)))
                except BrokerError as error:
                    spans.append(repr(error))
            self.assertEqual(*spans)
            if isinstance(spans[0], str):
                return

    @given(st.lists(st.sampled_from(STREAM)))
    def test_toLayoutB(self, stream: list[bytes]) -> None:
        """Complete frames become the same frames of layout B."""
        frames = b"".join(stream)
        self.assertEqual(choice.toLayoutB(frames), fleximq_layout_b.toLayoutB(frames))

    @given(streams, st.booleans())
    def test_fromLayoutB(self, stream: list[bytes], isB: bool) -> None:
        """The same frames are converted, up to the first one that is cut or not allowed."""
        data = b"".join(inLayoutB(each) if isB and each in STREAM else each for each in stream)
        self.assertEqual(choice.fromLayoutB(data, LIMIT), fleximq_layout_b.fromLayoutB(data, LIMIT))

    @given(st.lists(blipFrames, max_size=25), cuts)
    def test_blipmq(self, stream: list[bytes], cuts: list[int]) -> None:
        """The scanners of BlipMQ yield the same runs, buffer as much and raise the same errors."""
        scanners = choice.BlipScanner(LIMIT), blipmq_frame.BlipScanner(LIMIT)
        for piece in pieces(b"".join(stream), cuts):
            results: list[Any] = []
            for scanner in scanners:
                runs: list[Any] = []
                try:
                    for run in scanner.feed(piece):
                        runs.append(run)
                except BrokerError as error:
                    runs.append(repr(error))
                results.append((runs, scanner.buffered))
            self.assertEqual(*results)

    @given(st.binary(max_size=20), st.lists(st.tuples(st.integers(0, 2**64 - 1), st.binary(max_size=300))))
    def test_encodeRun(self, head: bytes, run: list[tuple[int, bytes]]) -> None:
        """Runs of BlipMQ are encoded equally; odd arguments are refused equally."""
        ids, messages = [id for id, _ in run], [message for _, message in run]
        self.assertEqual(choice.encodeRun(head, ids, messages), blipmq_frame.encodeRun(head, ids, messages))
        views = [memoryview(message) for message in messages]
        self.assertEqual(choice.encodeRun(head, ids, views), blipmq_frame.encodeRun(head, ids, messages))  # type: ignore[arg-type]
        self.assertRaises(ValueError, choice.encodeRun, head, [*ids, 1], messages)

    @given(
        st.lists(socketFrames, max_size=12), st.binary(max_size=20), st.integers(0, 30), st.integers(0, 70_000),
        st.booleans(),
    )  # fmt: skip
    def test_readSmallFrames(self, frames: list[bytes], noise: bytes, offset: int, limit: int, onlyText: bool) -> None:
        """The same payloads are read, up to the same place."""
        data = b"".join(frames) + noise
        for whole in (data, data[:-3], data[: len(data) // 2]):
            results: list[Any] = []
            for read in (choice.readSmallFrames, websocket_frame.readSmallFrames):
                taken: list[bytes] = []
                results.append((read(whole, offset, frozenset({TEXT, BINARY}), limit, onlyText, taken.append), taken))
            self.assertEqual(*results)

    @given(st.binary(max_size=200), st.lists(st.integers(0, 70_000), max_size=5), st.lists(st.binary(max_size=3)))
    def test_encodeTexts(self, prefix: bytes, sizes: list[int], short: list[bytes]) -> None:
        """The same frames for texts of any sizes."""
        texts = [bytes(size) for size in sizes] + short
        self.assertEqual(choice.encodeTexts(prefix, texts), websocket_frame.encodeTexts(prefix, texts))

    def test_large(self) -> None:
        """Large reads arrive unchanged, in the layout of each subscriber."""
        for layouts in ((MAPS, MAPS), (MAPS, LAYOUT_B), (LAYOUT_B, MAPS), (LAYOUT_B, LAYOUT_B)):
            server = FlexiServer(Clock())
            publisher, subscriber = peers = server.connect(), server.connect()
            for peer, variant in zip(peers, layouts, strict=True):
                peer.variant = variant
                peer.join()
            subscriber.subscribe("t", "u")
            for topic in ("t", "u", "t", "u"):
                publisher.publish(topic, "warm")
            subscriber.heard()

            def frames(variant: Variant, id: int = publisher.id) -> bytes:
                numbers = range(1000)
                return b"".join(variant.frame("PUB", id, {"topic": "tu"[n % 3 % 2]}, bytes(n)) for n in numbers)

            self.assertEqual(publisher.say(frames(layouts[0])).heard(), b"")
            self.assertEqual(subscriber.heard(), frames(layouts[1]))
            self.assertEqual(publisher.protocol.session.traffic.messagesIn, 1005)

    def test_incomplete(self) -> None:
        """Frames that are cut are refused, not read beyond their end."""
        for size in range(1, len(STREAM[2])):
            self.assertRaises(ValueError, choice.toLayoutB, STREAM[2][:size])
        frame = STREAM[2]
        head = FIXED_BYTES + int.from_bytes(frame[FIXED_BYTES - 4 : FIXED_BYTES], "big")
        for size in range(9 * len(frame) + 1, 10 * len(frame)):
            found: list[Any] = []
            for joinedPayloads in (choice.joinedPayloads, fleximq_scanner.joinedPayloads):
                try:
                    found.append(list(joinedPayloads((frame * 10)[:size], head)))
                except struct.error as error:
                    found.append(repr(error))
            self.assertEqual(*found)
            self.assertRaises(struct.error, choice.payloads, (frame * 10)[:size], head)

    @given(st.lists(messages, max_size=20), st.one_of(st.just(ANY), st.integers(-1, 5000)))
    def test_costs(self, run: list[Message], most: int) -> None:
        """Messages cost the same, and so many reach a bound."""
        compiled = message_cost.cost(run), message_cost.measure(iter(run), most)
        self.assertIsNotNone(message_cost.compiled)
        with reference():
            self.assertEqual(compiled, (message_cost.cost(run), message_cost.measure(run, most)))

    @given(st.lists(messages, max_size=20), st.integers(0, 1), st.integers(0, 1 << 60), st.data())
    def test_loops(self, run: list[Message], qos: int, first: int, data: st.DataObject) -> None:
        """Loops over the messages of queues return the same, and leave the same."""

        def play(tags: list[int]) -> Any:
            made = message_loops.firstDeliveries(QueueDelivery, range(5, 5 + len(run)), 160, 4, run)
            sizes: dict[int, int] = {3: 7}
            added = message_loops.addSizes(sizes, made)
            message_loops.putEach(sizes, range(3, 3 + len(run)), list(range(len(run))))
            removed = message_loops.popEach(sizes, tags), message_loops.popFirst(deque(run), len(run) // 2)
            inner = message_loops.quotients(tags, 160, 10, 4)
            numbered = message_loops.numbered(run, first)
            copies = [message_loops.copies(each, [b"", b"x"], [first, 7]) for each in run]
            others = numbered, message_loops.offsetsOf([*numbered, *run]), message_loops.withQos(run, qos)
            payloads = [each.payload for each in run]
            runs = [message_loops.messagesWith(payloads, each[1:], first) for each in run]
            size = message_loops.sizeOf(payloads)
            frames = choice.runFrames(b"prefix", range(4, 4 + 160 * len(payloads), 160), payloads)
            steps = [message_loops.stepping(each, 160) for each in (tags, range(4, 2000, 160), [7])]
            return others, copies, made, added, removed, sizes, inner, runs, size, frames, steps, set(map(type, made))

        tags = data.draw(st.lists(st.integers(0, 2000) | st.integers(5, 25).map(lambda tag: tag * 160 + 4)))
        compiled = play(tags)
        self.assertIsNot(message_loops.numbered, message_loops.REFERENCE["numbered"])
        with reference():
            self.assertEqual(compiled, play(tags))

    def test_loopsRefuseOtherValues(self) -> None:
        """Values of another kind, or of another number, are an error as in the reference."""
        loops, one = message_loops, Message(b"", Content.BYTES)
        wrong: list[Callable[[], object]] = [
            lambda: loops.numbered([("payload",)], 1),  # type: ignore[list-item]
            lambda: loops.copies(("payload",), [b""], [1]),  # type: ignore[arg-type]
            lambda: loops.copies(one, [b""], [1, 2]),
            lambda: loops.sizeOf([1]),  # type: ignore[list-item]
            lambda: loops.stepping(["1"], 1),  # type: ignore[list-item]
            lambda: loops.offsetsOf([("payload",)]),  # type: ignore[list-item]
            lambda: loops.withQos([("payload",)], 1),  # type: ignore[list-item]
            lambda: loops.firstDeliveries(dict, [1], 1, 0, [one]),  # type: ignore[type-var]
            lambda: loops.firstDeliveries(QueueDelivery, [1, 2], 1, 0, [one]),
            lambda: loops.firstDeliveries(QueueDelivery, [], 1, 0, [one]),
            lambda: loops.addSizes({}, [(1, one)]),  # type: ignore[list-item]
            lambda: loops.putEach({}, [1, 2], [one]),
            lambda: loops.putEach({}, [1], [one, one]),
            lambda: loops.popFirst(deque([one]), 2),
            lambda: loops.popEach({}, 1),  # type: ignore[arg-type]
            lambda: loops.quotients(["1"], 160, 10, 4),  # type: ignore[list-item]
        ]
        self.assertRaises(TypeError, loops.messagesWith, [b""], (1, "few"), 1)
        self.assertRaises(TypeError, choice.runFrames, b"", range(1), [1])
        self.assertRaises(ValueError, choice.runFrames, b"", range(2), [b""])
        for each in wrong:
            self.assertRaises((TypeError, ValueError, IndexError), each)
            with reference():
                self.assertRaises((TypeError, ValueError, IndexError), each)

    @given(
        st.lists(st.one_of(PUBLICATIONS, PUBLICATIONS, st.tuples(st.sampled_from(OTHERS), st.just(0))), max_size=40),
        st.sampled_from(ENDS),
        st.lists(st.booleans(), min_size=3, max_size=3),
        cuts,
    )
    def test_sessions(
        self, said: list[tuple[str, int]], end: list[tuple[str, int]], kind: list[bool], cuts: list[int]
    ) -> None:
        """Sessions deliver, answer and count the same."""

        def play() -> list[Any]:
            return list(_played([*said, *end], kind, cuts))

        compiled = play()
        with reference():
            self.assertEqual(compiled, play())


def _played(steps: list[tuple[str, int]], kind: list[bool], cuts: Iterable[int]) -> Iterator[Any]:
    """Yield what everybody got after each piece, and what was counted."""
    warm, crowded, isB = kind
    everybody = Everybody(warm, crowded)
    shaped: Callable[[bytes], bytes] = bytes
    if isB:
        everybody.publisher = everybody.server.connect()
        everybody.publisher.variant = LAYOUT_B
        everybody.publisher.join().subscribe("none")
        everybody.publisher.protocol.session.reads.envelopes.hasDropped = crowded
        shaped = inLayoutB
    id = everybody.publisher.id.to_bytes(4, "big")
    data = b"".join(shaped(frame[:2] + id + frame[6:]) for frame in said(steps))
    for piece in pieces(data, cuts):
        everybody.publisher.say(piece)
        yield everybody.outcome(), everybody.publisher.protocol.session.traffic.messagesIn
