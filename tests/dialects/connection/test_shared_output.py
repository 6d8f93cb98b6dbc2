"""Large output for many connections: all get the same bytes, and the system copies them once."""

import errno
import os
import socket
import weakref
from collections.abc import Sequence
from unittest import skipUnless

from twisted.trial.unittest import SynchronousTestCase

from fleximq.dialects.connection.shared_output import CAN_SHARE, SHARED_BYTES, SHARERS, SharedOutput
from fleximq.dialects.connection.write_backlog import Chunk

LARGE = os.urandom(SHARED_BYTES)


class Sender:
    """An outbox with some chunks, and both ends of its connection."""

    def __init__(self, test: SynchronousTestCase, chunks: Sequence[Chunk]) -> None:
        self.chunks = chunks
        self.ours, self.theirs = socket.socketpair()
        for each in (self.ours, self.theirs):
            each.setblocking(False)
            test.addCleanup(each.close)
        self.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 18)

    @property
    def sharableChunk(self) -> Chunk | None:
        """The last chunk if it is large."""
        return self.chunks[-1] if len(self.chunks[-1]) >= SHARED_BYTES else None

    def received(self) -> bytes:
        """Return what came."""
        received = b""
        while True:
            try:
                received += self.theirs.recv(1 << 20)
            except BlockingIOError:
                return received


@skipUnless(CAN_SHARE, "only where the system has memfd_create and sendfile")
class SharedOutputTests(SynchronousTestCase):
    """What is shared, and what is copied."""

    def setUp(self) -> None:
        """Count what is sent from shared pages."""
        self.shared = 0
        send = os.sendfile

        def counted(*arguments: int) -> int:
            self.shared += 1
            return send(*arguments)

        self.patch(os, "sendfile", counted)

    def send(self, senders: Sequence[Sender]) -> list[int]:
        """Send what all have."""
        output = SharedOutput.of(senders)
        if output is None:
            return [each.ours.sendmsg(each.chunks) for each in senders]
        sizes = [output.send(each.ours, each.chunks) for each in senders]
        output.close()
        return sizes

    def test_many(self) -> None:
        """A large chunk that many send is shared, whatever small ones come before it."""
        view = memoryview(LARGE)
        senders = [Sender(self, (b"%d" % (number % 10), view)) for number in range(SHARERS)]
        self.assertEqual(self.send(senders), [1 + len(LARGE)] * SHARERS)
        self.assertEqual(self.shared, SHARERS)
        for number, each in enumerate(senders):
            self.assertEqual(each.received(), b"%d" % (number % 10) + LARGE)

    def test_few(self) -> None:
        """Few have it copied, also beside others that have something else."""
        few, others = LARGE[:], LARGE + b"x"
        senders = [Sender(self, (few if number else others,)) for number in range(SHARERS)]
        self.send(senders)
        self.assertEqual(self.shared, 0)
        self.assertEqual([senders[0].received(), senders[1].received()], [LARGE + b"x", LARGE])

    def test_small(self) -> None:
        """Less than is worth it is copied."""
        senders = [Sender(self, (LARGE[1:],)) for _ in range(SHARERS)]
        self.send(senders)
        self.assertEqual((self.shared, senders[-1].received()), (0, LARGE[1:]))

    def test_full(self) -> None:
        """A connection that takes nothing is an error, one that takes a part is not."""
        senders = [Sender(self, (b"x", LARGE)) for _ in range(SHARERS)]
        output = SharedOutput.of(senders)
        assert output is not None
        self.addCleanup(output.close)

        def full(*arguments: int) -> int:
            raise BlockingIOError

        for sendFile, sent in ((lambda *arguments: 100, 101), (full, 1)):
            self.patch(os, "sendfile", sendFile)
            self.assertEqual(output.send(senders[0].ours, senders[0].chunks), sent)
        self.assertRaises(BlockingIOError, output.send, senders[0].ours, senders[0].chunks[1:])

    def test_othersBytes(self) -> None:
        """No other chunk is taken for a shared one: what is shared lives, and keeps its identity, until the end."""
        view = memoryview(LARGE)
        isAlive, senders = weakref.ref(view), [Sender(self, (view,)) for _ in range(SHARERS)]
        output = SharedOutput.of(senders)
        assert output is not None
        for each in senders:
            output.send(each.ours, each.chunks)
            each.chunks = (b"",)
        del view
        self.assertIsNotNone(isAlive())
        output.close()
        del output
        self.assertIsNone(isAlive())

    def test_refused(self) -> None:
        """Where the system has no such memory for us, output is copied."""

        def create(name: str) -> int:
            raise OSError(errno.EMFILE, "too many files")

        def write(file: int, chunk: Chunk) -> int:
            raise OSError(errno.ENOSPC, "no memory")

        for name, broken in (("memfd_create", create), ("write", write), ("write", lambda file, chunk: 1)):
            with self.subTest(name):
                patch = self.patch(os, name, broken)
                senders = [Sender(self, (LARGE,)) for _ in range(SHARERS)]
                self.send(senders)
                patch.restore()
                self.assertEqual((self.shared, senders[-1].received()), (0, LARGE))

    def test_closed(self) -> None:
        """No file stays open, and what was sent can be read afterwards."""
        before = len(os.listdir("/proc/self/fd"))
        senders = [Sender(self, (LARGE,)) for _ in range(SHARERS)]
        self.send(senders)
        self.assertEqual(len(os.listdir("/proc/self/fd")), before + 2 * SHARERS)
        self.assertEqual(senders[-1].received(), LARGE)
