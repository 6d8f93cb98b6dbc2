"""SIGTERM while a thousand clients publish: whatever was confirmed is kept, and everybody is told in its own way."""

import asyncio
import itertools
import json
import os
import resource
import signal
import struct
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.broker_process import BrokerProcess
from tests.conversations.clients import counted
from tests.dialects.websocket_peer import CLOSE, TEXT, decode, masked
from tests.nightly import repetitions
from tests.wire.flexi_variants import MAPS

#: How many clients of each dialect there are.
CROWD = {
    "fleximq": repetitions(80, 400),
    "blipmq": repetitions(50, 250),
    "minimq": repetitions(50, 250),
    "identity": repetitions(20, 100),
    "http": repetitions(20, 100),
}
#: Seconds that the broker has for its end; who goes on is dismissed after half of them.
DRAIN = 6
#: Seconds that any of this may take.
PATIENCE = 300.0
TOPIC = "d.all"


@dataclass
class Story:
    """What one client has seen: what was confirmed, how it was told, and how it ended."""

    name: str
    confirmed: set[str] = field(default_factory=set)
    told: list[int] = field(default_factory=list)
    left: bytes = b""
    reset: bool = False

    def next(self) -> str:
        """Return what to publish next."""
        return f"{self.name}-{len(self.confirmed)}"


class Wire:
    """A connection, and what has come on it that was not looked at."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self.received = b""

    def say(self, data: bytes) -> None:
        """Send these bytes."""
        self.writer.write(data)

    async def more(self) -> None:
        """Wait for more bytes.

        :raises EOFError: the broker has ended the connection.
        """
        data = await self._reader.read(1 << 16)
        if not data:
            raise EOFError
        self.received += data


async def fleximq(wire: Wire, story: Story, obeys: bool) -> None:
    """PUB and PING, again and again; one that obeys leaves when it is told."""

    async def hear() -> tuple[str, int]:
        while (taken := MAPS.take(wire.received)) is None:
            await wire.more()
        heard, wire.received = taken
        if heard.kind == "NOTIF":
            story.told.append(heard.status or 0)
        return heard.kind, heard.sender

    wire.say(MAPS.frame("JOIN", 0))
    _, id = await hear()
    while not (obeys and story.told):
        message = story.next()
        wire.say(MAPS.frame("PUB", id, {"topic": TOPIC}, b"\xd9" + bytes([len(message)]) + message.encode()))
        wire.say(MAPS.frame("PING", id, {"keepalive": {"timestamp": len(story.confirmed)}}))
        while (await hear())[0] != "PONG":
            pass
        story.confirmed.add(message)


async def blipmq(wire: Wire, story: Story, obeys: bool) -> None:
    """PUBLISH and PING."""

    def frame(kind: int, payload: bytes = b"") -> bytes:
        return struct.pack(">IBQ", 9 + len(payload), kind, 1) + payload

    async def hear() -> int:
        while len(wire.received) < 4 or len(wire.received) < 4 + int.from_bytes(wire.received[:4], "big"):
            await wire.more()
        kind = wire.received[4]
        wire.received = wire.received[4 + int.from_bytes(wire.received[:4], "big") :]
        return kind

    wire.say(frame(1, b"\0\1") + frame(2, counted("key")))
    await hear(), await hear()
    while True:
        message = story.next()
        wire.say(frame(3, b"\1" + counted(TOPIC) + message.encode()) + frame(7))
        if await hear() != 8:
            raise AssertionError("no PONG")
        story.confirmed.add(message)


async def minimq(wire: Wire, story: Story, obeys: bool) -> None:
    """PRODUCE; half of them are always some messages ahead of their answers."""
    ahead = 1 if obeys else 50
    for number in itertools.count():
        while number - len(story.confirmed) >= ahead:
            while b"\n" not in wire.received:
                await wire.more()
            line, wire.received = wire.received.split(b"\n", 1)
            if line.decode() != story.next():
                raise AssertionError(line)
            story.confirmed.add(story.next())
        wire.say(f"PRODUCE:{story.name}-{number}:::{TOPIC}:::{story.name}-{number}::::::\n".encode())


async def identity(wire: Wire, story: Story, obeys: bool) -> None:
    """PUBLISH to a channel of its own, of which each text comes back when it is kept."""
    channel = f"d.{story.name}"

    async def hear() -> str:
        while True:
            frames, wire.received = decode(wire.received)
            for each in frames:
                if each.opcode == TEXT:
                    texts.append(each.payload.decode())
                    story.told += [503] * texts[-1].startswith("ERROR:503:")
                elif each.opcode == CLOSE:
                    story.told.append(int.from_bytes(each.payload[:2], "big"))
                    wire.say(masked(CLOSE, each.payload))
            if texts:
                return texts.pop(0)
            await wire.more()

    texts: list[str] = []
    lines = "GET / HTTP/1.1", "Host: localhost", "Upgrade: websocket", "Connection: Upgrade", \
        "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="  # fmt: skip
    wire.say("\r\n".join((*lines, "", "")).encode())
    while b"\r\n\r\n" not in wire.received:
        await wire.more()
    wire.received = wire.received.partition(b"\r\n\r\n")[2]
    wire.say(masked(TEXT, f"SUBSCRIBE:{channel}".encode()))
    while not (await hear()).startswith("SUB-ACK"):
        pass
    while True:
        message = story.next()
        wire.say(masked(TEXT, f"PUBLISH:{channel}:{message}".encode()))
        while not (await hear()).startswith("MSG:"):
            pass
        story.confirmed.add(message)


async def http(wire: Wire, story: Story, obeys: bool) -> None:
    """POST, again and again, on one connection."""
    while True:
        message = story.next()
        head = f"POST /topics/{TOPIC} HTTP/1.1\r\nContent-Type: text/plain\r\nContent-Length: {len(message)}\r\n\r\n"
        wire.say(head.encode() + message.encode())
        while not wire.received.endswith(b"}\n"):
            await wire.more()
        if b'{"offset":' not in wire.received:
            raise AssertionError(wire.received)
        wire.received = b""
        story.confirmed.add(message)


async def live(address: tuple[str, int], story: Story, speak: Callable[..., Awaitable[None]], obeys: bool) -> None:
    """Live a client's life, from its connection to its end."""
    wire = Wire(*await asyncio.open_connection(*address))
    try:
        await speak(wire, story, obeys)
    except EOFError:
        story.left = wire.received
    except ConnectionError:
        story.reset = True
    finally:
        wire.writer.close()


async def crowd(broker: BrokerProcess) -> list[Story]:
    """Let all come, send SIGTERM when each has published something, and return their stories."""
    speakers = {"fleximq": fleximq, "blipmq": blipmq, "minimq": minimq, "identity": identity, "http": http}
    stories, lives = [], []
    for dialect, number in CROWD.items():
        for place in range(number):
            story = Story(f"{dialect}-{place}")
            stories.append(story)
            lives.append(asyncio.ensure_future(live(broker.address, story, speakers[dialect], place % 2 == 0)))
            if place % 50 == 0:
                await asyncio.sleep(0)
    while not all(story.confirmed for story in stories):
        await asyncio.sleep(0.05)
    os.kill(broker.pid, signal.SIGTERM)
    await asyncio.gather(*lives)
    return stories


class DrainTests(SynchronousTestCase):
    """One stop of a busy broker."""

    def test_whatWasConfirmedIsInJournalAllAreToldAsTheirDialectCanNoneIs(self) -> None:
        """What was confirmed is in the journal, all are told as their dialect can, none is reset; it ends with 0."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        journal = Path(self.mktemp()).absolute()
        arguments = "--journal", str(journal), "--durable", "d.#", "--drain-timeout", str(DRAIN)
        with BrokerProcess(*arguments) as broker:
            stories = asyncio.run(asyncio.wait_for(crowd(broker), PATIENCE))
            self.assertEqual(broker.wait(), 0)
        self.assertNotIn("Traceback", broker.output)
        self.assertNotIn("cut off", broker.output)
        self.assertEqual([story.name for story in stories if story.reset or story.left], [])
        for story in stories:
            wanted = {"fleximq": [503], "identity": [503, 1012]}.get(story.name.partition("-")[0], [])
            self.assertEqual((story.name, story.told), (story.name, wanted))
        kept = self.kept(journal, broker.variables)
        self.assertEqual([lost for story in stories for lost in story.confirmed - kept], [])

    def kept(self, journal: Path, environment: dict[str, str]) -> set[str]:
        """Return all messages that a journal has."""
        command = [sys.executable, "-m", "fleximq.cli", "journal", "cat", str(journal)]
        written = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=PATIENCE, env=environment).stdout
        return {str(json.loads(line)["value"]) for line in written.splitlines()}
