"""A job that maintains a lake, started again and again, and killed most of the times."""

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tests.pipeline.end_to_end import ROOT

#: ``fleximq-pipeline`` with small pieces and changes, which compacts few files, so that kills meet many of them.
SMALL = """
import sys
from fleximq.pipeline import main
from fleximq.pipeline.lake import backfill, file_rewriting
from fleximq.pipeline.lake.table.table_log import CompactionGoal
backfill.PIECE_BYTES, backfill.PIECE_ROWS, file_rewriting.CHANGE_FILES = 20_000, 500, 2
CompactionGoal.__new__.__defaults__ = 1 << 20, 0.0, 3
sys.exit(main.main(sys.argv[1:]))
"""
#: Seconds that anything may take, as the start of Spark on a busy machine; they cost nothing while all goes well.
PATIENCE = 1800.0
#: How many of a job's runs are killed, after at most the time of its latest complete run; and the seconds between two
#: of them at first.
SHARE, PAUSE = 0.8, 5.0


class KilledJob(threading.Thread):
    """Runs a job until it is told to end; ``kills`` counts the kills, ``ended`` the other runs by their exit code."""

    def __init__(self, words: tuple[str, ...], environment: Mapping[str, str], folder: Path, seed: float) -> None:
        super().__init__(daemon=True)
        self.words = words
        self.kills = 0
        self.ended: dict[int, int] = {}
        self.ending = threading.Event()
        self._environment = dict(environment)
        self.said = folder / f"said-{words[0]}"
        self._chance = random.Random(seed)
        self._lasts = 0.0

    def run(self) -> None:
        """Run it, kill it, and run it again."""
        while not self.ending.is_set():
            began = time.monotonic()
            process = self._start()
            if self._lasts and self._chance.random() < SHARE:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(self._chance.uniform(0, self._lasts))
            else:
                self._waitForEnd(process)
            if process.poll() is None:
                self.kills += not self.ending.is_set()
                process.send_signal(signal.SIGKILL)
            code = process.wait(PATIENCE)
            if code >= 0:
                self.ended[code] = self.ended.get(code, 0) + 1
                self._lasts = time.monotonic() - began
            self.ending.wait(self._chance.uniform(0, self._lasts or PAUSE))

    def _waitForEnd(self, process: "subprocess.Popen[bytes]") -> None:
        while process.poll() is None and not self.ending.is_set():
            time.sleep(0.05)

    def _start(self) -> "subprocess.Popen[bytes]":
        with self.said.open("ab") as said:
            return subprocess.Popen(
                [sys.executable, "-c", SMALL, *self.words], cwd=ROOT, env=self._environment, stdout=said, stderr=said
            )

    def finish(self) -> int:
        """Run it to its end, once nothing else happens, and return the exit code."""
        return self._start().wait(PATIENCE)
