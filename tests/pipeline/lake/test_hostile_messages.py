"""A lake has any message once, for every reader with equal values or as a dead letter with a reason, and none stops it.

A failing case is cut down to as few messages as fail, and printed with its seed.
"""

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from random import Random

from twisted.trial.unittest import SynchronousTestCase

from fleximq.values.message import Content
from tests.nightly import nightly, repetitions
from tests.pipeline.installed import missing as skip

_NEEDED = ("duckdb", "polars", "deltalake", "pyiceberg", "sqlalchemy", "msgpack")
if not skip and (absent := [name for name in _NEEDED if find_spec(name) is None]):
    skip = f"{absent[0]} is not installed"

if not skip:
    import pyarrow as pa

    from fleximq.pipeline.lake.table.columns import requiredColumns
    from fleximq.pipeline.lake.table.table_spec import TableSpec
    from fleximq.pipeline.payloads import ddl
    from tests.pipeline.lake.hostile.column_values import same
    from tests.pipeline.lake.hostile.hostile_lake import HostileLake, faultsOf, fill, rowsOf, storedRows
    from tests.pipeline.lake.hostile.messages import HostileMessage, HostileMessages, typesOf, written
    from tests.pipeline.lake.hostile.questions import Source, answer, questionsFor
    from tests.pipeline.lake.hostile.readers import READERS
    from tests.pipeline.lake.tables import TIME

#: Of each format: the lakes, the messages of each, and the columns of each table that filters ask.
LAKES, MESSAGES, ASKED = repetitions(1, 14), repetitions(60, 240), repetitions(5, 12)
#: The names of lakes, and the attempts to cut a failing case down.
PATHS = ("größe [1]#? %", "lake", "my lake", "50%25", "back\\slash", "it's", "a+b&c=d", "..lake", "*", "%20")
_ATTEMPTS = 60
_WIDE = ("spark", "duckdb", "polars")


class HostileCase(SynchronousTestCase):
    """Lakes of one format."""

    format = "parquet"

    def holds(self, seed: int) -> None:
        """Make a lake; for one that fails, print the few messages that make it fail."""
        types = typesOf(Random(seed), 20)
        maker = HostileMessages(Random(seed), types)
        messages = [maker.make() for _ in range(MESSAGES)]
        fault = self.fault(seed, types, messages, tuple(READERS[self.format]))
        if fault:
            reader = fault.split(":")[0]
            readers = (reader,) if reader in READERS[self.format] else ()
            few = _shrunk(messages, lambda some: bool(self.fault(seed, types, some, readers)))
            again = self.fault(seed, types, few, readers) or "it fails with all messages only"
            self.fail(f"{self.format}, seed {seed}: {fault}\nwith {len(few)} messages: {again}\n{few}")

    def extremes(self) -> None:
        """Make a lake of a message with 10,000 keys, one with a text of 16 MiB, and some others."""
        keys = {f"k{number}": float(number) for number in range(10_000)}
        maker = HostileMessages(Random(1), typesOf(Random(1), 20))
        payloads = [written(keys).encode(), written({"k1": 1.5, "x": "x" * (16 << 20)}).encode()]
        messages = [HostileMessage("t", TIME, Content.TEXT, payload) for payload in payloads]
        fault = self.fault(0, {"x": pa.string()}, [*messages, *(maker.make() for _ in range(10))], _WIDE)
        self.assertEqual(fault[:2000], "")

    def fault(
        self, seed: int, types: "dict[str, pa.DataType]", messages: "Sequence[HostileMessage]", readers: Sequence[str]
    ) -> str:
        """Return the first thing that is wrong with a lake of these messages, nothing if all is right."""
        random = Random(seed)
        isDelta = self.format == "delta"
        # Delta Lake refuses some, and polars does not find the files of Delta Lake in others.
        names = [name for name in PATHS if not isDelta or not set(name) & {"\\", "2"}]
        folder = Path(self.mktemp()).absolute() / names[seed % len(names)]
        if isDelta and set(folder.name) & set("#?%= "):
            readers = [name for name in readers if name != "polars"]
        folder.mkdir(parents=True)
        layout = "topic" if self.format != "delta" and seed % 3 == 2 else None
        wanted = HostileLake(str(folder), self.format, layout, _specs(types))
        try:
            columns = fill(wanted, messages, random)
        except Exception as error:
            return f"it is stuck: {type(error).__name__}: {error}"
        for spec in wanted.specs:
            found = storedRows(f"{folder}/{spec.name}")
            for place, why in faultsOf(wanted, spec, messages, columns[spec.name], found).items():
                return f"files: table {spec.name}: {why}: {messages[place]}"
            if why := self.differs(Source(str(folder), spec.name, self.format), found, random, readers):
                return why
        return ""

    def differs(self, source: "Source", stored: "pa.Table", random: Random, readers: Sequence[str]) -> str:
        """Return the first difference between the rows of a table's files and those that a reader finds."""
        schema = requiredColumns(source.table).schema
        rows = rowsOf(stored, schema)
        if not rows:
            return ""
        questions = questionsFor(random, rows, schema, ASKED)
        for name in readers:
            where = f"{name}: table {source.name}"
            try:
                table, answers = READERS[self.format][name](source, questions)
            except Exception as error:
                return f"{where}: {type(error).__name__}: {error}"
            found = rowsOf(table, schema)
            if [row["offset"] for row in found] != [row["offset"] for row in rows]:
                return f"{where}: it finds the offsets {[row['offset'] for row in found]}"
            for mine, row in zip(found, rows, strict=True):
                for column in row:
                    if not same(mine[column], row[column]):
                        return f"{where}: {column!r} is {mine[column]!r:.200}, not {row[column]!r:.200}"
            for question, selected in zip(questions, answers, strict=True):
                if selected is not None and sorted(selected) != answer(rows, question, name):
                    return f"{where}: {question} selects {sorted(selected)}, not {answer(rows, question, name)}"
        return ""


def _specs(types: "dict[str, pa.DataType]") -> "tuple[TableSpec, ...]":
    """Return tables with columns from payloads, with given ones, and without any."""
    given: dict[str, pa.Field] = {}
    for name, dataType in types.items():
        if name and "\0" not in name and "." not in name:
            given.setdefault(name.lower(), pa.field(name, dataType))
    schema = ddl.written(pa.schema(given.values()))
    specs = TableSpec("inferred", decode="json"), TableSpec("given", decode="json", schema=schema)
    more = TableSpec("packed", decode="messagepack"), TableSpec("raw")
    return (*specs, *more[: repetitions(0, 2)])


def _shrunk(
    messages: "Sequence[HostileMessage]", fails: "Callable[[Sequence[HostileMessage]], bool]"
) -> "Sequence[HostileMessage]":
    """Leave out messages as long as the others still fail, in ever smaller parts."""
    size, left = len(messages) // 2, _ATTEMPTS
    while size:
        start = 0
        while start < len(messages) and left:
            fewer = [*messages[:start], *messages[start + size :]]
            left -= 1
            if fewer and fails(fewer):
                messages = fewer
            else:
                start += size
        size //= 2
    return messages


class HostileParquetTests(HostileCase):
    """Plain Parquet."""

    def test_hostileMessagesAreEqualOrDeadLettersForEachReader(self) -> None:
        """Batches, compaction, expiry and decoding again go on, and each reader finds equal values by any filter."""
        for seed in range(LAKES):
            self.holds(seed)

    @nightly
    def test_veryManyKeysAndAVeryLongTextAreEqualOrDeadLetters(self) -> None:
        self.extremes()


class HostileDeltaTests(HostileParquetTests):
    """Delta Lake."""

    format = "delta"


class HostileIcebergTests(HostileParquetTests):
    """Apache Iceberg."""

    format = "iceberg"
