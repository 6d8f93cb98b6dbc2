"""The JavaScript client in node beside the NATS client for WebSockets, each with its broker, in one run.

::

    python -m benchmarks.javascript [COUNT]

Messages have 100 B. Publishing counts until the broker has confirmed all; receiving, what a function of one subscriber
gets while a second process publishes. Each scene runs five times, the two clients in turn, and the median counts.
"""

import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.machine import machine
from tests.broker_process import BrokerProcess

_HERE = Path(__file__).parent
_RUNS = 5
_COUNT = 200_000
_SCENES = ("publish", "receive")
_NATS = "websocket { listen: '127.0.0.1:%d', no_tls: true }\nlisten: '127.0.0.1:%d'\n"
_PATIENCE = 600


def _workshop(folder: Path) -> None:
    """Make a folder in which node finds both clients."""
    package = folder / "client"
    shutil.copytree(_HERE.parent / "js", package, ignore=shutil.ignore_patterns("node_modules", "types"))
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    install = ["npm", "install", "--silent", "--no-audit", "--no-fund", str(package), "ws", "nats.ws"]
    subprocess.run(install, cwd=folder, check=True, timeout=_PATIENCE)
    shutil.copy(_HERE / "javascript.mjs", folder)


def _freePort() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _rate(folder: Path, kind: str, url: str, scene: str, count: int) -> int:
    words = ["node", "javascript.mjs", kind, url, scene, str(count)]
    ended = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=_PATIENCE, check=True)
    return int(ended.stdout)


def main(count: int) -> None:
    """Measure, and print a table."""
    server = shutil.which("nats-server", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if server is None:
        raise SystemExit("this benchmark needs nats-server")
    print(*machine().values(), sep=", ")
    with tempfile.TemporaryDirectory() as name, BrokerProcess(fresh=True) as broker:
        folder = Path(name)
        _workshop(folder)
        ports = _freePort(), _freePort()
        (folder / "nats.conf").write_text(_NATS % ports)
        nats = subprocess.Popen([server, "-c", folder / "nats.conf"], stderr=subprocess.DEVNULL)
        try:
            time.sleep(1)
            urls = {"fleximq": f"ws://127.0.0.1:{broker.port()}/ws", "nats": f"ws://127.0.0.1:{ports[0]}"}
            for scene in _SCENES:
                found: dict[str, list[int]] = {kind: [] for kind in urls}
                for _ in range(_RUNS):
                    for kind, url in urls.items():
                        found[kind].append(_rate(folder, kind, url, scene, count))
                for kind, rates in found.items():
                    print(f"{scene:8} {kind:8} {statistics.median(rates):9,.0f} msg/s", *sorted(rates))
        finally:
            nats.terminate()
            nats.wait()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else _COUNT)
