"""Measures our broker beside its peers: ``python -m benchmarks.side_by_side --help``.

For each scene the brokers are started, made ready, and then run in turns (A B C A B C ...), so that whatever else
the machine does meets all of them. A run in which a message was lost, came twice or differs is refused, and that
broker has no number in that scene.
"""

import argparse
import contextlib
import fnmatch
import json
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
from benchmarks.refused import Refused
from benchmarks.results import Results, unmet
from benchmarks.scenes import OURS, SCENES, Scene
from benchmarks.work.effort import FULL, QUICK, Effort, Run

_FILES = 65_536
#: Seconds between two runs, in which a broker may put its memory in order.
_BREATH = 0.05


def measure(scene: Scene, effort: Effort, repeat: int, brokers: Sequence[str] = ()) -> Results:
    """Run one scene with every peer of it that is installed (and named, if names are given)."""
    results = Results(scene)
    with contextlib.ExitStack() as stack:
        runs: dict[str, Run] = {}
        for kind in scene.peers:
            if (brokers and kind.broker not in brokers) or kind.missing():
                continue
            ready = contextlib.ExitStack()
            try:
                runs[kind.broker] = _ready(ready, kind, scene, effort)
            except (Refused, OSError) as error:
                results.refuse(kind.broker, f"{error}")
                ready.close()
            stack.push(ready)
        for _ in range(repeat):
            for broker, run in runs.items():
                _once(results, broker, run)
    return results


def _ready(stack: contextlib.ExitStack, kind: type[Peer], scene: Scene, effort: Effort) -> Run:
    peer = kind()
    stack.callback(peer.stop)
    peer.start()
    return stack.enter_context(scene.work.on(peer, effort))


def _once(results: Results, broker: str, run: Run) -> None:
    if broker in results.refused:
        return
    time.sleep(_BREATH)
    try:
        results.ran(broker, run())
    except (Refused, OSError) as error:
        results.refuse(broker, f"{error}")


def main(arguments: Sequence[str]) -> int:
    """Measure what the command line asks for; return 0 if nothing of ours was refused."""
    options = _options(arguments)
    if options.ws is not None:
        os.environ[ws.VARIABLE] = str(options.ws)
    if options.list:
        _list()
        return 0
    _allowFiles()
    effort = replace(QUICK if options.quick else FULL, **({"seconds": options.seconds} if options.seconds else {}))
    repeat = options.repeat or (1 if options.quick else 5)
    scenes = [scene for scene in SCENES if _isWanted(scene, options.scenes)]
    head = machine() | {"runs": f"{repeat}, interleaved"} | _versions(scenes, options.brokers)
    results = []
    for scene in scenes:
        print(f"{scene.name} ...", file=sys.stderr, flush=True)
        results.append(measure(scene, effort, repeat, options.brokers))
        _write(options, results, head)
    print(tables.plain(results, head))
    for row in unmet(results):
        print(f"Goal missed: {row.title}, {row.figure}: {row.goal}{'' if row.broker == OURS else f' x {row.broker}'}")
    return 1 if any(OURS in each.refused for each in results) else 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.side_by_side",
        description="Measure FlexiMQ beside nats-server, redis-server, mosquitto and node's ws, as far as installed.",
    )
    scenes, brokers = [scene.name for scene in SCENES], list(_kinds())
    parser.add_argument("--scenes", type=partial(names, scenes), default=[], metavar="NAME,...", help="or a pattern")
    parser.add_argument("--brokers", type=partial(names, brokers), default=[], metavar="NAME,...")
    parser.add_argument("--repeat", type=int, metavar="N", help="runs of each broker in each scene (default: 5)")
    parser.add_argument("--seconds", type=float, metavar="S", help="what a run should last (default: 1)")
    parser.add_argument("--quick", action="store_true", help="a smoke test: short runs, small counts, 1 of each")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything, single runs included")
    parser.add_argument("--rst", type=Path, metavar="FILE", help="write the table for the documentation")
    parser.add_argument("--ws", type=Path, metavar="FOLDER", help=f"where npm installed ws (else ${ws.VARIABLE})")
    parser.add_argument("--list", action="store_true", help="list scenes and brokers, and what is not installed")
    return parser.parse_args(arguments)


def names(known: Sequence[str], text: str) -> list[str]:
    """Read names, separated by commas; a pattern such as ``slow-*`` stands for all that match."""
    found: list[str] = []
    for name in text.split(","):
        matching = fnmatch.filter(known, name)
        if not matching:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        found += matching
    return found


def _isWanted(scene: Scene, names: Sequence[str]) -> bool:
    return scene.name in names if names else not scene.onRequest


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


def _write(options: argparse.Namespace, results: Sequence[Results], head: dict[str, str]) -> None:
    """Write the files anew after each scene, so that an interrupted run leaves what it has."""
    if options.json is not None:
        everything = {"head": head, "scenes": [each.asJson() for each in results]}
        options.json.write_text(json.dumps(everything, indent=2) + "\n")
    if options.rst is not None:
        options.rst.write_text(tables.page(results, head))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
