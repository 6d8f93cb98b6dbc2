"""Proves that a table is complete: compares its ledger with the metadata of its files."""

import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pyarrow.parquet as pq

from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.lake.batch_commit import exclusive
from fleximq.pipeline.lake.table.file_names import OWN
from fleximq.pipeline.lake.table.format import DELTA, formatOf
from fleximq.pipeline.lake.table.ledger import Covered, readLedger
from fleximq.pipeline.lake.table.parquet_writer import SPANS, Span, spansIn, spansOf
from fleximq.pipeline.lake.table_logs import logOf


class DataFile(NamedTuple):
    """A file of a table: its path within the table, and the full ``topic``."""

    path: str
    topic: str
    spans: list[Span]
    rows: int


def ranges(table: str) -> Mapping[str, Covered]:
    """Return the range and row count of each journal in a table; raises LakeRefused if it is none, or is damaged."""
    if not os.path.isdir(f"{table}/{OWN}"):
        raise LakeRefused(f"{table} is no table of a lake: it has no folder {OWN}")
    return readLedger(table).journals


def dataFiles(table: str) -> Iterator[DataFile]:
    """Yield the files that a reader sees, ordered by path; raises LakeRefused for damage or another origin."""
    for folder, folders, names in os.walk(table):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
        for name in sorted(names):
            if name.startswith((".", "_")):
                continue
            path = os.path.join(folder, name)
            within = os.path.relpath(path, table)
            try:
                found = pq.read_metadata(path)
                topic, spans = spansOf(found.metadata or {})
            except (OSError, ValueError, KeyError) as error:
                raise LakeRefused(f"the table {table} has a file of another origin: {within}: {error}") from error
            yield DataFile(within, topic, spans, found.num_rows)


def _seen(table: str) -> Iterator[DataFile]:
    """Yield the files that a reader of the table's format sees; raises as :func:`dataFiles`."""
    log = logOf(table)
    if log is None:
        yield from dataFiles(table)
        return
    for path, topic in log.files():
        try:
            found = pq.read_metadata(f"{table}/{path}")
            if SPANS in (found.metadata or {}):
                spans = spansOf(found.metadata)[1]
            else:
                # Another engine has merged it.
                spans = spansIn(f"{table}/{path}")
        except (OSError, ValueError) as error:
            raise LakeRefused(f"the table {table} has a file that cannot be read: {path}: {error}") from error
        yield DataFile(path, topic, spans, found.num_rows)


def audit(table: str) -> list[str]:
    """Compare the files of a table with its ledger; return a sentence for each difference, none if it is complete and
    every reader finds all of it.

    Interrupted changes are completed first. Only file metadata is read. Raises LakeRefused if the table is damaged.
    """
    sentences = []
    hidden: dict[str, int] = {}
    with exclusive(table):
        journals = ranges(table)
        rows = dict.fromkeys(journals, 0)
        for file in _seen(table):
            if not file.path.isascii():
                hidden[file.topic] = hidden.get(file.topic, 0) + file.rows
            if sum(span.rows for span in file.spans) != file.rows:
                sentences.append(f"{file.path} has {file.rows} rows, but says otherwise")
            for span in file.spans:
                rows[span.journal] = rows.get(span.journal, 0) + span.rows
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
    if hidden:
        isDelta = formatOf(table)["format"] == DELTA
        sentences.append(
            f"{len(hidden)} topics, such as {min(hidden)!r}, are in folders whose names are not ASCII: Spark does not "
            f"find their {sum(hidden.values())} rows under the locale C; fleximq-pipeline "
            + ("backfill fills a new table without them" if isDelta else "rename gives these folders names in ASCII")
        )
    return sentences
