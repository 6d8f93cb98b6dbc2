"""A journal as Arrow record batches, for pyarrow, polars and DuckDB."""

import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.pages import ROOT
from tests.pipeline.installed import missing as skip
from tests.pipeline.written import TIME, Written

if not skip:
    from fleximq.reader import COLUMNS, JournalError, Missing, bounds, read

BEGIN = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=TIME)
PAGE = (ROOT / "docs" / "reference" / "reader.rst").read_text()
#: The progress bar that DuckDB prints for a query of more than two seconds.
_PROGRESS = re.compile(r"^\s*\d+% ▕.*$", re.MULTILINE)


class ReaderCase(SynchronousTestCase):
    """A journal of several segments: 300 records, of two topics in turn, one each second."""

    if skip:
        skip = skip

    def setUp(self) -> None:
        """Write it."""
        self.folder = Path(self.mktemp()).absolute()
        self.written = Written(str(self.folder), segmentBytes=5_000)
        for number in range(300):
            self.written.time = TIME + number * 1_000_000
            self.written.kept(("a.x", "b")[number % 2], b"%d" % number)

    def found(self, **more: Any) -> list[int]:
        """Return the offsets that are read."""
        table = read(self.folder, columns=["offset"], **more).read_all()
        return [int(offset) for offset in table.column("offset").to_pylist()]


class ReadTests(ReaderCase):
    """What is read."""

    def test_everyRecordIsReadInOrderWithAllColumns(self) -> None:
        table = read(self.folder).read_all()
        self.assertEqual(tuple(table.schema.names), COLUMNS)
        self.assertEqual(table.column("offset").to_pylist(), list(range(1, 301)))
        self.assertEqual(table.column("value").to_pylist(), [b"%d" % number for number in range(300)])
        self.assertEqual(tuple(bounds(self.folder)), (1, 301))

    def test_recordsOfTheBrokerItselfAreNotRead(self) -> None:
        """Values and scheduled messages of all clients, whatever is selected."""
        self.written.kept("$sys/values", b"secret")
        self.written.kept("$dead/b", b"letter")
        self.assertEqual(self.found()[-2:], [300, 302])
        self.assertEqual(self.found(topics="$sys/#"), [])
        self.assertEqual(self.found(topics=["$sys/values", "$dead/#"]), [302])

    def test_topicsOffsetsAndTimesSelectRecords(self) -> None:
        odd = list(range(1, 301, 2))
        self.assertEqual(self.found(topics="a.#"), odd)
        self.assertEqual(self.found(topics=["a.*", "b"]), list(range(1, 301)))
        self.assertEqual(self.found(topics="none"), [])
        self.assertEqual(self.found(start=290, end=295), [290, 291, 292, 293, 294])
        self.assertEqual(self.found(start=299, end=1000), [299, 300])
        tenth, twentieth = BEGIN + timedelta(seconds=9), BEGIN + timedelta(seconds=19)
        self.assertEqual(self.found(since=tenth, until=twentieth), list(range(10, 20)))
        self.assertEqual(self.found(topics="a.x", start=5, since=tenth, until=twentieth), list(range(11, 20, 2)))

    def test_columnsAreInTheOrderNamed(self) -> None:
        self.assertEqual(
            read(self.folder, columns=["value", "content", "topic"]).schema.names, ["value", "content", "topic"]
        )

    def test_segmentsWithoutTheTopicAreNotOpened(self) -> None:
        self.written.kept("c", *[b"%04000d" % number for number in range(3)])
        segments = sorted(self.folder.glob("*.fxj"))
        first = segments[1]
        first.write_bytes(bytes(first.stat().st_size))
        self.assertEqual(len(self.found(topics="c")), 3)
        self.assertRaises(JournalError, self.found)

    def test_lostRecordsRaiseOrAreTold(self) -> None:
        """Lost records raise, or are told to a function; so are those before the first one."""
        second = sorted(self.folder.glob("*.fxj"))[1]
        content = bytearray(second.read_bytes())
        content[len(content) // 2] ^= 0xFF
        second.write_bytes(content)
        self.assertIn("on_missing=FUNCTION", str(self.assertRaises(JournalError, self.found)))
        told: list[Missing] = []
        found = self.found(on_missing=told.append)
        lost = [offset for each in told for offset in range(each.first, each.next)]
        self.assertEqual(sorted(found + lost), list(range(1, 301)))
        self.assertTrue(lost)
        sorted(self.folder.glob("*.fxj"))[0].unlink()
        self.assertRaises(JournalError, self.found, start=1)

    def test_wrongArgumentsAreRefused(self) -> None:
        self.assertRaises(ValueError, read, self.folder, columns=["none"])
        self.assertRaises(ValueError, read, self.folder, since=datetime(2024, 1, 1))
        self.assertRaises(JournalError, read, self.folder / "none")
        self.assertRaises(JournalError, bounds, self.folder / "none")

    def test_neitherSparkNorTwistedIsImported(self) -> None:
        words = (
            "import sys, fleximq.reader; sys.exit(any(name in sys.modules for name in ('pyspark', 'py4j', 'twisted')))"
        )
        self.assertEqual(subprocess.run([sys.executable, "-c", words], cwd=ROOT).returncode, 0)


class RecipeTests(ReaderCase):
    """The recipes of docs/reference/reader.rst, run as they are."""

    def test_eachRecipePrintsWhatThePageSays(self) -> None:
        blocks = PAGE.split(".. recipe: ")[1:]
        self.assertEqual([each.split("\n")[0] for each in blocks], ["pyarrow", "polars", "duckdb"])
        for block in blocks:
            name, code, printed = block.split("\n")[0], *_literals(block)
            if find_spec(name) is None:
                continue
            code = code.replace("/var/lib/fleximq", str(self.folder))
            ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
            shown = _PROGRESS.sub("", ended.stdout).strip()
            self.assertEqual((ended.stderr, shown), ("", printed.strip()), name)


def _literals(block: str) -> tuple[str, str]:
    """Return the program of a recipe, and what it prints."""
    found = []
    for part in block.split(".. code-block:: ")[1:3]:
        lines = part.split("\n")[2:]
        end = next((place for place, line in enumerate(lines) if line and not line.startswith("    ")), len(lines))
        found.append("\n".join(line[4:] for line in lines[:end]).strip() + "\n")
    return found[0], found[1]
