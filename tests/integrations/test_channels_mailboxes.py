"""Unread messages for the channels of one process."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from importlib.util import find_spec
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

_MISSING = "" if find_spec("channels") else "needs the extra channels"
if not _MISSING:
    from fleximq.integrations.channels.mailboxes import Mailboxes


class MailboxesTests(SynchronousTestCase):
    """Puts and gets, on one event loop and on two."""

    if _MISSING:
        skip = _MISSING

    def setUp(self) -> None:
        self.clock = Clock()
        self.mailboxes = Mailboxes(60, self.clock.seconds)

    def put(self, *payloads: bytes, capacity: int = 100) -> list[bool]:
        """Put messages into the channel c, and return which fitted."""
        return [not self.mailboxes.put(["c"], payload, lambda channel: capacity) for payload in payloads]

    def run_(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Return the result of a coroutine."""
        return asyncio.run(asyncio.wait_for(work(), 60))

    async def get(self) -> bytes:
        """Get from the channel c."""
        return await self.mailboxes.get("c")

    def test_orderAndCapacity(self) -> None:
        """A full channel takes no more until one is received."""
        self.assertEqual(self.put(b"1", b"2", b"3", capacity=2), [True, True, False])

        async def both() -> list[bytes]:
            return [await self.get(), await self.get()]

        self.assertEqual(self.run_(both), [b"1", b"2"])
        self.assertEqual(self.put(b"4", capacity=2), [True])

    def test_severalChannels(self) -> None:
        """Those that are full do not get a message, and are counted."""
        self.put(b"1")
        self.assertEqual(self.mailboxes.put("abcd", b"2", lambda channel: 1), 1)
        self.assertEqual(self.run_(lambda: self.mailboxes.get("d")), b"2")
        self.assertEqual(self.run_(self.get), b"1")

    def test_nothingRemains(self) -> None:
        """Of channels that were read, abandoned, or whose messages have expired."""

        async def abandon() -> None:
            waiting = asyncio.create_task(self.get())
            await asyncio.sleep(0)
            self.assertEqual(len(self.mailboxes), 1)
            waiting.cancel()
            await asyncio.wait([waiting])

        self.run_(abandon)
        self.put(b"1")
        self.run_(self.get)
        self.assertEqual(len(self.mailboxes), 0)
        self.mailboxes.put(map(str, range(1000)), b"x", lambda channel: 1)
        self.assertEqual(len(self.mailboxes), 1000)
        self.clock.advance(60)
        self.put(b"2")
        self.assertEqual(len(self.mailboxes), 1)

    def test_expiredMessagesTakeNoRoom(self) -> None:
        """And are not received."""
        self.put(b"1")
        self.clock.advance(59)
        self.put(b"2")
        self.clock.advance(1)
        self.assertEqual(self.put(b"3", b"4", capacity=2), [True, False])
        self.assertEqual(self.run_(self.get), b"2")

    def test_aCancelledReceiverTakesNothing(self) -> None:
        """At each moment: before the message, and between message and receiver, when another one waits too."""

        async def cancel() -> list[bytes]:
            first, second = (asyncio.create_task(self.get()) for _ in range(2))
            await asyncio.sleep(0)
            self.put(b"1")  # wakes the first one in the next turn
            first.cancel()
            found = [await second]
            third = asyncio.create_task(self.get())
            await asyncio.sleep(0)
            third.cancel()
            await asyncio.wait([third])
            self.put(b"2")
            return [*found, await self.get()]

        self.assertEqual(self.run_(cancel), [b"1", b"2"])

    def test_otherThreadsWakeReceivers(self) -> None:
        """A put in another thread, where no event loop runs."""

        async def receive() -> bytes:
            waiting = asyncio.create_task(self.get())
            await asyncio.sleep(0)
            putting = threading.Thread(target=self.put, args=(b"1",))
            putting.start()
            found = await waiting
            putting.join()
            return found

        self.assertEqual(self.run_(receive), b"1")

    def test_receiversOfClosedLoopsAreSkipped(self) -> None:
        """A loop may be closed without cancelling its tasks; the message is for the next receiver."""
        loop = asyncio.new_event_loop()
        left = loop.create_task(self.get())
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()

        async def receive() -> bytes:
            waiting = asyncio.create_task(self.get())
            await asyncio.sleep(0)
            self.put(b"1")
            return await waiting

        self.assertEqual(self.run_(receive), b"1")
        left._log_destroy_pending = False  # type: ignore[attr-defined]

    def test_theEndOfTheConnectionIsRaised(self) -> None:
        """So that no receiver waits for nothing; unread messages can still be received."""

        async def fail() -> bytes:
            waiting = asyncio.create_task(self.get())
            await asyncio.sleep(0)
            self.mailboxes.put(["other"], b"1", lambda channel: 1)
            self.mailboxes.fail(OSError("lost"))
            with self.assertRaises(OSError):
                await waiting
            return await self.mailboxes.get("other")

        self.assertEqual(self.run_(fail), b"1")
        self.assertEqual(len(self.mailboxes), 0)
