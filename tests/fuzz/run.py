"""Plays recipes against all scanners and a whole broker, and sees that nothing breaks, hangs or grows."""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleximq.errors import BrokerError
from tests.fuzz.hostile import hostile
from tests.fuzz.tongues import SCANNED, SPOKEN, Tongue
from tests.fuzz.world import Broken, World

#: Bytes in front of a recipe that say for whom it is.
PREFIX = 3
#: A recipe of a few thousand bytes takes milliseconds; one that takes so many seconds of the processor's time hangs.
HANG = 10.0
#: What a process may grow by after it has warmed up, in bytes.
GROWTH = 64 << 20
#: The part of the time after which it has.
WARM = 0.25


@dataclass
class Report:
    """What was done: frames that were given to sessions, and to scanners; how long it took, and how much it grew."""

    spoken: int = 0
    scanned: int = 0
    recipes: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    slowest: float = 0.0
    grown: int = 0
    by: dict[str, int] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Frames a second of the processor's time, whatever else this machine is doing."""
        return (self.spoken + self.scanned) / self.cpu

    def __str__(self) -> str:
        each = ", ".join(f"{name} {count:,}" for name, count in sorted(self.by.items()))
        return (
            f"{self.spoken + self.scanned:,} hostile frames in {self.seconds:.1f} s "
            f"({self.rate:,.0f} a second of {self.cpu:.1f} s on the processor): "
            f"{self.spoken:,} in whole sessions ({each}), {self.scanned:,} in scanners alone; "
            f"the slowest recipe took {self.slowest * 1000:.0f} ms, memory grew by {self.grown / 1048576:.1f} MiB"
        )


class Play:
    """Plays recipes."""

    def __init__(self, world: World | None = None) -> None:
        self.world = world or World()
        self.report = Report()

    def recipe(self, recipe: bytes) -> None:
        """Play one. Its first bytes choose the dialect, the connection, and whether only scanners get it.

        :raises Broken: the broker did what it never must.
        """
        if len(recipe) <= PREFIX:
            return
        began = time.process_time()
        chosen, how, cut = recipe[:PREFIX]
        if how & 1:
            tongue = SCANNED[chosen % len(SCANNED)]
            self._scan(tongue, recipe[PREFIX:], cut)
        else:
            tongue = SPOKEN[chosen % len(SPOKEN)]
            self._speak(tongue, recipe[PREFIX:], how >> 1 & 1, cut if how & 0xE0 == 0 else 0)
        took = time.process_time() - began
        self.report.recipes += 1
        self.report.slowest = max(self.report.slowest, took)
        if took > HANG:
            raise Broken(f"{tongue.name}: a recipe of {len(recipe)} bytes took {took:.1f} s")

    def _speak(self, tongue: Tongue, recipe: bytes, which: int, cut: int) -> None:
        for batch in hostile(tongue, recipe):
            self.world.say(tongue, batch, which, cut)
            self.report.spoken += batch.frames
            self.report.by[tongue.name] = self.report.by.get(tongue.name, 0) + batch.frames
        self.world.clear()

    def _scan(self, tongue: Tongue, recipe: bytes, cut: int) -> None:
        scanner = tongue.scanner()
        for data, count, last in hostile(tongue, recipe):
            self.report.scanned += count
            middle = len(data) * cut // 255
            try:
                for piece in (data[:middle], data[middle:]):
                    for _ in scanner.feed(piece):
                        pass
            except BrokerError:
                last = True
            if last:
                scanner = tongue.scanner()


def run(seconds: float, recipes: Callable[[], bytes], play: Play | None = None) -> Report:
    """Play recipes for so long, and at least until the process has warmed up.

    :raises Broken: the broker did what it never must, or the process grew.
    """
    play = play or Play()
    report = play.report
    began, cpu = time.perf_counter(), time.process_time()
    memory = 0
    while (gone := time.perf_counter() - began) < seconds or not memory:
        for _ in range(20):
            play.recipe(recipes())
        if not memory and gone > WARM * seconds:
            memory = resident()
    report.seconds, report.cpu = time.perf_counter() - began, time.process_time() - cpu
    play.world.quiet()
    gc.collect()
    report.grown = resident() - memory
    if report.grown > GROWTH:
        raise Broken(f"the process grew by {report.grown} bytes: {report}")
    return report


def resident() -> int:
    """Return how much memory this process has, in bytes; 0 where the system does not tell."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS")), 0)


def chance(random: Any, longest: int = 3000) -> Callable[[], bytes]:
    """Return what makes recipes by chance."""
    return lambda: random.randbytes(random.randrange(PREFIX + 6, longest))
