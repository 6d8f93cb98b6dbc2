"""What ends a job, and in which sentence: errors that Spark tells in many lines, and an ingest that meets trouble."""

import contextlib
import os
import resource
import socket
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.blocking import connect
from fleximq.pipeline.errors import PipelineError, plainError, sentenceOf
from fleximq.values.message import Content
from tests.broker_process import BrokerProcess
from tests.client.scripted import Peer, Scripted
from tests.nightly import nightly
from tests.pipeline.installed import missing
from tests.pipeline.started_broker import startBroker
from tests.pipeline.written import Written

if not missing:
    from fleximq.pipeline import lake
    from fleximq.pipeline.jobs import ingest
    from fleximq.pipeline.lake.table.table_spec import tableOf
    from tests.pipeline.jobs.test_ingest import IngestCase
else:
    IngestCase = SynchronousTestCase  # type: ignore[assignment, misc]

_STREAM = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure: \
Task 0 in stage 1.0 failed 1 times: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/spark/worker.py", line 1, in main
    process()
  File "/fleximq/pipeline/reader/journals.py", line 3, in tell
    raise RecordsMissing(sentence)
fleximq.pipeline.reader.offsets.RecordsMissing: journal ab, offsets 1 to 9 are gone (failOnDataLoss=false reads on)

	at org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1)
SQLSTATE: XXKST"""
_CHAINED = """Traceback (most recent call last):
  File "x", line 1, in f
fleximq.client.errors.ConnectionLost: refused

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "x", line 2, in g
fleximq.pipeline.errors.BrokerGone: the broker at tcp://a:1 is away: refused
"""
_SQL = """[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `x` cannot be resolved. Did you mean [`y`]. \
SQLSTATE: 42703; line 1 pos 7;
'Project ['x]
"""


class SentenceTests(SynchronousTestCase):
    """What is shown of it."""

    def test_sentenceIsThatOfTheErrorThatCounts(self) -> None:
        """The words of an error of the pipeline, the last of chained ones, a Python error with its class, Spark's SQL
        without numbers, Java's words, and else the first line or the class.
        """
        python = 'a\nTraceback (most recent call last):\n  File "x", line 1\n    1 / 0\nZeroDivisionError: zero\n\tat b'
        java = "An error occurred while calling o40.sql.\n: java.io.IOException: no space left\n\tat a.b"
        for error, sentence in (
            (Exception(_STREAM), "journal ab, offsets 1 to 9 are gone (failOnDataLoss=false reads on)"),
            (Exception(_CHAINED), "the broker at tcp://a:1 is away: refused"),
            (Exception(python), "ZeroDivisionError: zero"),
            (Exception(_SQL), "A column with name `x` cannot be resolved. Did you mean [`y`].; line 1 pos 7"),
            (Exception(java), "java.io.IOException: no space left"),
            (Exception("\x1b[31mred\x1b[0m"), "red"),
            (PipelineError("no"), "no"),
            (ValueError("\n a\nb"), "a"),
            (ValueError(), "ValueError"),
        ):
            self.assertEqual(sentenceOf(error), sentence)

    def test_errorsOfLibrariesAreOnePlainSentence(self) -> None:
        """Errors of Delta Lake's and Iceberg's libraries have no colours, SQL, links, tables or several lines."""
        for text, plain in (
            (
                "Object at /t not found\n      \x1b[31m\u21b3\x1b[0m No such file\n ",
                "Object at /t not found: No such file",
            ),
            (
                "(sqlite3.OperationalError) database is locked\n[SQL: SELECT a\nFROM b]\n[parameters: ('x',)]\n"
                "(Background on this error at: https://sqlalche.me/e/20/e3q8)",
                "database is locked",
            ),
            ("Mismatch in fields:\n\u250f\u2501\u2501\u2513\n\u2503 a \u2503\n", "Mismatch in fields:"),
            ("", "ValueError"),
        ):
            self.assertEqual(plainError(ValueError(text)), plain)


class TroubleCase(IngestCase):
    """An ingest from a journal or a broker, and what its table has."""

    skip = missing

    @property
    def offsets(self) -> list[int]:
        """The offsets that are in the lake."""
        return [row[0] for row in self.rows("messages", "offset")]

    @property
    def gap(self) -> Any:
        """The one gap of the table."""
        [covered] = lake.ranges(self.table).values()
        [gap] = covered.gaps
        return gap

    def assertGap(self, said: str) -> None:
        """An ingest that failed goes on with a gap where that is allowed, and has all else once."""
        self.ingest("--allow-data-loss")
        gap = self.gap
        self.assertTrue(gap.lost)
        self.assertIn(f"{gap.first}", said)
        self.assertIn(f"{gap.next - 1}", said)
        self.assertEqual(self.offsets, [n for n in range(1, self.written.next) if not gap.first <= n < gap.next])
        self.assertEqual(lake.audit(self.table), [])
        self.ingest()


class JournalTroubleTests(TroubleCase):
    """A journal that has not what it had."""

    @nightly
    def test_removedRecordsAreNamedAndNothingElseGetsIn(self) -> None:
        self.fill(10)
        self.ingest()
        self.fill(500)
        for path in sorted(Path(self.folder).glob("*.fxj"))[:2]:
            os.unlink(path)
        said = self.failed()
        self.assertIn(f"journal {self.written.id} has no offsets 11 to ", said)
        self.assertIn("any more: retention has removed them", said)
        self.assertEqual(self.offsets, list(range(1, 11)))
        self.assertGap(said)
        self.assertIn("retention has removed them", self.gap.why)

    @nightly
    def test_quarantinedDamageIsAnErrorOrAGap(self) -> None:
        self.fill(300)
        self.written.close()
        first = min(Path(self.folder).glob("*.fxj"))
        for index in Path(self.folder).glob("*.idx"):
            index.unlink()
        with first.open("r+b") as file:
            file.seek(8_000)
            file.write(b"\xff" * 300)
        self.written = Written(self.folder, segmentBytes=20_000)
        self.assertEqual(len(list(Path(self.folder).glob("*.damaged"))), 1)
        last = self.written.next
        self.fill(10)
        said = self.failed()
        self.assertIn("bytes are damaged", said)
        self.assertIn("failOnDataLoss=false", said)
        self.ingest("--allow-data-loss")
        [covered] = lake.ranges(self.table).values()
        gap = next(each for each in covered.gaps if each.lost)
        self.assertIn(f"{gap.first}", said)
        self.assertEqual(
            self.offsets, [*(n for n in range(1, 301) if not gap.first <= n < gap.next), *range(last, last + 10)]
        )
        self.assertEqual(lake.audit(self.table), [])


class BrokerTroubleTests(TroubleCase):
    """A broker that goes, and one that does not let the ingest in."""

    def setUp(self) -> None:
        super().setUp()
        self.patience, real = "300", ingest._source
        self.patch(ingest, "_source", lambda *about: {**real(*about), "brokerTimeout": self.patience})

    def chosen(self, *words: str, table: Any = None) -> Any:
        """Return what these words choose, without the journal's folder."""
        chosen = super().chosen(*words, table=table)
        chosen.journal = None
        return chosen

    def start(self, port: int = 0) -> BrokerProcess:
        """Start a broker that ends with the test."""
        return startBroker(self, self.parent / "kept", port=port)

    def away(self, url: str) -> None:
        """An ingest whose broker is away ends with its sentence."""
        self.patience = "0"
        said = self.failed("--url", url)
        self.assertEqual(said, f"the broker at {url} is away: cannot connect to {url}: Connection refused")
        self.patience = "300"

    @nightly
    def test_absentBrokerIsOneSentenceAndTheIngestGoesOnLater(self) -> None:
        broker = self.start()
        port = broker.port()
        url = f"tcp://127.0.0.1:{port}"
        for turn in range(2):
            with connect(url) as client:
                client.publish_many("t", range(turn * 10, turn * 10 + 10))
                client.flush()
            if not turn:
                self.ingest("--url", url)
        broker.stop(9)
        self.away(url)
        self.assertEqual(self.offsets, list(range(1, 11)))
        self.start(port)
        self.ingest("--url", url)
        self.assertEqual([row[0][0] for row in self.rows("messages", "value")], list(range(20)))
        self.assertEqual(lake.audit(self.table), [])

    @nightly
    def test_firstStartWithoutABrokerHindersNoSecond(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        url = f"tcp://127.0.0.1:{port}"
        self.away(url)
        self.start(port)
        with connect(url) as client:
            client.publish("t", 1)
            client.flush()
        self.ingest("--url", url)
        self.assertEqual(self.offsets, [1])

    def test_wrongCredentialsEndAtOnceAndAreNotShown(self) -> None:
        def script(peer: Peer) -> None:
            peer.hear("JOIN")
            peer.say("REP", 0, {"status": 604}, "no such token")

        with Scripted(script) as url:
            said = self.failed("--url", url, "--token", "s3cret")
        words = f"the broker at {url} does not let the pipeline in: 604 authentication failed: no such token"
        self.assertEqual(said, words)


class DiskTests(TroubleCase):
    """No room for what is staged."""

    def limit(self, size: int) -> None:
        """Let files of Spark's Python workers, also of those that they start, grow to this size at most."""
        for pid in _descendants(os.getpid()):
            with contextlib.suppress(OSError):
                # Java unpacks libraries of its own, and would never get over it.
                if "python" in os.readlink(f"/proc/{pid}/exe"):
                    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))

    @nightly
    def test_fullDiskIsOneSentenceAndNothingOfTheBatchIsSeen(self) -> None:
        self.fill(10)
        self.ingest()
        for _ in range(20):
            self.written.kept("t", *(os.urandom(1000) for _ in range(100)))
        self.addCleanup(self.limit, resource.RLIM_INFINITY)
        self.limit(512 * 1024)
        said = self.failed()
        self.limit(resource.RLIM_INFINITY)
        self.assertEqual(said, f"the table {self.table} cannot be written: file too large")
        self.assertEqual(self.offsets, list(range(1, 11)))
        self.ingest()
        self.assertEqual(self.offsets, list(range(1, 2011)))
        self.assertEqual(lake.audit(self.table), [])
        self.assertEqual(os.listdir(f"{self.table}/_fleximq/staged"), [])


def _descendants(pid: int) -> list[int]:
    """Return the ids of all processes that a process has started, and of those that they have."""
    found = []
    with contextlib.suppress(OSError):
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, path.read_text().split()):
                found += [child, *_descendants(child)]
    return found


class LiarTests(TroubleCase):
    """Payloads that are not what they say."""

    def test_payloadThatLiesIsADeadLetterInAnyFormat(self) -> None:
        packed = (b"\xc1", b"\x82\xa1a", b"\xdd\xff\xff\xff\xff", b"\x91" * 5000, b"\x81\xa1a\xa1\xff", b"", b"\x01")
        written = (b'{"a": 1', b"\xff", b'{"a": 1e999}', b"[" * 5000, b'{"a": "x"}', b"", b"7")
        self.written.kept("packed", b"\x81\xa1a\x01", *packed, b"\x81\xa1a\x02")
        self.written.kept("written", b'{"a": 1}', *written, b'{"a": 2}', dialect="identity", content=Content.TEXT)
        self.written.kept("text", b"good", b"\xff\xfe", dialect="blipmq", content=Content.TEXT)
        tables = {"packed": "messagepack", "written": "json", "text": "text"}
        wanted: list[dict[str, Any]] = [
            {"name": name, "topics": [name], "decode": tableFormat} for name, tableFormat in tables.items()
        ]
        for each in wanted[:2]:
            each["schema"] = "a BIGINT"
        self.ingest(table=[tableOf("table", each) for each in wanted])
        for name, liars in (("packed", packed), ("written", written)):
            rows = self.rows(name, "topic", "a", "value", "reason")
            self.assertEqual([row[1] for row in rows if row[0] == name], [1, 2], name)
            dead = [row for row in rows if row[0] == f"{name}~dlq"]
            self.assertEqual([bytes(row[2]) for row in dead], list(liars), name)
            self.assertTrue(all(row[1] is None and row[3] for row in dead), dead)
            self.assertEqual(lake.audit(f"{self.lake}/{name}"), [])
        rows = self.rows("text", "topic", "text", "reason")
        self.assertEqual([row[:2] for row in rows], [("text", "good"), ("text~dlq", None)])
        self.assertTrue(rows[1][2])
