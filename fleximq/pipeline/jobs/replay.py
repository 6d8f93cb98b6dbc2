"""``fleximq-pipeline replay``: publishes stored messages again, once, at a chosen broker and in chosen topics.

Each slice of rows is one transaction, recorded in the state before it is published; after a crash the last one is
repeated, and the broker publishes it only if it had not. A broker without a journal may publish it twice.
"""

import hashlib
import json
import os
import re
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from fleximq.config import option_values
from fleximq.errors import SettingError
from fleximq.pipeline.broker_link import BrokerAddress, BrokerLink
from fleximq.pipeline.command import job
from fleximq.pipeline.command.job_run import JobRun
from fleximq.pipeline.errors import OptionRefused
from fleximq.pipeline.jobs.replay_source import Origin, ReplayFilter, ReplaySlice, ofJournals, ofLake
from fleximq.pipeline.jobs.replay_state import ReplayProgress, ReplayState
from fleximq.pipeline.lake.locations import lakePath
from fleximq.pipeline.lake.table.file_names import checkLake
from fleximq.pipeline.reader.offsets import EARLIEST, LATEST, Point, StartKind, pointsOf, timesOf

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from fleximq.pipeline.jobs.replay_schedule import ReplaySchedule

#: Options of the source that do not make another replay.
_NOT_NAMED = (*job.BROKER[1:], "failOnDataLoss")
_NAMED = re.compile(r"\{\w+\}")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")


def _prepare(parser: ArgumentParser) -> None:
    job.addSource(parser, mayLose=True)
    add = partial(job.option, parser.add_argument_group("source"))
    add("--lake", "TABLE", "the folder of a table that ingest has made, to read instead")
    add("--sealed", "FOLDER", "sealed history, read together with the journal")
    add("--from", "WHERE", "the first: an offset, or a time as in ISO 8601 (earliest)", _point)
    add("--to", "WHERE", "before this offset or time (the present end)", _point)
    add("--where", "SQL", 'only rows for which this holds, e.g. "publisher = 1004"')
    add = partial(job.option, parser.add_argument_group("destination and schedule"))
    add("--into", "URL", "the broker to publish at; required", job.place)
    add("--into-token", "TOKEN", "a token for that broker")
    add("--into-ca-file", "FILE", "the certificates of its authority, as PEM")
    add("--into-cert-file", "FILE", "the client certificate for it, as PEM")
    add("--into-key-file", "FILE", "the key of that certificate, as PEM")
    add("--to-topic", "TOPIC", "the topic to publish to; {topic} is the original one ({topic})", default="{topic}")
    add("--rate", "N", "messages a second; as fast as possible by default", _number)
    add("--speed", "N", "in the original rhythm, 1, or N times as fast", _number)
    add("--name", "NAME", "of the replay (derived from its options)")
    words = "the folder of its progress (fleximq/replay in $XDG_STATE_HOME, or in ~/.local/state)"
    add("--state", "FOLDER", words)


def _point(name: str, written: object) -> Point:
    text = str(written)
    read = pointsOf if text.isdigit() or text in ("earliest", "latest") else timesOf
    try:
        return read(name, text, EARLIEST).others
    except OptionRefused:
        raise SettingError(f"{name} is {text!r}, but must be an offset or a time, e.g. 2026-01-31T12:00:00Z") from None


def _number(name: str, written: object) -> float:
    with suppress(SettingError):
        number = option_values.seconds(name, written)
        if number > 0:
            return number
    raise SettingError(f"{name} is {written!r}, but must be a number of more than 0, e.g. 10 or 0.5")


def _run(arguments: Namespace, run: JobRun) -> None:
    """Publish the remaining rows; raises OptionRefused if an option is missing or invalid."""
    if not arguments.into:
        raise OptionRefused("--into URL is needed: the broker to publish at")
    if arguments.rate and arguments.speed:
        raise OptionRefused("--rate and --speed exclude each other")
    if unknown := _NAMED.search(arguments.to_topic.replace("{topic}", "")):
        raise OptionRefused(f"--to-topic has {unknown[0]}, but only {{topic}} is replaced")
    source = {} if arguments.lake else job.sourceAlone(arguments)
    if arguments.lake and (arguments.journal or arguments.url or arguments.sealed):
        raise OptionRefused("--lake excludes --journal, --url and --sealed")
    if arguments.lake:
        checkLake(lakePath(arguments.lake))
    start, end = getattr(arguments, "from") or EARLIEST, arguments.to or LATEST
    if start.kind is end.kind and start.value >= end.value and end.kind in (StartKind.OFFSET, StartKind.TIME):
        raise OptionRefused("--from is not before --to: no message is between them")
    into = _into(arguments)
    what = {
        "source": {name: value for name, value in source.items() if name not in _NOT_NAMED} or arguments.lake,
        "sealed": arguments.sealed,
        "topics": [arguments.subscribe, arguments.topics],
        "from": [start.kind.value, start.value],
        "to": [end.kind.value, end.value],
        "where": arguments.where,
        "into": [into["url"], arguments.to_topic],
    }
    name = arguments.name or hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]
    if not _NAME.fullmatch(name):
        raise OptionRefused("--name must have 1 to 100 letters, digits, dots, hyphens and underscores")
    folder = f"{os.environ.get('XDG_STATE_HOME') or os.path.expanduser('~/.local/state')}/fleximq/replay"
    state = ReplayState(arguments.state or folder, name, what)
    with state as progress:
        if progress.over:
            run.writeLine(
                f"the replay {name} is over: {progress.rows} messages were published; another --name does it again"
            )
            return
        if source and not arguments.sealed:
            # Sealed history may have outlived its journal.
            job.checkSource(source)
        _look(into, run)
        # Sessions that are made of one with a source in Python can neither use nor replace it.
        spark = run.session().newSession()
        if arguments.lake:
            topics = {each: found for each in ("subscribe", "topics") if (found := getattr(arguments, each))}
            span = ofLake(spark, arguments.lake, topics, start, end)
        else:
            from fleximq.pipeline.source import FlexiMQSource

            spark.dataSource.register(FlexiMQSource)
            span = ofJournals(spark, source, start, end, arguments.sealed)
        replay = Replay(Origin(span, ReplayFilter(arguments.where, arguments.to_topic)), into, state, progress, run)
        from fleximq.pipeline.jobs.replay_schedule import ReplaySchedule

        replay.all(ReplaySchedule(arguments.rate, arguments.speed))


def _into(arguments: Namespace) -> dict[str, str]:
    """Return the options of the sink; credentials of the source apply here too, unless others are given."""
    given = (arguments.into_token, arguments.into_ca_file, arguments.into_cert_file, arguments.into_key_file)
    options = {name: value for name, value in zip(job.BROKER[1:-1], given, strict=True) if value is not None}
    return {**job.brokerOptions(arguments), **options, "url": arguments.into, "valueFormat": "original"}


def _look(into: Mapping[str, str], run: JobRun) -> None:
    """Report the delivery guarantee; raises PipelineError if the broker is away, or refuses the login."""
    with BrokerLink(BrokerAddress.of(into)) as link:
        if link.ask("/broker/about")["journal"] is None:
            run.writeLine(
                f"the broker at {into['url']} has no journal: messages may be published twice if this is interrupted"
            )


@dataclass
class Replay:
    """One replay, from its present progress to its end; writes the progress before each transaction."""

    origin: Origin
    into: Mapping[str, str]
    state: ReplayState
    progress: ReplayProgress
    run: JobRun
    _beginning: float | None = None

    def all(self, pace: "ReplaySchedule") -> None:
        """Publish all rows, or as many as possible before the run is stopped."""
        progress = self.progress
        if progress.begun:
            # This transaction may have been published already.
            rows = self.origin.rows(ReplaySlice(progress.journal, progress.start, progress.stop, 0, 0))
            self._publish(rows.toArrow().sort_by("offset"), rows.schema)
        pieces = self.origin.pieces((progress.journal, progress.stop), progress.ends)
        left = sum(piece.rows for piece in pieces)
        if progress.ends is None:
            progress.ends, progress.total = {piece.journal: piece.stop for piece in pieces}, left
        self.run.writeLine(f"{left} messages to {self.into['url']}")
        for piece in pieces:
            if not self._piece(piece, pace):
                self.run.writeLine(f"stopped after {progress.rows} messages; the same command continues")
                return
        progress.over = True
        self.state.write(progress)
        self.run.writeLine(f"{progress.rows} messages were published")
        if progress.rows < progress.total:
            missing = progress.total - progress.rows
            self.run.writeLine(f"{missing} messages of the beginning were removed in the meantime")

    def _piece(self, piece: ReplaySlice, pace: "ReplaySchedule") -> bool:
        """Publish the slices of a piece on schedule; return False if stopped."""
        rows = self.origin.rows(piece)
        table, progress = rows.toArrow().sort_by("offset"), self.progress
        if self._beginning is None:
            # Start the clock only now: rows due while Spark reads the first ones would be published in one burst.
            self._beginning = time.monotonic()
        offsets = table["offset"].to_numpy()
        times = table["timestamp"].cast("int64").to_numpy()
        for start, stop, due in pace.slices(times):
            if self.run.stopping.wait(max(0.0, self._beginning + due - time.monotonic())):
                return False
            progress.batch += 1
            progress.journal, progress.rows = piece.journal, progress.rows + stop - start
            progress.start, progress.stop = int(offsets[start]), int(offsets[stop - 1]) + 1
            self.state.write(progress)
            self._publish(table.slice(start, stop - start), rows.schema)
            self.run.progress("replayed", progress.rows, progress.total, "messages")
        return True

    def _publish(self, table: "pa.Table", schema: "StructType") -> None:
        from fleximq.pipeline.writer.sink import BatchSink

        progress = self.progress
        name = {"txnAppId": progress.id, "txnVersion": str(progress.batch)}
        sink = BatchSink({**self.into, **name}, schema)
        sink.commit([sink.write(iter(table.to_batches()))])


REPLAY = job.Job(_prepare, _run)
