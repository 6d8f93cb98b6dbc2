"""MiniMQ lines and commands: any pieces, the limit, and everything that is an error."""

import tracemalloc
from collections.abc import Iterable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import BadRequest, InvalidTopic, TooLarge
from fleximq.limits import MEBIBYTE, Limits
from fleximq.wire.minimq_line import (
    NO_MESSAGE,
    PONG,
    CommandKind,
    LineScanner,
    MiniCommand,
    encodeError,
    parseCommand,
    readAcknowledgements,
)
from tests.processor_time import Measured

STREAM = b"PRODUCE:1:::t:::x::::::\r\nCONSUME:t\n\nACK:1\r\nPING:\n"
LINES = [b"PRODUCE:1:::t:::x::::::", b"CONSUME:t", b"", b"ACK:1", b"PING:"]


def scan(pieces: Iterable[bytes], limit: int = Limits().line) -> list[bytes]:
    scanner = LineScanner(limit)
    return [line for piece in pieces for line in scanner.feed(piece)]


class LineTests(SynchronousTestCase):
    """Where lines end."""

    def test_lfAndCRLFEndLineAndAreNoPartOfIt(self) -> None:
        """LF and CRLF end a line and are no part of it."""
        self.assertEqual(scan([STREAM]), LINES)

    def test_anySplit(self) -> None:
        """A stream cut once at every place gives the same lines."""
        for cut in range(len(STREAM) + 1):
            self.assertEqual(scan([STREAM[:cut], STREAM[cut:]]), LINES)

    def test_smallPieces(self) -> None:
        """Pieces of one to nine bytes give the same lines."""
        for size in range(1, 10):
            self.assertEqual(scan(STREAM[at : at + size] for at in range(0, len(STREAM), size)), LINES)

    def test_lineWithoutItsEndIsHeldNotYielded(self) -> None:
        """A line without its end is held, not yielded."""
        scanner = LineScanner()
        self.assertEqual((list(scanner.feed(b"a\nbc")), scanner.buffered), ([b"a"], 2))
        self.assertEqual((list(scanner.feed(b"")), scanner.buffered), ([], 2))
        self.assertEqual((list(scanner.feed(b"\n")), scanner.buffered), ([b"bc"], 0))

    def test_carriageReturnsInside(self) -> None:
        """A CR that does not stand at the end belongs to the line."""
        self.assertEqual(scan([b"a\rb\n", b"\rc\n"]), [b"a\rb", b"\rc"])

    def test_largestLine(self) -> None:
        """A line of exactly 16 MiB comes through in pieces of 64 KiB."""
        line = b"x" * 16 * MEBIBYTE
        self.assertEqual(scan([*(line[at : at + 65536] for at in range(0, len(line), 65536)), b"\r\n"]), [line])

    def test_byteByByte(self) -> None:
        """A long line a byte at a time takes time and memory in proportion."""
        scanner = LineScanner()
        with Measured() as measured:
            tracemalloc.start()
            for _ in range(200_000):
                list(scanner.feed(b"x"))
            grown = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            self.assertEqual(list(scanner.feed(b"\n")), [b"x" * 200_000])
            self.assertLess(grown, 1_000_000)
        self.assertLess(measured.seconds, 10)

    @given(st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b"").rstrip(b"\r"))), st.randoms())
    def test_thereAndBack(self, lines: list[bytes], random: object) -> None:
        """Any lines in any pieces come out as they were sent, whichever end each has."""
        choose = random.choice  # type: ignore[attr-defined]
        stream = b"".join(line + choose([b"\n", b"\r\n"]) for line in lines)
        pieces = []
        while stream:
            size = choose([1, 2, 3, 7, 50])
            pieces.append(stream[:size])
            stream = stream[size:]
        self.assertEqual(scan(pieces), lines)


class LimitTests(SynchronousTestCase):
    """Lines that are too long."""

    def test_linesUpToLimitAreCarriedWithEitherEndInOnePieceAndInMany(self) -> None:
        """Lines up to the limit are carried, with either end, in one piece and in many."""
        for length in (9, 10):
            for end in (b"\n", b"\r\n"):
                stream = b"x" * length + end
                self.assertEqual(scan([stream * 3], 10), [b"x" * length] * 3)
                self.assertEqual(scan([bytes([number]) for number in stream], 10), [b"x" * length])

    def test_lineOverLimitIsRefusedAfterLinesBeforeIt(self) -> None:
        """A line over the limit is refused, after the lines before it."""
        for bad in (b"x" * 11 + b"\n", b"x" * 11 + b"\r\n", b"x" * 11, b"x" * 10 + b"\r\r", b"x" * 10 + b"\rx\n"):
            scanner = LineScanner(10)
            seen: list[Any] = []
            with self.assertRaises(TooLarge):
                seen.extend(scanner.feed(b"good\n"))
                for line in scanner.feed(b"0123456789\r\ngood\n" + bad):
                    seen.append(line)
            self.assertEqual(seen, [b"good", b"0123456789", b"good"])

    def test_aboveInOneRead(self) -> None:
        """A line over the limit is refused as well when its LF came with it and no line of the read has a CR."""
        seen = []
        with self.assertRaises(TooLarge):
            for line in LineScanner(10).feed(b"good\n" + b"x" * 11 + b"\nlater\n"):
                seen.append(line)
        self.assertEqual(seen, [b"good"])

    def test_beforeItsEnd(self) -> None:
        """The error comes with the first byte too many, not with the line's end."""
        scanner = LineScanner(10)
        for _ in range(10):
            self.assertEqual(list(scanner.feed(b"x")), [])
        self.assertRaises(TooLarge, list, scanner.feed(b"x"))

    def test_nothingHeld(self) -> None:
        """After the error nothing is held and everything more meets the same error."""
        scanner = LineScanner(10)
        self.assertRaises(TooLarge, list, scanner.feed(b"x" * 100))
        self.assertEqual(scanner.buffered, 0)
        self.assertRaises(TooLarge, list, scanner.feed(b"PING:\n"))

    def test_emptyReadAtTheLimit(self) -> None:
        """A line at the limit whose CR came already waits for its LF, also over an empty read."""
        scanner = LineScanner(10)
        self.assertEqual([*scanner.feed(b"x" * 10 + b"\r"), *scanner.feed(b""), *scanner.feed(b"\n")], [b"x" * 10])

    @given(st.lists(st.binary(max_size=30)))
    def test_anyBytes(self, pieces: list[bytes]) -> None:
        """Arbitrary bytes end in lines within the limit or in TooLarge, and hold no more than a line."""
        scanner = LineScanner(20)
        for piece in pieces:
            try:
                lines = list(scanner.feed(piece))
            except TooLarge:
                return
            self.assertTrue(all(len(line) <= 20 for line in lines))
            self.assertLessEqual(scanner.buffered, 21)


class CommandTests(SynchronousTestCase):
    """What a line says."""

    def test_fourCommandsWithWhatFollowsFirstColon(self) -> None:
        """The four commands, with what follows the first colon."""
        for line, command in [
            (b"PRODUCE:111-aaa:::my-topic:::x::::::", (CommandKind.PRODUCE, "111-aaa:::my-topic:::x::::::")),
            (b"PRODUCE:", (CommandKind.PRODUCE, "")),
            (b"CONSUME:my-topic", (CommandKind.CONSUME, "my-topic")),
            ("CONSUME:你好 é".encode(), (CommandKind.CONSUME, "你好 é")),
            (b"ACK:111-aaa", (CommandKind.ACK, "111-aaa")),
            (b"PING:", (CommandKind.PING, "")),
        ]:
            self.assertEqual(parseCommand(line), MiniCommand(*command))

    def test_noColon(self) -> None:
        """A line without a colon is refused, empty ones and known commands included."""
        for line in (b"", b"hello", b"PING", b"ACK", b"\xff"):
            self.assertEqual(str(self.assertRaises(BadRequest, parseCommand, line)), "no colon after the command")

    def test_unknownCommandsAreRefused(self) -> None:
        """Unknown commands are refused; case and white space matter."""
        for line in (b"FOO:bar", b"ping:", b"Produce:t:x", b":x", b" PING:", b"PING :", b"\xff:x", b"ack:1"):
            self.assertEqual(str(self.assertRaises(BadRequest, parseCommand, line)), "unknown command")

    def test_notUtf8(self) -> None:
        """Text that is not UTF-8 is refused."""
        for line in (b"PRODUCE:u:::t:::\xff\xfe::::::", b"CONSUME:\xff", b"PING:\xff", b"PRODUCE:\xed\xa0\x80:x"):
            self.assertEqual(str(self.assertRaises(BadRequest, parseCommand, line)), "the line is not UTF-8")

    def test_acknowledgementsNeverRaise(self) -> None:
        """Whatever follows ``ACK:`` is no error; what is not UTF-8 is nobody's id."""
        for payload in (b"", b"nobody", b":::", b"ERROR", b"x" * 5000):
            self.assertEqual(parseCommand(b"ACK:" + payload), MiniCommand(CommandKind.ACK, payload.decode()))
        for payload in (b"\xff", b"1\xff", b"\xed\xa0\x80"):
            self.assertEqual(parseCommand(b"ACK:" + payload), MiniCommand(CommandKind.ACK, ""))

    def test_consumedTopics(self) -> None:
        """CONSUME of no topic, of one too long, and of one that no line can carry is refused."""
        for topic, words in [
            ("", "empty topic"),
            ("t" * 1025, "topic is longer than 1024 bytes"),
            ("é" * 513, "topic is longer than 1024 bytes"),
            ("a:::b", "a topic cannot hold ::: or a line break, nor end with a colon"),
            ("a:", "a topic cannot hold ::: or a line break, nor end with a colon"),
            ("a\rb", "a topic cannot hold ::: or a line break, nor end with a colon"),
        ]:
            error = self.assertRaises(InvalidTopic, parseCommand, f"CONSUME:{topic}".encode())
            self.assertEqual((str(error), error.status, error.closes), (words, 400, False))
        for topic in ("t" * 1024, "é" * 512, ":a", "a:b", "a::b", "x y"):
            self.assertEqual(parseCommand(f"CONSUME:{topic}".encode()).payload, topic)

    @given(
        st.binary(max_size=40)
        | st.sampled_from([b"PRODUCE:", b"CONSUME:"]).flatmap(lambda w: st.binary().map(w.__add__))
    )
    def test_anyLine(self, line: bytes) -> None:
        """Arbitrary lines end in a command or in BadRequest."""
        try:
            command = parseCommand(line)
        except BadRequest as error:
            self.assertFalse(line.startswith(b"ACK:"))
            self.assertTrue(str(error))
        else:
            self.assertTrue(line.startswith(command.kind.value + b":"))

    @given(st.binary(max_size=40))
    def test_anyAcknowledgement(self, payload: bytes) -> None:
        """Arbitrary bytes behind ``ACK:`` never raise."""
        self.assertIs(parseCommand(b"ACK:" + payload).kind, CommandKind.ACK)


class AnswerTests(SynchronousTestCase):
    """What the broker says."""

    def test_runOfACKsIsReadUpToFirstOtherLine(self) -> None:
        """A run of ACKs is read up to the first other line; text that is not UTF-8 is no id."""
        lines = [b"ACK:0", b"ACK:1", b"ACK:", b"ACK:\xff", b"ACK:a:b", b"ACK", b"ACK:2"]
        self.assertEqual(readAcknowledgements(lines, 1), ["1", "", "", "a:b"])
        self.assertEqual(readAcknowledgements(lines, 5), [])

    def test_answersOfDocument(self) -> None:
        """The answers of the document."""
        self.assertEqual(
            (NO_MESSAGE, PONG, encodeError(400, "unknown command")),
            (b"NO_MSG\n", b"PONG:\n", b"ERROR:400:unknown command\n"),
        )

    def test_errorsAreOneLine(self) -> None:
        """Line breaks in the words become spaces, so that an error is one line, always."""
        self.assertEqual(encodeError(500, "one\ntwo\r\nthree\n"), b"ERROR:500:one two three\n")
        self.assertEqual(encodeError(500, "\ud800"), b"ERROR:500:?\n")
