"""Runs scenes on each master in turn, ways of one scene in turns (A B A B ...) behind some that do not count.

A run that has lost a row, or has one too many, is refused: that way has no number in the scene.
"""

import argparse
import contextlib
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow
import pyspark

from benchmarks import tables
from benchmarks.machine import machine
from benchmarks.pipeline.scenes import MASTERS, SCENES, WARM, Scene
from benchmarks.pipeline.stand import Stand
from benchmarks.results import Results, store, unmet
from benchmarks.scenes import OURS
from benchmarks.side_by_side import names
from benchmarks.work.effort import Run

#: The share of the rows that a smoke test has.
_QUICK = 0.01


def measure(stand: Stand, scene: Scene, repeat: int) -> Results:
    """Run one scene in all of its ways, on the master that the stand has; a way that fails is refused."""
    results = Results(scene)
    with contextlib.ExitStack() as stack:
        runs: dict[str, Run] = {}
        for name, contender in scene.contenders.items():
            with results.refusing(name):
                runs[name] = stack.enter_context(contender(stand))
        for number in range(scene.uncounted + repeat):
            for name, run in runs.items():
                if name not in results.refused:
                    with results.refusing(name):
                        figures = run()
                        if number >= scene.uncounted:
                            results.ran(name, figures)
    return results


def main(arguments: Sequence[str]) -> int:
    """Measure what the command line asks for; return 0 if nothing of ours was refused."""
    options = _options(arguments)
    begun = time.monotonic()
    repeat = options.repeat or (1 if options.quick else 5)
    head = machine() | {
        "runs": f"{repeat}, interleaved, behind {WARM} of queries and one of others that do not count",
        "spark": f"{pyspark.__version__}, as fleximq-pipeline starts it, pyarrow {pyarrow.__version__}",
    }
    results: list[Results] = []
    with Stand(_QUICK if options.quick else 1.0) as stand:
        for master in options.masters or MASTERS:
            for scene in SCENES:
                if not options.scenes or scene.name in options.scenes:
                    print(f"{scene.name}, {master} ...", file=sys.stderr, flush=True)
                    if not options.quick:
                        stand.use("")  # each scene has a new Java, in which no way was compiled longer than another
                    stand.use(master)
                    goals = scene.goals if master in scene.masters else ()
                    named = replace(scene, title=f"{scene.title}, {master}", goals=goals)
                    results.append(measure(stand, named, repeat))
                    store(options.json, results, head)
    if options.rst is not None:
        options.rst.write_text(tables.page(results, head, "benchmarks.pipeline --rst"))
    print(tables.plain(results, head), *unmet(results), sep="\n")
    print(f"It took {time.monotonic() - begun:.0f} s.")
    return 1 if any(OURS in each.refused for each in results) else 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.pipeline",
        description="Measure the pipeline beside Spark with Parquet files of the same rows.",
        epilog=f"Scenes: {', '.join(scene.name for scene in SCENES)}.",
    )
    scenes = [scene.name for scene in SCENES]
    parser.add_argument("--scenes", type=lambda text: names(scenes, text), default=[], metavar="NAME,...")
    parser.add_argument("--masters", type=lambda text: text.split(","), default=[], metavar="MASTER,...")
    parser.add_argument("--repeat", type=int, metavar="N", help="runs of each way in each scene (default: 5)")
    parser.add_argument("--quick", action="store_true", help="a smoke test: a hundredth of the rows, 1 run of each")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything, single runs included")
    parser.add_argument("--rst", type=Path, metavar="FILE", help="write the table for the documentation")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
