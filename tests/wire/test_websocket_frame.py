"""WebSocket frames: what is written, and what the quick way takes and leaves."""

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.wire.websocket_frame import (
    BINARY,
    CLOSE,
    PING,
    TEXT,
    encodeFrame,
    encodeTexts,
    endOfFrame,
    frameHead,
    isUtf8,
    readSmallFrames,
)
from tests.dialects.websocket_peer import Frame, decode, masked

BOTH = frozenset({TEXT, BINARY})
#: Around every change of the length's form.
SIZES = (0, 1, 2, 3, 4, 5, 124, 125, 126, 127, 128, 65534, 65535, 65536, 70000)


def quick(
    data: bytes, kinds: frozenset[int] = BOTH, onlyText: bool = True, offset: int = 0, limit: int = 1 << 20
) -> tuple[list[bytes], int]:
    """Return the payloads that were taken, and where that ended."""
    taken: list[bytes] = []
    return taken, readSmallFrames(data, offset, kinds, limit, onlyText, taken.append)


class WritingTests(SynchronousTestCase):
    """Frames to clients."""

    def test_everySize(self) -> None:
        """A frame of any size reads back, with the shortest head there is."""
        for size in SIZES:
            payload = bytes(size)
            self.assertEqual(decode(encodeFrame(BINARY, payload)), ([Frame(2, payload)], b""), size)

    def test_headAlone(self) -> None:
        """The head says the size of what is to follow (RFC 6455, section 5.7)."""
        self.assertEqual(frameHead(TEXT, 5), b"\x81\x05")
        self.assertEqual(frameHead(BINARY, 256), b"\x82\x7e\x01\x00")
        self.assertEqual(frameHead(BINARY, 65536), b"\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x00")

    def test_documentsExamples(self) -> None:
        """The unmasked examples of RFC 6455, section 5.7."""
        self.assertEqual(encodeFrame(TEXT, b"Hello"), bytes.fromhex("810548656c6c6f"))
        self.assertEqual(encodeFrame(PING, b"Hello"), bytes.fromhex("890548656c6c6f"))

    def test_everyTextIsFrameOfItsOwnPrefixBeforeEach(self) -> None:
        """Every text is a frame of its own, the prefix before each."""
        texts = [b"", b"a", b"b" * 120, b"c" * 130, b"a"]
        frames, rest = decode(encodeTexts(b"MSG:c:s:", texts))
        self.assertEqual(frames, [Frame(1, b"MSG:c:s:" + text) for text in texts])
        self.assertEqual(rest, b"")

    @given(st.binary(max_size=300), st.lists(st.binary(max_size=300)))
    def test_anyTexts(self, prefix: bytes, texts: list[bytes]) -> None:
        """Whatever the texts are, they come out again."""
        frames, rest = decode(encodeTexts(prefix, texts))
        self.assertEqual([frame.payload for frame in frames], [prefix + text for text in texts])


class QuickWayTests(SynchronousTestCase):
    """What is taken past the parser that knows everything."""

    def test_documentsExample(self) -> None:
        """The masked example of RFC 6455, section 5.7."""
        data = bytes.fromhex("818537fa213d7f9f4d5158")
        self.assertEqual(quick(data), ([b"Hello"], len(data)))

    def test_everySize(self) -> None:
        """Frames are unmasked up to 65,535 bytes; longer ones are left."""
        for size in SIZES:
            payload = bytes(place & 0x7F for place in range(size))
            data = masked(1, payload)
            expected = ([payload], len(data)) if size < 65536 else ([], 0)
            self.assertEqual(quick(data), expected, size)

    def test_allThatStandTogetherAreTaken(self) -> None:
        """All that stand together are taken."""
        payloads = [b"x" * size for size in (3, 200, 0, 5)]
        data = b"".join(masked(1, payload) for payload in payloads)
        self.assertEqual(quick(data), (payloads, len(data)))

    def test_fromOffset(self) -> None:
        """It begins where it is told."""
        data = b"junk" + masked(1, b"hello")
        self.assertEqual(quick(data, offset=4), ([b"hello"], len(data)))

    def test_cutAnywhere(self) -> None:
        """A frame that is not whole is left, wherever it is cut."""
        for payload in (b"abc", b"x" * 200):
            whole = masked(1, b"first")
            data = whole + masked(2, payload)
            for cut in range(len(whole), len(data)):
                self.assertEqual(quick(data[:cut]), ([b"first"], len(whole)), cut)

    def test_leavesTheRest(self) -> None:
        """Every other frame is left: unmasked, fragments, reserved bits and opcodes, control, lengths too long."""
        first = masked(1, b"first")
        for other in (
            masked(1, b"hello", mask=None),
            masked(1, b"hello", fin=False),
            masked(0, b"hello"),
            *(masked(1, b"hello", rsv=rsv) for rsv in range(1, 8)),
            *(masked(opcode, b"hello") for opcode in range(3, 16)),
            masked(1, b"hello", width=2),
            masked(1, b"hello", width=8),
            masked(1, b"x" * 125, width=2),
        ):
            self.assertEqual(quick(first + other + first), ([b"first"], len(first)), other)

    def test_onlyKindsAskedForAreTaken(self) -> None:
        """Only the kinds asked for are taken."""
        data = masked(2, b"a") + masked(1, b"b")
        self.assertEqual(quick(data, frozenset({BINARY})), ([b"a"], len(masked(2, b"a"))))
        self.assertEqual(quick(data, frozenset({TEXT})), ([], 0))

    def test_payloadOverLimitIsLeft(self) -> None:
        """A payload over the limit is left."""
        for limit in (0, 100, 200):
            data = masked(1, b"x" * limit)
            self.assertEqual(quick(data, limit=limit), ([b"x" * limit], len(data)))
            self.assertEqual(quick(masked(1, b"x" * (limit + 1)), limit=limit), ([], 0))

    def test_notUtf8(self) -> None:
        """A payload that is no text is left where only text is wanted."""
        for payload in (b"\xff", b"caf\xe9", b"\xc0\x80", b"\xed\xa0\x80", "é".encode()[:1]):
            data = masked(1, payload)
            self.assertEqual(quick(data), ([], 0), payload)
            self.assertEqual(quick(data, onlyText=False), ([payload], len(data)))

    def test_textIsNotOnlyASCII(self) -> None:
        """Text is not only ASCII."""
        payload = "你好😀".encode()
        self.assertEqual(quick(masked(1, payload))[0], [payload])

    @given(st.lists(st.tuples(st.binary(max_size=300), st.binary(min_size=4, max_size=4))))
    def test_anyMask(self, given: list[tuple[bytes, bytes]]) -> None:
        """Every payload comes out whatever it is masked with."""
        data = b"".join(masked(2, payload, mask=mask) for payload, mask in given)
        self.assertEqual(quick(data, onlyText=False), ([payload for payload, _ in given], len(data)))

    @given(st.binary(max_size=200))
    def test_anyBytes(self, data: bytes) -> None:
        """Arbitrary bytes never raise, and it ends within them."""
        taken, offset = quick(data)
        self.assertTrue(0 <= offset <= len(data))
        self.assertTrue(all(map(isUtf8, taken)))


class EndTests(SynchronousTestCase):
    """Where a frame ends."""

    def test_wholeFrame(self) -> None:
        """It ends behind its payload, whatever follows."""
        for size in SIZES:
            for mask in (None, b"abcd"):
                data = masked(2, bytes(size), mask=mask)
                self.assertEqual(endOfFrame(b"##" + data + b"more", 2), 2 + len(data), (size, mask))

    def test_cutPayload(self) -> None:
        """It is known from the head alone."""
        data = masked(2, bytes(70000))
        for cut in range(14, 20):
            self.assertEqual(endOfFrame(data[:cut], 0), len(data))

    def test_cutHead(self) -> None:
        """As long as the head is cut, it is at least behind what there is."""
        for size in SIZES:
            data = masked(2, bytes(size))
            for cut in range(14):
                self.assertTrue(endOfFrame(data[:cut], 0) >= len(data[:cut]), (size, cut))

    def test_withoutPayload(self) -> None:
        """A frame may be nothing but a head."""
        self.assertEqual(endOfFrame(bytes([CLOSE, 0]) + b"more", 0), 2)


class Utf8Tests(SynchronousTestCase):
    """What counts as text."""

    @given(st.text())
    def test_text(self, text: str) -> None:
        """Every text does."""
        self.assertTrue(isUtf8(text.encode()))

    def test_none(self) -> None:
        """Overlong forms, surrogates and cut characters do not."""
        for payload in (b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"a\xe2\x82"):
            self.assertFalse(isUtf8(payload))
