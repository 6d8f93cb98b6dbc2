"""``fleximq-pipeline replay``: what was kept, published again, once, at the broker and in the topics of one's choice.

Each slice of rows is one transaction. Before it is published, the state says which rows it has; after a crash the
last one is done again, and the broker publishes it only if it had not. Without a journal at the broker, the rows of
that one slice may come twice.
"""

import hashlib
import json
import os
import re
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fleximq.config import option_values
from fleximq.errors import SettingError
from fleximq.pipeline.broker_link import BrokerLink, Place
from fleximq.pipeline.command.job import (
    Job,
    JobContext,
    addSource,
    brokerOptions,
    checkSource,
    option,
    place,
    sourceOptions,
)
from fleximq.pipeline.errors import OptionRefused
from fleximq.pipeline.jobs.replay_schedule import ReplaySchedule
from fleximq.pipeline.jobs.replay_source import Origin, ReplayFilter, ReplaySlice, ofJournals, ofLake
from fleximq.pipeline.jobs.replay_state import ReplayProgress, ReplayState
from fleximq.pipeline.reader.offsets import EARLIEST, LATEST, Point, StartKind, pointsOf, timesOf

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_BROKERS = ("url", "token", "caFile", "certFile", "keyFile")
_NAMED = re.compile(r"\{\w+\}")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")


def prepare(parser: ArgumentParser) -> None:
    """Add the options."""
    addSource(parser)
    add = option
    group = parser.add_argument_group("what is replayed")
    text = option_values.text
    add(
        group,
        "--lake",
        read=text,
        metavar="TABLE",
        help="the folder of a table that ingest has made, to be read instead",
    )
    add(group, "--sealed", read=text, metavar="FOLDER", help="sealed history, read together with the journal")
    add(group, "--from", read=_point, metavar="WHERE", help="the first: an offset, or a time as in ISO 8601 (earliest)")
    add(group, "--to", read=_point, metavar="WHERE", help="before this offset or time (what is there at the beginning)")
    add(group, "--where", read=text, metavar="SQL", help='only rows for which this holds, e.g. "publisher = 1004"')
    group = parser.add_argument_group("where it goes, and when")
    add(group, "--into", read=place, metavar="URL", help="the broker at which it is published; needed")
    add(group, "--into-token", read=text, metavar="TOKEN", help="what lets in there")
    add(group, "--into-ca-file", read=text, metavar="FILE", help="the certificates that its own is to be signed by")
    add(group, "--into-cert-file", read=text, metavar="FILE", help="the own certificate there")
    add(group, "--into-key-file", read=text, metavar="FILE", help="the key of it")
    add(group, "--to-topic", read=text, default="{topic}", metavar="TOPIC",
        help="where a message is published; {topic} is where it was ({topic})")  # fmt: skip
    add(group, "--rate", read=_number, metavar="N", help="so many messages a second, and not as fast as can be")
    add(group, "--speed", read=_number, metavar="N", help="in the rhythm in which they came, 1, or N times as fast")
    add(group, "--name", read=text, metavar="NAME", help="of the replay (made of what is replayed)")
    add(group, "--state", read=text, metavar="FOLDER",
        help="where it remembers how far it is (fleximq/replay in $XDG_STATE_HOME, or in ~/.local/state)")  # fmt: skip


def _point(name: str, written: object) -> Point:
    """Read an offset or a time."""
    text = str(written)
    read = pointsOf if text.isdigit() or text in ("earliest", "latest") else timesOf
    try:
        return read(name, text, EARLIEST).others
    except OptionRefused:
        raise SettingError(
            f"{name} is {text!r}, but must be an offset or a time such as 2026-01-31T12:00:00Z"
        ) from None


def _number(name: str, written: object) -> float:
    number = option_values.seconds(name, written)
    if number <= 0:
        raise SettingError(f"{name} is {written!r}, but must be more than 0")
    return number


def run(chosen: Namespace, run: JobContext) -> None:
    """Publish what is not published yet.

    :raises OptionRefused: an option is missing, or cannot be.
    """
    if not chosen.into:
        raise OptionRefused("--into URL is needed: it says where the messages are published")
    if chosen.rate and chosen.speed:
        raise OptionRefused("--rate and --speed exclude each other")
    if "{topic}" not in chosen.to_topic and not chosen.to_topic:
        raise OptionRefused("--to-topic is empty")
    if unknown := _NAMED.search(chosen.to_topic.replace("{topic}", "")):
        raise OptionRefused(f"--to-topic has {unknown[0]}, but only {{topic}} stands for something")
    source = {} if chosen.lake else _source(chosen)
    if chosen.lake and (chosen.journal or chosen.url or chosen.sealed):
        raise OptionRefused("--lake excludes --journal, --url and --sealed")
    start, end = getattr(chosen, "from") or EARLIEST, chosen.to or LATEST
    if start.kind is end.kind and start.value >= end.value and end.kind in (StartKind.OFFSET, StartKind.TIME):
        raise OptionRefused("--from is not before --to: there is nothing between them")
    into = _into(chosen)
    what = {
        "source": {name: value for name, value in source.items() if name not in _BROKERS[1:]} or chosen.lake,
        "sealed": chosen.sealed,
        "topics": [chosen.subscribe, chosen.topics],
        "from": [start.kind.value, start.value],
        "to": [end.kind.value, end.value],
        "where": chosen.where,
        "into": [into["url"], chosen.to_topic],
    }
    name = chosen.name or hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]
    if not _NAME.fullmatch(name):
        raise OptionRefused("--name must have 1 to 100 letters, digits, dots, hyphens and underscores")
    state = ReplayState(chosen.state or _stateFolder(), name, what)
    with state as progress:
        if progress.over:
            run.say(f"the replay {name} is over: {progress.rows} messages were published; another --name does it again")
            return
        if source and not chosen.sealed:
            # What is sealed may have outlived its journal.
            checkSource(source)
        _look(into, run)
        spark = run.session()
        if chosen.lake:
            topics = {each: found for each in ("subscribe", "topics") if (found := getattr(chosen, each))}
            span = ofLake(spark, chosen.lake, topics, start, end)
        else:
            from fleximq.pipeline.source import FlexiMQSource

            spark.dataSource.register(FlexiMQSource)
            span = ofJournals(spark, source, start, end, chosen.sealed)
        replay = Replay(Origin(span, ReplayFilter(chosen.where, chosen.to_topic)), into, state, progress, run)
        replay.all(ReplaySchedule(chosen.rate, chosen.speed))


def _source(chosen: Namespace) -> dict[str, str]:
    source = sourceOptions(chosen)
    if "path" in source:
        source = {name: value for name, value in source.items() if name not in _BROKERS}
    return source


def _into(chosen: Namespace) -> dict[str, str]:
    """Return the options of the sink; what lets in at the source lets in here as well, unless said otherwise."""
    given = (chosen.into_token, chosen.into_ca_file, chosen.into_cert_file, chosen.into_key_file)
    options = {name: value for name, value in zip(_BROKERS[1:], given, strict=True) if value is not None}
    return {**brokerOptions(chosen), **options, "url": chosen.into, "valueFormat": "original"}


def _stateFolder() -> str:
    return f"{os.environ.get('XDG_STATE_HOME') or os.path.expanduser('~/.local/state')}/fleximq/replay"


def _look(into: Mapping[str, str], run: JobContext) -> None:
    """Say what is promised.

    :raises PipelineError: the broker is away, or lets nobody in.
    """
    with BrokerLink(Place.of(into)) as link:
        if link.ask("/broker/about")["journal"] is None:
            run.say(f"the broker at {into['url']} has no journal: messages may come twice if this is interrupted")


class Replay:
    """One replay, from where it is to its end.

    :param progress: how far it is; written to ``state`` before each transaction.
    """

    def __init__(
        self, origin: Origin, into: Mapping[str, str], state: ReplayState, progress: ReplayProgress, run: JobContext
    ) -> None:
        self._origin = origin
        self._into = into
        self._state = state
        self._progress = progress
        self._run = run
        self._beginning: float | None = None

    def all(self, pace: ReplaySchedule) -> None:
        """Publish everything, or as much as comes before it is told to stop."""
        progress = self._progress
        if progress.begun:
            self._again()
        pieces = self._origin.pieces((progress.journal, progress.stop), progress.ends)
        left = sum(piece.rows for piece in pieces)
        if progress.ends is None:
            progress.ends, progress.total = {piece.journal: piece.stop for piece in pieces}, left
        self._run.say(f"{left} messages to {self._into['url']}")
        for piece in pieces:
            if not self._piece(piece, pace):
                self._run.say(f"stopped after {progress.rows} messages; the same command goes on")
                return
        progress.over = True
        self._state.write(progress)
        self._run.say(f"{progress.rows} messages were published")
        if progress.rows < progress.total:
            missing = progress.total - progress.rows
            self._run.say(f"{missing} that were there at the beginning are not any more: they were removed meanwhile")

    def _again(self) -> None:
        """Publish once more what may have been published already."""
        progress = self._progress
        rows = self._origin.rows(ReplaySlice(progress.journal, progress.start, progress.stop, 0, 0))
        self._publish(rows.toArrow().sort_by("offset"), rows.schema)

    def _piece(self, piece: ReplaySlice, pace: ReplaySchedule) -> bool:
        """Publish the slices of a piece, each when it is due; return False if told to stop."""
        rows = self._origin.rows(piece)
        table, progress = rows.toArrow().sort_by("offset"), self._progress
        if self._beginning is None:
            # Only now: what is due while Spark still reads the first rows would come all at once.
            self._beginning = time.monotonic()
        offsets = table["offset"].to_numpy()
        times = table["timestamp"].cast("int64").to_numpy()
        for start, stop, due in pace.slices(times):
            if self._run.stopping.wait(max(0.0, self._beginning + due - time.monotonic())):
                return False
            progress.batch += 1
            progress.journal, progress.rows = piece.journal, progress.rows + stop - start
            progress.start, progress.stop = int(offsets[start]), int(offsets[stop - 1]) + 1
            self._state.write(progress)
            self._publish(table.slice(start, stop - start), rows.schema)
            self._run.progress("replayed", progress.rows, progress.total, "messages")
        return True

    def _publish(self, table: "pa.Table", schema: "StructType") -> None:
        from fleximq.pipeline.writer.sink import BatchSink

        progress = self._progress
        name = {"txnAppId": progress.id, "txnVersion": str(progress.batch)}
        sink = BatchSink({**self._into, **name}, schema)
        sink.commit([sink.write(iter(table.to_batches()))])


REPLAY = Job("replay", "Publish again what a lake or a journal has.", prepare, run)
