"""Sealed history, read natively from Parquet, and journals as one table. The sealed files are listed once, and the
source reads all other offsets: each record once, also while ``seal`` and retention go on. Records that retention
removed before their segment was sealed are in neither.
"""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial, reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from fleximq.errors import JournalError
from fleximq.pipeline.errors import PipelineError
from fleximq.pipeline.files.journal_files import OffsetBounds
from fleximq.pipeline.files.schema import ALL_COLUMNS, ddlOf
from fleximq.pipeline.files.selection import FOREVER, Topics
from fleximq.pipeline.lake.locations import sparkPath
from fleximq.pipeline.lake.sealed_segments import SealedFile, journalsIn, offsetIn, sealedFiles, unsealedRanges
from fleximq.pipeline.reader.batch_reader import checkNamed
from fleximq.pipeline.reader.decoded_columns import MADE, decoded, needed
from fleximq.pipeline.reader.journals import Journal, Journals
from fleximq.pipeline.reader.offsets import EARLIEST, LATEST, Points, StartKind, reportLoss, resolved
from fleximq.pipeline.reader.source_options import SourceOptions
from fleximq.values.patterns import expressionOf

#: Start and end of a read of one journal; None: the end at the time of the query.
Range = tuple[int, int | None]


def read(spark: SparkSession, journal: str | Sequence[str] | None, sealed: str, **options: str) -> DataFrame:
    """Return the records of journals, sealed or not, each once, as a table that can be queried repeatedly: it uses the
    files that were sealed when it was made, and reads later records from the journals.

    @:param journal: a folder, a glob, or several; None: brokers of the option ``url``, or else only sealed history.
    :param sealed: the folder into which ``seal`` writes. All journals in it are read.
    :param options: those of the source; ``subscribePattern`` must mean the same in Java, ``decode`` runs in Python
        tasks.
    :raises OptionRefused: an option is wrong, or two of them exclude each other.
    :raises RecordsMissing: requested offsets are in neither (not with ``failOnDataLoss=false``).
    :raises PipelineError: the folder or a journal cannot be read, or a broker is away or refuses.
    """
    sealed = os.path.abspath(os.path.expanduser(sealed))
    given = {name: str(value) for name, value in options.items()}
    if journal is not None:
        paths = [journal] if isinstance(journal, str) else list(journal)
        given["path"] = paths[0] if len(paths) == 1 else json.dumps(paths)
    isAlone = journal is None and not any(name.lower() == "url" for name in given)
    chosen = SourceOptions.of({**given, "path": sealed} if isAlone else given)
    others = {name: value for name, value in given.items() if not name.lower().startswith(("starting", "ending"))}
    try:
        with closing(Journals(chosen)) as journals:
            found = {} if isAlone else journals.having(chosen.start)
            known = {journalId: sealedFiles(sealed, journalId) for journalId in {*journalsIn(sealed), *found}}
            checkNamed(chosen, known)
            spans = {
                journalId: _range(journalId, known[journalId], found.get(journalId), chosen)
                for journalId in sorted(known)
            }
            native = _native(spark, known, spans, chosen)
            return reduce(DataFrame.unionAll, _rest(spark, known, spans, found, chosen, others), native)
    except (JournalError, OSError) as error:
        raise PipelineError(str(error)) from error


class _SealedJournal(NamedTuple):
    """The bounds and times of a journal together with its sealed history."""

    files: Sequence[SealedFile]
    journal: Journal | None

    def bounds(self) -> OffsetBounds:
        retained = self.journal.bounds() if self.journal is not None else OffsetBounds(FOREVER, 0)
        firsts, nexts = [file.first for file in self.files], [file.next for file in self.files]
        return OffsetBounds(min([retained.first, *firsts]), max([retained.next, *nexts]))

    def offsetAt(self, time: int) -> int:
        found = offsetIn(self.files, time)
        if self.journal is None:
            return self.bounds().next if found is None else found
        later = self.journal.offsetAt(time)
        return later if found is None else min(found, later)


def _range(journalId: str, files: Sequence[SealedFile], journal: Journal | None, options: SourceOptions) -> Range:
    whole = _SealedJournal(files, journal)
    start = (options.start or Points(EARLIEST)).of(journalId)
    end = (options.end or Points(LATEST)).of(journalId)
    first = resolved(start, whole)
    if start.kind is StartKind.OFFSET and first > (nextOffset := whole.bounds().next):
        reportLoss(
            f"journal {journalId} has no offset {first} yet: the next one is {nextOffset}", options.failOnDataLoss
        )
    return first, None if end.kind is StartKind.LATEST else resolved(end, whole)


def _native(
    spark: SparkSession, known: Mapping[str, Sequence[SealedFile]], spans: Mapping[str, Range], options: SourceOptions
) -> DataFrame:
    """Return the sealed records of these ranges; the files' schema is known, so none is opened before the query."""
    paths: list[str] = []
    cuts: list[Column] = []
    for journalId, files in known.items():
        start, end = spans[journalId]
        wanted = [file for file in files if file.next > start and (end is None or file.first < end)]
        paths += [file.path for file in wanted]
        if wanted and (wanted[0].first < start or (end is not None and end < wanted[-1].next)):
            within = (F.col("offset") >= start) & (F.col("offset") < (FOREVER if end is None else end))
            cuts.append((F.col("journal") != journalId) | within)
    conditions = [*cuts, *_topicConditions(options.topics)]
    columns = needed(options.columns)
    # Each step that a query can omit saves some milliseconds at its start.
    schema = ddlOf(ALL_COLUMNS if conditions else columns)
    if paths:
        table = spark.read.schema(schema).parquet(*map(sparkPath, paths))
    else:
        table = spark.createDataFrame([], schema)
    for condition in conditions:
        table = table.where(condition)
    if conditions:
        table = table.select(*columns)
    if options.decoding is None or not any(name in MADE for name in options.columns):
        return table
    schema = ddlOf(options.columns, options.decoding.types())
    return table.mapInArrow(partial(decoded, columns=options.columns, decoding=options.decoding), schema)


def _topicConditions(topics: Topics) -> list[Column]:
    column = F.col("topic")
    conditions = [] if topics.names is None else [column.isin(sorted(topics.names))]
    expressions = [topics.pattern] if topics.pattern is not None else []
    expressions += [f"(?s){expressionOf(topics.levels)}"] if topics.levels else []
    return [*conditions, *(column.rlike(rf"\A(?:{expression})\z") for expression in expressions)]


def _rest(
    spark: SparkSession,
    known: Mapping[str, Sequence[SealedFile]],
    spans: Mapping[str, Range],
    found: Mapping[str, Journal],
    options: SourceOptions,
    given: Mapping[str, str],
) -> list[DataFrame]:
    """Return the rows for the source to read: after the sealed ranges, of all journals at once, and between them."""
    tails: dict[str, Range] = {}
    between: list[DataFrame] = []
    for journalId, journal in found.items():
        # A segment without records may be between two sealed ones.
        bounds = journal.bounds()
        retained = [
            _retained(journalId, each, bounds, options) for each in unsealedRanges(known[journalId], *spans[journalId])
        ]
        last = known[journalId][-1].next if known[journalId] else 0
        for begin, until in filter(None, retained):
            if until is None or begin >= last:
                tails[journalId] = begin, until
            else:
                between.append(_load(spark, {journalId: (begin, until)}, found, given))
    return [*between, _load(spark, tails, found, given)] if tails else between


def _retained(journalId: str, wanted: Range, bounds: OffsetBounds, options: SourceOptions) -> Range | None:
    """Return the part of a range that the journal has; warn of records that were removed before they were sealed."""
    start, end = wanted
    if start < bounds.first:
        gone = bounds.first if end is None else min(end, bounds.first)
        sentence = f"journal {journalId} has no offsets {start} to {gone - 1} any more"
        isNamed = (options.start or Points(EARLIEST)).of(journalId).kind is StartKind.OFFSET
        fail = isNamed and options.failOnDataLoss
        reportLoss(f"{sentence}: retention has removed them before they were sealed", fail)
        start = gone
    return None if end is not None and start >= end else (start, end)


def _load(
    spark: SparkSession, ranges: Mapping[str, Range], found: Mapping[str, Journal], given: Mapping[str, str]
) -> DataFrame:
    """Return ranges of journals as the source reads them; none of journals that are not named."""
    starts = {
        journalId: ranges[journalId][0] if journalId in ranges else journal.bounds().next
        for journalId, journal in found.items()
    }
    ends = {journalId: end for journalId, (_, end) in ranges.items() if end is not None}
    ends |= {journalId: starts[journalId] for journalId in found if journalId not in ranges}
    reader = spark.read.format("fleximq").options(**given).option("startingOffsets", json.dumps(starts))
    if ends:
        reader = reader.option("endingOffsets", json.dumps(ends))
    return reader.load()
