"""``ingest`` while messages come at a steady rate: how long its batches take, and how old a row is when it is there."""

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgpack
import pyarrow.parquet as pq

from benchmarks.percentiles import percentile
from benchmarks.pipeline.stand import Doing, Stand, broker
from benchmarks.pipeline.writing import visible
from benchmarks.refused import Refused
from benchmarks.work.effort import Figures, Run
from fleximq.client.blocking import connect
from fleximq.pipeline.jobs.ingest import INGEST

#: Messages a second, and how many at once.
_RATE, _BURST = 2_000, 20
#: Seconds that a run measures, and seconds before it in which the query gets going.
_SECONDS, _BEFORE = 6.0, 3.0
#: How often the lake is looked at, in seconds.
_LOOK = 0.02
#: Seconds that the first batch and the last row may take.
_PATIENCE = 60.0


@contextmanager
def followed(stand: Stand) -> Iterator[Run]:
    """A broker, and a new lake for each run."""
    journal = stand.folder / "followed"
    with broker(journal) as url:
        yield lambda: _run(stand, journal, url)
    shutil.rmtree(journal, ignore_errors=True)


def _run(stand: Stand, journal: Path, url: str) -> Figures:
    lake = stand.folder / "following"
    shutil.rmtree(lake, ignore_errors=True)
    doing = Doing(stand.spark)
    words = ["--journal", str(journal), "--lake", str(lake), "--trigger", "500ms", "--starting", "latest"]
    failures: list[BaseException] = []

    def ingest() -> None:
        try:
            stand.do(INGEST, *words, doing=doing)
        except BaseException as error:
            failures.append(error)

    job = threading.Thread(target=ingest)
    job.start()
    try:
        watch = _Watch(lake / "messages", failures)
        sent = _publish(stand, url, _BEFORE, _SECONDS * max(stand.scale, 0.2), watch)
        watch.until(sent, time.monotonic() + _PATIENCE)
        [query] = stand.spark.streams.active
        batches = [each["durationMs"]["triggerExecution"] for each in query.recentProgress if each["numInputRows"]]
    finally:
        doing.stopping.set()
        job.join(_PATIENCE)
    if failures:
        raise Refused(f"ingest ended: {failures[0]!r}")
    ages = [age for when, age in watch.ages if when >= watch.counts]
    # The first batches begin with what nobody has done before.
    return {
        "batch p50, ms": percentile(batches[3:] or batches, 50),
        "queryable p50, ms": percentile(ages, 50) * 1000,
        "queryable p99, ms": percentile(ages, 99) * 1000,
    }


def _publish(stand: Stand, url: str, before: float, seconds: float, watch: "_Watch") -> int:
    """Publish at the rate, each message with its time, once the query goes on; return how many that were."""
    deadline = time.monotonic() + _PATIENCE
    while not any(query.lastProgress for query in stand.spark.streams.active):
        if time.monotonic() > deadline:
            raise Refused("ingest did not begin")
        time.sleep(0.05)
    sent, pause = 0, _BURST / _RATE
    begun = next = time.monotonic()
    watch.counts = time.time() + before
    watcher = threading.Thread(target=watch.look, daemon=True)
    watcher.start()
    with connect(url) as client:
        while next < begun + before + seconds:
            now = time.time()
            client.publish_many("rate", [[now, bytes(80)]] * _BURST)
            sent += _BURST
            next += pause
            time.sleep(max(0.0, next - time.monotonic()))
        client.flush()
    return sent


class _Watch:
    """Looks at a table's folder again and again, and reads every file that is new.

    ``ages`` has the time of publication of each row, and how many seconds later it was found; rows that were published
    before ``counts`` are not to be counted. What goes wrong meanwhile is added to ``failures``, and ends the waiting.
    """

    def __init__(self, table: Path, failures: list[BaseException]) -> None:
        self.ages: list[tuple[float, float]] = []
        self.counts = 0.0
        self._table = table
        self._failures = failures
        self._known: set[Path] = set()
        self._ended = threading.Event()

    def look(self) -> None:
        """Look until :meth:`until` has ended."""
        try:
            while not self._ended.wait(_LOOK):
                self._lookOnce()
        except Exception as error:
            self._failures.append(error)

    def _lookOnce(self) -> None:
        for file in visible(self._table):
            if file not in self._known:
                self._known.add(file)
                seen = time.time()
                for value in pq.read_table(file, columns=["value"]).column("value").to_pylist():
                    published = msgpack.unpackb(value)[0]
                    self.ages.append((published, seen - published))

    def until(self, rows: int, deadline: float) -> None:
        """Wait until so many rows were found, each once.

        :raises Refused: they were not, or there were more.
        """
        while len(self.ages) < rows and time.monotonic() < deadline and not self._failures:
            time.sleep(_LOOK)
        time.sleep(5 * _LOOK)
        self._ended.set()
        if len(self.ages) != rows:
            why = f", for something ended: {self._failures[0]!r}" if self._failures else ""
            raise Refused(f"{len(self.ages)} of {rows} rows are in the lake{why}")
