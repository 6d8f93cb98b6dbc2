"""node's ``ws``: a small server that speaks the Identity dialect, for comparison.

``ws`` is a library, not a broker, so the few lines that fan out are ours: ``ws_server.js``. The package is looked
for in the folder that the environment variable ``FLEXIMQ_BENCHMARK_WS`` names, where ``npm install ws`` was run.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.identity import IdentityWords
from benchmarks.peers.program import ask, find

VARIABLE = "FLEXIMQ_BENCHMARK_WS"
_SERVER = Path(__file__).with_name("ws_server.js")


class NodeWs(IdentityWords):
    """A server on node's ``ws``, without compression."""

    broker = "ws"

    @classmethod
    def missing(cls) -> str | None:
        if find("node") is None:
            return "node: apt-get install nodejs npm"
        if not (_package() / "package.json").exists():
            return f"ws: npm install --prefix FOLDER ws, and {VARIABLE}=FOLDER"
        return None

    @classmethod
    def version(cls) -> str:
        package = json.loads((_package() / "package.json").read_text())
        return f"ws {package['version']} on node {ask(find('node') or 'node', '--version').removeprefix('v')}"

    def command(self) -> Sequence[str]:
        return [find("node") or "node", str(_SERVER), str(self.port)]

    def environment(self) -> dict[str, str]:
        return {"NODE_PATH": str(_package().parent)}


def _package() -> Path:
    return Path(os.environ.get(VARIABLE, "")).absolute() / "node_modules" / "ws"
