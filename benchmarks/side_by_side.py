"""Measures our broker beside its peers: ``python -m benchmarks.side_by_side --help``.

For each scene the brokers are started, made ready, and then run in turns (A B C A B C ...), so that whatever else
the machine does meets all of them. A run in which a message was lost, came twice or differs is refused, and that
broker has no number in that scene.
"""

import argparse
import contextlib
import fnmatch
import os
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks import tables
from benchmarks.machine import machine
from benchmarks.peers import ws
from benchmarks.peers.peer import Peer
from benchmarks.results import Results, restore, store, unmet
from benchmarks.scenes import OURS, SCENES, Scene
from benchmarks.work.effort import FULL, QUICK, Effort, Run

_FILES = 65_536
#: Seconds between two runs, in which a broker may put its memory in order.
_BREATH = 0.05
#: The share of a goal that ``--check`` is content with.
_TOLERATED = 0.9
#: Seconds that a broker and one of its runs take on the average, where a run should last one second.
_SETUP, _RUN = 4.0, 1.3


def measure(scene: Scene, effort: Effort, repeat: int, brokers: Sequence[str] = ()) -> Results:
    """Run one scene with every peer of it that is installed (and named, if names are given)."""
    results = Results(scene)
    with contextlib.ExitStack() as stack:
        runs: dict[str, Run] = {}
        for kind in scene.peers:
            if (brokers and kind.broker not in brokers) or kind.missing():
                continue
            with results.refusing(kind.broker):
                peer = kind()
                stack.callback(peer.stop)
                peer.start()
                runs[kind.broker] = stack.enter_context(scene.work.on(peer, effort))
        for _ in range(repeat):
            for broker, run in runs.items():
                if broker not in results.refused:
                    time.sleep(_BREATH)
                    with results.refusing(broker):
                        results.ran(broker, run())
    return results


def main(arguments: Sequence[str]) -> int:
    """Measure what the command line asks for; return 0 if nothing of ours was refused, nor with ``--check`` misses."""
    options = _options(arguments)
    if options.ws is not None:
        os.environ[ws.VARIABLE] = str(options.ws)
    if options.list:
        _list()
        return 0
    _allowFiles()
    effort = replace(QUICK if options.quick else FULL, **({"seconds": options.seconds} if options.seconds else {}))
    repeat = options.repeat or (1 if options.quick else 5)
    wanted = options.scenes or [scene.name for scene in SCENES if not scene.onRequest]
    scenes = [scene for scene in SCENES if scene.name in wanted]
    head = machine() | {"runs": f"{repeat}, interleaved"} | _versions(scenes, options.brokers)
    known = restore(options.json, head) if options.resume else {}
    results: list[Results] = []
    for scene in scenes:
        left = _minutes([each for each in scenes[len(results) :] if each.name not in known], effort, repeat)
        print(f"{scene.name} ... (about {left:.0f} minutes left)", file=sys.stderr, flush=True)
        found = Results(scene)
        with found.refusing(OURS):
            if before := known.get(scene.name):
                found = Results(scene, before["runs"], before["refused"])
            else:
                found = measure(scene, effort, repeat, options.brokers)
        results.append(found)
        store(options.json, results, head)
    if options.rst is not None:
        options.rst.mkdir(parents=True, exist_ok=True)
        for table in {scene.table for scene in scenes}:
            rows = [found for scene, found in zip(scenes, results, strict=True) if scene.table == table]
            (options.rst / table).write_text(tables.page(rows, head))
    print(tables.plain(results, head), *unmet(results), sep="\n")
    refused = any(OURS in broker for each in results for broker in each.refused)
    return 1 if refused or (options.check and unmet(results, _TOLERATED)) else 0


def _minutes(scenes: Sequence[Scene], effort: Effort, repeat: int) -> float:
    """Return about how long scenes take."""
    peers = sum(not kind.missing() for scene in scenes for kind in scene.peers)
    return peers * (_SETUP + repeat * _RUN * effort.seconds) / 60


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.side_by_side",
        description="Measure FlexiMQ beside other brokers, as far as they are installed.",
    )
    scenes, brokers = [scene.name for scene in SCENES], list(_kinds())
    parser.add_argument("--scenes", type=partial(names, scenes), default=[], metavar="NAME,...", help="or a pattern")
    parser.add_argument("--brokers", type=partial(names, brokers), default=[], metavar="NAME,...")
    parser.add_argument("--repeat", type=int, metavar="N", help="runs of each broker in each scene (default: 5)")
    parser.add_argument("--seconds", type=float, metavar="S", help="what a run should last (default: 1)")
    parser.add_argument("--quick", action="store_true", help="a smoke test: short runs, small counts, 1 of each")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything, single runs included")
    parser.add_argument("--rst", type=Path, metavar="FOLDER", help="write the tables for the documentation")
    parser.add_argument("--resume", action="store_true", help="go on with the --json FILE of an interrupted run")
    parser.add_argument("--check", action="store_true", help="fail if a goal is missed by over 10 %% or not judged")
    parser.add_argument("--ws", type=Path, metavar="FOLDER", help=f"where npm installed ws (else ${ws.VARIABLE})")
    parser.add_argument("--list", action="store_true", help="list scenes and brokers, and what is not installed")
    options = parser.parse_args(arguments)
    if options.resume and options.json is None:
        parser.error("--resume needs --json")
    return options


def names(known: Sequence[str], text: str) -> list[str]:
    """Read names, separated by commas; a pattern such as ``slow-*`` stands for all that match."""
    found: list[str] = []
    for name in text.split(","):
        matching = fnmatch.filter(known, name)
        if not matching:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        found += matching
    return found


def _kinds() -> dict[str, type[Peer]]:
    """Return the peers by name; of those that share a broker the first."""
    kinds: dict[str, type[Peer]] = {}
    for scene in SCENES:
        for kind in scene.peers:
            kinds.setdefault(kind.broker, kind)
    return kinds


def _versions(scenes: Sequence[Scene], brokers: Sequence[str]) -> dict[str, str]:
    used = {kind.broker for scene in scenes for kind in scene.peers}
    return {
        name: kind.missing() or kind.version()
        for name, kind in _kinds().items()
        if name in used and (not brokers or name in brokers)
    }


def _list() -> None:
    for scene in SCENES:
        asked = "; only when named" if scene.onRequest else ""
        print(f"{scene.name:24} {scene.title} ({', '.join(kind.broker for kind in scene.peers)}{asked})")
    print()
    for name, kind in _kinds().items():
        print(f"{name:24} {kind.version() if kind.missing() is None else f'not installed; {kind.missing()}'}")


def _allowFiles() -> None:
    """Allow this process and the brokers as many connections as scenes need, as far as the system lets it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(hard, _FILES), max(hard, _FILES)))
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
