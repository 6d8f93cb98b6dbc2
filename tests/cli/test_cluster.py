"""``fleximq cluster try``, as it is typed."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread

from twisted.trial.unittest import SynchronousTestCase

from tests.cluster.nats.servers import MISSING
from tests.pages import ROOT

_PATIENCE = 300.0


class TryTests(SynchronousTestCase):
    """A cluster of a single node, since three take as long for each of their processes."""

    if MISSING:
        skip = MISSING

    def test_serves(self) -> None:
        """It says where its broker is, which serves; Control-C ends all of its processes in order."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        folder = Path(self.mktemp()).absolute()
        words = ["cluster", "try", "--nodes", "1", "--port", str(port), "--folder", str(folder)]
        process = subprocess.Popen(
            [sys.executable, "-m", "fleximq", *words],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self.addCleanup(process.kill)
        lines: list[str] = []
        assert process.stdout is not None
        reading = Thread(target=lines.extend, args=(process.stdout,), daemon=True)
        reading.start()
        limit = time.monotonic() + _PATIENCE
        while not any("owns shard 0" in line for line in lines):
            self.assertLess(time.monotonic(), limit, lines)
            time.sleep(0.05)
        with socket.create_connection(("127.0.0.1", port), 10) as connection:
            connection.sendall(b"PRODUCE:m:::q:::text\n")
            self.assertEqual(connection.makefile("rb").readline(), b"m\n")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(_PATIENCE), 0)
        reading.join(_PATIENCE)
        self.assertEqual(lines[0], f"node-1 is tcp://127.0.0.1:{port}, in {folder}/node-1\n")
        self.assertTrue(any(re.search("node-1: .*it is handed on", line) for line in lines), lines)
        with socket.socket() as free:
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            free.bind(("127.0.0.1", port))

    def test_number(self) -> None:
        """Two nodes have no majority without each other."""
        words = [sys.executable, "-m", "fleximq", "cluster", "try", "--nodes", "2"]
        ended = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
        self.assertEqual((ended.returncode, ended.stdout), (1, ""))
        self.assertEqual(ended.stderr, "fleximq cluster try: --nodes is 2, but must be 1, 3 or 5\n")
