"""Power losses at moments of random loads of a broker: shared by the simulations of queues and of schedules."""

import argparse
from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from tests.journal.recorder import State

#: Lets the power go at moments of the load of a seed, counts these points, about so many at most; raises Broken.
Explore = Callable[[int, Counter[str], int], None]


class Broken(Exception):
    """A promise was not kept; the text says which."""


def tryPoints(
    seed: int,
    found: Iterable[tuple[int, str, State]],
    points: Counter[str],
    most: int,
    random: Random,
    check: Callable[[int, State], Any],
) -> None:
    """Check some of the disks that power losses leave, and count them by the way of the loss.

    :param found: the number of changes before the loss, its way, and the disk.
    :raises Broken: ``check`` raised an error; the text says at which point of which seed.
    """
    each = list(found)
    for done, how, state in random.sample(each, min(most, len(each))):
        points[how] += 1
        try:
            check(done, state)
        except Exception as error:
            raise Broken(f"seed {seed}, {how} after {done} operations: {error!r}") from error


def main(description: str | None, explore: Explore) -> int:
    """Explore some seeds, as the command line says, and print a report."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--points", type=int, default=50)
    options = parser.parse_args()
    points: Counter[str] = Counter()
    for seed in range(options.first, options.first + options.seeds):
        explore(seed, points, options.points)
    print(f"{points.total()} points: {dict(points)}")
    return 0
