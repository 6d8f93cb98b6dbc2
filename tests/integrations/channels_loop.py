"""Kills the broker at random moments while channel layers send and receive, and checks that all of them go on.

Several layers, as of several processes, have receivers of their own channels, which are members of a group, and of a
named channel, which is another member. Some receivers cancel their calls all the time. After each kill:

- each receiver gets messages again, by its channel and by the group;
- messages that are sent then all arrive;
- none arrives twice at a channel, since those whose sending failed are not repeated.
"""

import argparse
import asyncio
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import count
from typing import Any

from channels.exceptions import ChannelFull

from fleximq.client.errors import ClientError
from fleximq.integrations.channels import ChannelLayer
from tests.broker_process import BrokerProcess

#: Seconds in which a receiver must get something.
PATIENCE = 60.0
#: Layers, and the channels of each; messages that must all arrive.
LAYERS, CHANNELS, CERTAIN = 3, 5, 5
GROUP, NAMED = "all", "work"


class ChannelsLoop:
    """One run of the loop; ``faults`` are sentences."""

    def __init__(self) -> None:
        self.broker = BrokerProcess().__enter__()
        self.port = self.broker.port()
        self.faults: list[str] = []
        self.kills = 0
        #: How often each message has arrived at each channel.
        self.arrived: dict[str, Counter[int]] = {}
        self._numbers = count()
        self._news = asyncio.Event()

    async def run(self, kills: int) -> None:
        """Kill the broker so often."""
        self.layers = [ChannelLayer(hosts=[("127.0.0.1", self.port)], capacity=10_000) for _ in range(LAYERS)]
        tasks = []
        for number, layer in enumerate(self.layers):
            own = [await layer.new_channel() for _ in range(CHANNELS)]
            for channel in own:
                await layer.group_add(GROUP, channel)
            tasks += [self._receive(layer, channel, number == 1) for channel in (*own, NAMED)]
            tasks.append(self._load(layer))
        await self.layers[0].group_add(GROUP, NAMED)
        running = [asyncio.create_task(each) for each in tasks]
        try:
            while self.kills < kills and not self.faults:
                await asyncio.sleep(random.random() / 2)
                await asyncio.to_thread(self._restart)
                self.kills += 1
                await self._check()
        finally:
            for each in running:
                each.cancel()
            await asyncio.wait(running)
            for layer in self.layers:
                await layer.close()
            await asyncio.to_thread(self.broker.stop, signal.SIGKILL)
        ended = [each.exception() for each in running if not each.cancelled()]
        self.faults += [f"a receiver or a sender ended: {each!r}" for each in ended]
        for channel, numbers in self.arrived.items():
            self.faults += [f"{number} arrived {n} times at {channel}" for number, n in numbers.items() if n > 1]

    def _restart(self) -> None:
        self.broker.stop(signal.SIGKILL)
        self.broker = BrokerProcess("--listen", f"tcp:{self.port}:interface=127.0.0.1").__enter__()

    async def _receive(self, layer: ChannelLayer, channel: str, cancels: bool) -> None:
        arrived = self.arrived.setdefault(channel, Counter())
        while True:
            try:
                async with asyncio.timeout(random.random() / 50 if cancels else None):
                    message = await layer.receive(channel)
            except TimeoutError:
                continue
            arrived[message["n"]] += 1
            self._news.set()

    async def _load(self, layer: ChannelLayer) -> None:
        while True:
            await self._try(lambda: self._send(layer, random.choice([*self.arrived, None])))
            await asyncio.sleep(0.002)

    async def _send(self, layer: ChannelLayer, channel: str | None) -> int:
        """Send a message with a new number to a channel, or to the group; return the number."""
        number = next(self._numbers)
        if channel is None:
            await layer.group_send(GROUP, {"n": number})
        else:
            await layer.send(channel, {"n": number})
        return number

    async def _try(self, send: Callable[[], Coroutine[Any, Any, int]]) -> int | None:
        try:
            return await send()
        except (ClientError, ChannelFull, TimeoutError):
            await asyncio.sleep(0.01)
            return None

    async def _check(self) -> None:
        """Send until each receiver has got something from each layer, then what must all arrive."""
        for layer in self.layers:
            for channel in self.arrived:
                for target in (channel, None):
                    await self._reach(layer, channel, target)
        certain = [(channel, target) for channel in self.arrived for target in (channel, None)] * CERTAIN
        sent = [(channel, await self._send(random.choice(self.layers), target)) for channel, target in certain]
        for channel, number in sent:
            if not await self._until(partial(self._has, channel, number)):
                self.faults.append(f"after kill {self.kills} the message {number} to {channel} was lost")

    async def _reach(self, layer: ChannelLayer, channel: str, target: str | None) -> None:
        arrived = self.arrived[channel]
        numbers: set[int | None] = set()
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while asyncio.get_running_loop().time() < deadline:
            numbers.add(await self._try(lambda: self._send(layer, target)))
            if await self._until(lambda: numbers & arrived.keys(), 0.1):
                return
        self.faults.append(f"after kill {self.kills} nothing arrived at {channel}, sent to {target or 'the group'}")

    def _has(self, channel: str, number: int) -> bool:
        return number in self.arrived[channel]

    async def _until(self, holds: Callable[[], object], seconds: float = PATIENCE) -> bool:
        try:
            async with asyncio.timeout(seconds):
                while not holds():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            return False
        return True

    def report(self) -> str:
        """Return what happened as a sentence."""
        number = sum(sum(each.values()) for each in self.arrived.values())
        return f"{self.kills} kills, {number} messages arrived; faults: {'; '.join(self.faults[:10]) or 'none'}"


def main() -> int:
    """Run the loop as the command line says, and print the report; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    loop = ChannelsLoop()
    asyncio.run(loop.run(parser.parse_args().kills))
    print(loop.report())
    return 1 if loop.faults else 0


if __name__ == "__main__":
    sys.exit(main())
