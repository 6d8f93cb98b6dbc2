"""Proves that a table is complete: compares its ledger with the metadata of its files."""

from collections import Counter
from collections.abc import Iterator, Mapping

import pyarrow.parquet as pq

from fleximq.pipeline.errors import LakeRefused, repairCommand
from fleximq.pipeline.lake.batch_commit import pending
from fleximq.pipeline.lake.live_files import DataFile, dataFiles, liveFiles, logOf
from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from fleximq.pipeline.lake.storage.own_folder import OWN
from fleximq.pipeline.lake.table.file_names import BY_KEY
from fleximq.pipeline.lake.table.format import DELTA, formatOf, layoutOf
from fleximq.pipeline.lake.table.ledger import Covered, readLedger
from fleximq.pipeline.lake.table.lock import unchanged
from fleximq.pipeline.lake.table.parquet_writer import SPANS, spansIn, spansOf
from fleximq.pipeline.lake.upserts.state_audit import keyFaults

#: Maximum number of comparisons if the table changes meanwhile and cannot be locked.
_TRIES = 20


def ranges(table: str, files: LakeFiles = FILES) -> Mapping[str, Covered]:
    """Return the range and row count of each journal in a table; raises LakeRefused if it is none, or is damaged."""
    if not files.isTable(table):
        raise LakeRefused(f"{table} is no table of a lake: it has no folder {OWN}")
    return readLedger(table, files).journals


def _seen(table: str, files: LakeFiles) -> Iterator[DataFile]:
    """Yield the files that a reader of the table's format sees."""
    log = logOf(table, files)
    if log is None:
        yield from dataFiles(table, files)
    for path, topic, _ in log.files() if log is not None else ():
        try:
            found = pq.read_metadata(files.input(f"{table}/{path}"))
            # Another engine may have merged it.
            isOurs = SPANS in (found.metadata or {})
            spans = spansOf(found.metadata)[1] if isOurs else spansIn(f"{table}/{path}", files)
        except (OSError, ValueError) as error:
            raise LakeRefused(f"the table {table} has a file that cannot be read: {path}: {error}") from error
        yield DataFile(path, topic, spans, found.num_rows)


def audit(table: str, files: LakeFiles = FILES) -> list[str]:
    """Compare a table's files with its ledger, and return a sentence for each difference; read-only. Raises
    LakeRefused if the table is none, or is damaged.
    """
    for _ in range(_TRIES):
        with unchanged(table, files) as isLocked:
            before = ranges(table, files)
            if waiting := pending(table, files):
                recorded = " and ".join(waiting)
                return [f"{recorded} is recorded, but not complete: {repairCommand(table)} completes it"]
            sentences = _differences(table, before, files)
            if isLocked or not sentences or (before == ranges(table, files) and not pending(table, files)):
                break
    return sentences


def _differences(table: str, journals: Mapping[str, Covered], files: LakeFiles) -> list[str]:
    sentences = []
    hidden = Counter[str]()
    rows = Counter(dict.fromkeys(journals, 0))
    for file in _seen(table, files):
        if not file.path.isascii():
            hidden[file.topic] += file.rows
        if sum(span.rows for span in file.spans) != file.rows:
            sentences.append(f"{file.path} has {file.rows} rows, but says otherwise")
        for span in file.spans:
            rows[span.journal] += span.rows
            had = journals.get(span.journal)
            if had is None or not had.first <= span.first <= span.last < had.next:
                sentences.append(
                    f"{file.path} has offsets {span.first} to {span.last} of journal {span.journal}, which the "
                    "ledger does not have"
                )
    for journal, number in rows.items():
        known = journals[journal].rows if journal in journals else 0
        if number != known:
            sentences.append(f"there are {number} rows of journal {journal}, but the ledger has {known}")
    if not sentences and layoutOf(table, files) == BY_KEY:
        sentences += keyFaults(table, (path for path, _ in liveFiles(table, files)), journals, files)
    if hidden:
        isDelta = formatOf(table, files)["format"] == DELTA
        remedy = "backfill fills a new table without them" if isDelta else "rename gives these folders names in ASCII"
        sentences.append(
            f"{len(hidden)} topics, such as {min(hidden)!r}, are in folders whose names are not ASCII: Spark does not "
            f"find their {hidden.total()} rows under the locale C; fleximq-pipeline {remedy}"
        )
    return sentences
