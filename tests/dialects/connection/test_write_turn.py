"""The turn: everybody writes once at its end, and what slow readers leave comes behind."""

from collections import deque

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.dialects.connection.write_backlog import Chunk
from fleximq.dialects.connection.write_turn import MANY, POSTPONED, SMALL_BYTES, WriteTurn


class Writer:
    """Counts how often it was asked to write; may say more, or break, when asked."""

    def __init__(
        self, turn: WriteTurn, more: "Writer | None" = None, error: Exception | None = None, pending: int = 0
    ) -> None:
        self.turn = turn
        self.flushed = 0
        self.pendingBytes = pending
        self._more = more
        self._error = error

    def flush(self) -> None:
        """Count."""
        self.flushed += 1
        if self._more is not None:
            more, self._more = self._more, None
            self.turn.add(more)
        if self._error is not None:
            raise self._error


class Written:
    """Notes when it was asked to write."""

    pendingBytes = 0

    def __init__(self, order: list[str]) -> None:
        self._order = order

    def flush(self) -> None:
        """Note it."""
        self._order.append("write")


class TurnTests(SynchronousTestCase):
    """Within a read, and outside of one."""

    def setUp(self) -> None:
        """A turn on a clock."""
        self.clock = Clock()
        self.turn = WriteTurn(self.clock)

    def test_atItsEnd(self) -> None:
        """Within a turn nothing is written before its end, then each writes once, and no timer is made."""
        first, second = Writer(self.turn), Writer(self.turn)
        self.turn.open = True
        self.turn.add(first)
        self.turn.add(second)
        self.assertEqual((first.flushed, self.clock.getDelayedCalls()), (0, []))
        self.turn.flush()
        self.turn.flush()
        self.assertEqual((first.flushed, second.flushed, self.turn.open), (1, 1, False))

    def test_outside(self) -> None:
        """Outside of one, everything is written in the clock's next round, with one timer."""
        writers = [Writer(self.turn) for _ in range(5)]
        for writer in writers:
            self.turn.add(writer)
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        self.clock.advance(0)
        self.assertEqual([writer.flushed for writer in writers], [1] * 5)

    def test_againOutside(self) -> None:
        """After a turn the next word outside of one is written too."""
        for _ in range(3):
            writer = Writer(self.turn)
            self.turn.add(writer)
            self.clock.advance(0)
            self.assertEqual(writer.flushed, 1)

    def test_openedMeanwhile(self) -> None:
        """A read that comes first takes what was said outside with it."""
        writer = Writer(self.turn)
        self.turn.add(writer)
        self.turn.open = True
        self.turn.flush()
        self.clock.advance(0)
        self.assertEqual(writer.flushed, 1)

    def test_saidWhileWriting(self) -> None:
        """What is said while others write is written in the same turn."""
        late = Writer(self.turn)
        self.turn.open = True
        self.turn.add(Writer(self.turn, more=late))
        self.turn.flush()
        self.assertEqual(late.flushed, 1)

    def test_broken(self) -> None:
        """One that raises is logged; the others write all the same, then and later."""
        broken, sound = Writer(self.turn, error=ZeroDivisionError()), Writer(self.turn)
        for _ in range(2):
            self.turn.add(broken)
            self.turn.add(sound)
            self.turn.flush()
        self.assertEqual((broken.flushed, sound.flushed), (2, 2))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 2)

    def test_packsBehind(self) -> None:
        """What a slow reader left is packed when all have written, though it was noted before; once."""
        order: list[str] = []
        self.turn.open = True
        self.turn.later(lambda: order.append("pack"))
        self.turn.add(Written(order))
        self.turn.flush()
        self.turn.flush()
        self.assertEqual(order, ["write", "pack"])

    def test_packsOutside(self) -> None:
        """Outside of a turn that is done in the clock's next round."""
        order: list[str] = []
        self.turn.later(lambda: order.append("pack"))
        self.clock.advance(0)
        self.assertEqual((order, self.clock.getDelayedCalls()), (["pack"], []))

    def test_freesByAndBy(self) -> None:
        """Much memory is not let go of at once, but in the rounds that follow; then no timer is left."""
        pieces: deque[Chunk] = deque(bytes(1) for _ in range(40))
        self.turn.freeLater(pieces)
        self.assertEqual((len(pieces), len(self.clock.getDelayedCalls())), (24, 1))
        self.clock.advance(0)
        self.assertEqual((len(pieces), self.clock.getDelayedCalls()), (0, []))


class Turns(Clock):
    """A clock that, like a reactor, makes calls without delay in the next turn, not in the present one."""

    def turn(self, seconds: float = 0.0) -> None:
        """Let some time go by, then make the calls that were there before."""
        self.rightNow += seconds
        calls, self.calls = self.calls, []
        for call in calls:
            call.func(*call.args)


class HoldTests(SynchronousTestCase):
    """Few bytes for each of many wait for the next reads."""

    def setUp(self) -> None:
        """A turn on a clock, at second 0."""
        self.clock = Turns()
        self.turn = WriteTurn(self.clock)

    def read(self, number: int = MANY, size: int = 1) -> list[Writer]:
        """Process a full read with so many bytes for so many; return who did not write yet."""
        writers = [Writer(self.turn, pending=size) for _ in range(number)]
        self.turn.open = True
        for each in writers:
            self.turn.add(each)
        if not self.turn.postpone(self.clock.seconds()):
            self.turn.flush()
        self.assertFalse(self.turn.open)
        return [each for each in writers if not each.flushed]

    def test_many(self) -> None:
        """All wait if they are many and have little."""
        self.assertEqual((self.read(MANY - 1), self.read(size=SMALL_BYTES)), ([], []))
        self.assertEqual(len(self.read()), MANY)

    def test_nextRead(self) -> None:
        """They are written with the output of a read that does not wait."""
        held = self.read()
        self.turn.open = True
        self.turn.flush()
        self.assertEqual([each.flushed for each in held], [1] * MANY)

    def test_noMore(self) -> None:
        """Without another full read they are written when the reactor has looked for input once more."""
        held = self.read()
        self.clock.turn()
        self.assertEqual(held[0].flushed, 0)
        self.clock.turn()
        self.assertEqual([each.flushed for each in held], [1] * MANY)
        self.assertEqual(self.clock.calls, [])

    def test_goOn(self) -> None:
        """While full reads follow they wait, but not longer than is allowed."""
        first = self.read()
        for _ in range(4):
            self.clock.turn(POSTPONED / 4)
            self.assertNotEqual(self.read(), [])
        self.assertEqual(first[0].flushed, 0)
        self.clock.turn(POSTPONED / 4)
        self.assertEqual((self.read(), first[0].flushed), ([], 1))
        self.clock.turn()
        self.assertEqual(self.clock.calls, [])

    def test_slowReaders(self) -> None:
        """Nobody waits if work for slow readers is due."""
        self.turn.open = True
        self.turn.later(lambda: None)
        self.assertEqual(self.read(), [])
