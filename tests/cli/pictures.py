"""Draws the terminal pictures of docs/guides/command-line.rst, ``bench`` and ``top``, from runs of these commands.

``python -m tests.cli.pictures`` draws them in docs/pictures/ from docs/measurements/commands.json. With
``--measure`` it first runs both commands with ``--json`` at a broker of its own and writes their output to that file.
"""

import io
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from fleximq.cli.bench.command import picture as benchPicture
from fleximq.cli.client_commands.top import screen
from fleximq.client.blipmq.blocking import connect as connectBlipmq
from fleximq.client.blocking import connect
from fleximq.client.minimq.blocking import connect as connectMinimq
from tests.broker_process import BrokerProcess

DOCS = Path(__file__).parents[2] / "docs"
PICTURES, MEASURED = DOCS / "pictures", DOCS / "measurements" / "commands.json"
#: The runs, by the name of the command: they are the arguments that the page shows, with a size for a steady figure.
RUNS = {
    "bench": ("bench", "--publishers", "2", "--subscribers", "2", "--messages", "10000", "--rate", "10000", "--json"),
    "top": ("top", "--interval", "2", "--count", "1", "--json"),
}
_WIDTH = 100


def pictures(measured: dict[str, Any]) -> dict[str, str]:
    """Return each picture as SVG, by the name of its file; ``measured`` has the output of each command by its name."""
    return {
        "command_bench.svg": _drawn("bench", benchPicture(measured["bench"])),
        "command_top.svg": _drawn("top", screen(measured["top"], "tcp://localhost:7890")),
    }


def _drawn(name: str, shown: Any) -> str:
    console = Console(width=_WIDTH, record=True, file=io.StringIO(), force_terminal=True, color_system="truecolor",
                      legacy_windows=False, _environ={})  # fmt: skip
    console.print(shown)
    lines = console.export_svg(title=f"fleximq {name}", unique_id=f"fleximq-{name}").splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"


def measure() -> dict[str, Any]:
    """Run both commands, ``top`` while clients of three dialects work, and return their output."""
    with BrokerProcess() as broker:
        url = f"tcp://127.0.0.1:{broker.port()}"
        with _clients(url):
            top = _run("top", url)
        return {"bench": _run("bench", url), "top": top}


def _run(name: str, url: str) -> Any:
    command = [sys.executable, "-m", "fleximq", *RUNS[name], "--url", url]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=300).stdout)


@contextmanager
def _clients(url: str) -> Iterator[None]:
    ended = threading.Event()
    with ExitStack() as stack:
        station = stack.enter_context(connect(url, name="station"))
        reader = stack.enter_context(connect(url, name="reader"))
        worker = stack.enter_context(connectMinimq(url))
        letters = stack.enter_context(connectBlipmq(url, key="any-key"))
        reader.subscribe("weather.*")
        letters.subscribe("letters")
        worker.produce_many("jobs", ["water the roses", "mend the roof", "sweep the yard"])

        def publish() -> None:
            while not ended.wait(0.01):
                station.publish_many("weather.north", [21.5] * 12)
                station.publish_many("weather.south", [24.0] * 3)
                station.publish("letters", "from Rome")

        thread = threading.Thread(target=publish)
        thread.start()
        stack.callback(thread.join)
        stack.callback(ended.set)
        ended.wait(0.5)
        yield


if __name__ == "__main__":
    if "--measure" in sys.argv:
        MEASURED.write_text(json.dumps(measure(), indent=1) + "\n")
    for name, text in pictures(json.loads(MEASURED.read_text())).items():
        (PICTURES / name).write_text(text)
