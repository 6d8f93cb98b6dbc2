"""``python -m tests.fuzz``: hostile frames for so many seconds; the exit code is 0 if nothing broke.

Recipes are made by chance, and where atheris is installed, for a tenth of the time by it: it looks for those that reach
new code. ``--jobs`` processes do so at the same time. What broke something is written to a file, which ``--replay``
plays again.
"""

import argparse
import faulthandler
import importlib.util
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.readers import Readers
from tests.fuzz.run import Play, Report, chance, run
from tests.fuzz.world import Broken

#: The part of the time for which atheris makes the recipes.
GUIDED = 0.1
#: Seconds without an end after which the process tells where it is, and dies.
STUCK = 60.0


def main(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (default: 60)")
    parser.add_argument("--seed", type=int, default=None, help="of chance; default: the time")
    parser.add_argument("--jobs", type=int, default=1, help="processes at the same time (default: 1)")
    parser.add_argument("--engine", choices=("both", "chance", "atheris"), default="both", help="what makes recipes")
    parser.add_argument("--replay", type=Path, help="play the recipe in this file, and nothing else")
    parser.add_argument("--read", type=Path, help="feed the input in this file to its reader, and nothing else")
    options = parser.parse_args(arguments)
    if options.read is not None:
        Readers().read(options.read.read_bytes())
        return 0
    if options.replay is not None:
        Play().recipe(options.replay.read_bytes())
        return 0
    seed = time.time_ns() if options.seed is None else options.seed
    if options.jobs > 1:
        return _together(options.jobs, options.seconds, seed, options.engine)
    guided = {"both": GUIDED if importlib.util.find_spec("atheris") else 0.0, "chance": 0.0, "atheris": 1.0}
    share = guided[options.engine]
    print(f"seed {seed}: {options.seconds * share:g} s by atheris, {options.seconds * (1 - share):g} s by chance")
    sys.stdout.flush()
    code = _guided(options.seconds * share, seed) if share else 0
    return code or (_byChance(options.seconds * (1 - share), seed) if share < 1 else 0)


def _together(jobs: int, seconds: float, seed: int, engine: str) -> int:
    """Run as many processes; the worst of their exit codes is returned."""
    command = [sys.executable, "-m", "tests.fuzz", "--seconds", str(seconds), "--engine", engine, "--seed"]
    running = [subprocess.Popen([*command, str(seed + number)]) for number in range(jobs)]
    return max(abs(each.wait()) for each in running)


def _byChance(seconds: float, seed: int) -> int:
    play = Play()
    recipes = chance(random.Random(seed))
    last = b""

    def next() -> bytes:
        nonlocal last
        faulthandler.dump_traceback_later(STUCK, exit=True)
        last = recipes()
        return last

    try:
        print(run(seconds, next, play))
    except Exception as error:
        return _broke(last, error, play.report)
    finally:
        faulthandler.cancel_dump_traceback_later()
        play.world.close()
    return 0


def _guided(seconds: float, seed: int) -> int:
    """Let atheris make the recipes, in a process of its own, and return its exit code."""
    return abs(subprocess.call([sys.executable, "-m", "tests.fuzz.guided", "recipes", str(seconds), str(seed)]))


def _broke(recipe: bytes, error: Exception, report: Report) -> int:
    path = Path(f"broken-{time.time_ns():x}.recipe")
    path.write_bytes(recipe)
    if not isinstance(error, Broken):
        import traceback

        traceback.print_exception(error)
    print(f"{error}\nafter {report.recipes} recipes; play it again: python -m tests.fuzz --replay {path}")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
