"""The sink ``fleximq``: publishes rows of Spark as messages, exactly once if the broker has a journal. Then each
attempt of a task stages its rows at the broker, and the driver publishes those of the successful attempts in one
transaction. It is named by the query's id and the batch's number, and the journal remembers it: a repeated batch
publishes no message. Without a journal rows are published at once, and again by a repeated task or batch.
"""

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from fleximq.client.errors import ClientError
from fleximq.client.payloads import Packed
from fleximq.limits import KIBIBYTE, MEBIBYTE, isTooLong
from fleximq.pipeline.broker_link import BrokerAddress, BrokerLink, choice, flag
from fleximq.pipeline.errors import (
    BrokerGone,
    BrokerRefused,
    NotJournalled,
    OptionRefused,
    PayloadTooLarge,
    PipelineError,
)
from fleximq.pipeline.writer.rows import Record, Rows
from fleximq.values.header_pairs import SENDER
from fleximq.values.message import Content
from fleximq.values.records import CONTENTS
from fleximq.values.urls import urlsIn
from fleximq.wire.fleximq_record_frame import STORED_AT

_log = logging.getLogger("fleximq.pipeline")
#: Keys of a header that are the broker's, or not for publications.
_NOT_HEADERS = frozenset({"topic", "offset", STORED_AT, SENDER, "routing", "reqrep", "status", "auth", "keepalive"})
_said: set[tuple[str, bool]] = set()
_MAX_NAME_BYTES = 256
_BATCH_MOST = (1 << 63) - 1
_TEXTS = frozenset({"string", "char", "varchar"})
_BYTES = _TEXTS | {"binary"}
_FORMATS = {name: name for name in ("bytes", "messagepack", "original")}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The parsed options of the sink. ``topic`` is that of rows without one. ``exactlyOnce`` refuses a broker that
    cannot guarantee it. The bytes of ``value`` are MessagePack if ``packed``, payloads as the source reads them if
    ``original``. ``portion``: about the bytes of one request. ``query`` and ``batch`` name a batch write, so that a
    repeated one publishes nothing; "" for a new name.
    """

    place: BrokerAddress
    topic: str | None = None
    exactlyOnce: bool = False
    packed: bool = False
    portion: int = MEBIBYTE
    query: str = ""
    batch: int = 0
    original: bool = False

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "SinkOptions":
        """Return the checked options; raises OptionRefused."""
        if len(urlsIn(options.get("url", ""))) > 1:
            raise OptionRefused(
                "the option 'url' names several brokers, but rows are written to one, or to the nodes of one cluster: "
                "tcp://HOST:PORT,HOST:PORT"
            )
        topic = options.get("topic")
        if topic is not None and (not topic or isTooLong(topic)):
            raise OptionRefused("the option 'topic' must have 1 to 1024 bytes")
        valueFormat = choice(options, "valueFormat", _FORMATS, "bytes")
        query = options.get("txnAppId", "")
        if len(query.encode()) > _MAX_NAME_BYTES:
            raise OptionRefused(f"the option 'txnAppId' may have at most {_MAX_NAME_BYTES} bytes")
        if bool(query) != ("txnVersion" in options):
            raise OptionRefused("the options 'txnAppId' and 'txnVersion' belong together")
        return cls(
            BrokerAddress.of(options),
            topic,
            flag(options, "requireExactlyOnce", False),
            valueFormat == "messagepack",
            _number(options, "portionBytes", MEBIBYTE, KIBIBYTE, 8 * MEBIBYTE),
            query,
            _number(options, "txnVersion", 0, 0, _BATCH_MOST),
            valueFormat == "original",
        )


def _number(options: Mapping[str, str], name: str, otherwise: int, least: int, most: int) -> int:
    written = options.get(name, str(otherwise))
    if not written.isascii() or not written.isdigit() or not least <= int(written) <= most:
        raise OptionRefused(f"the option {name!r} is {written!r}, but must be a whole number from {least} to {most}")
    return int(written)


def checkColumns(types: Mapping[str, str], topic: str | None, packed: bool = False, original: bool = False) -> None:
    """Check that rows of these columns and types of Spark can be written; others are ignored. Raises OptionRefused."""
    if "value" not in types:
        raise OptionRefused(f"a column 'value' is needed to publish rows, but there are only {', '.join(types)}")
    if "topic" not in types and topic is None:
        raise OptionRefused("rows need a column 'topic', or the option 'topic' for all of them")
    if original and not {"content", "dialect"} & types.keys():
        raise OptionRefused("the option 'valueFormat' is original, which needs a column 'content' or 'dialect'")
    for name, wanted, words in (
        ("topic", _TEXTS, "a string"),
        ("key", _BYTES, "a string or binary"),
        ("headers", {"map"}, "a map of strings"),
        *([("value", {"binary"}, "binary where the option 'valueFormat' is messagepack")] if packed else []),
        *([("value", {"binary"}, "binary where the option 'valueFormat' is original")] if original else []),
        *([("content", {"integer"}, "an int where the option 'valueFormat' is original")] if original else []),
    ):
        if name in types and types[name] not in wanted and types[name] != "void":
            raise OptionRefused(f"the column {name!r} is of type {types[name]}, but must be {words}")


@dataclass(frozen=True)
class StagedRows(WriterCommitMessage):
    """The rows that an attempt of a task has staged: ``tokens`` in order; none if rows were published at once."""

    query: str
    batch: int
    partition: int
    rows: int
    tokens: tuple[str, ...] = ()


class _Sink:
    """The common part of both sinks. It is pickled for the tasks, so it holds no connection."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = SinkOptions.of(options)
        types = {field.name: field.dataType.typeName() for field in schema.fields}
        checkColumns(types, self._options.topic, self._options.packed, self._options.original)
        # Whether rows are staged; None if the broker is away, for which the tasks wait: Spark makes a sink for each
        # commit and abort as well, and those must not fail for this check.
        self._stages: bool | None = None
        with suppress(BrokerGone), BrokerLink(replace(self._options.place, timeout=0)) as link:
            self._stages = self._isJournalled(link)

    def _isJournalled(self, link: BrokerLink) -> bool:
        """Tell whether rows are staged, and log it; raises NotJournalled if exactly once was requested in vain."""
        url = self._options.place.url
        journalled = link.ask("/broker/about")["journal"] is not None
        if self._options.exactlyOnce and not journalled:
            raise NotJournalled(f"the broker at {url} has no journal, so rows cannot be published exactly once")
        if (url, journalled) not in _said:
            _said.add((url, journalled))
            if journalled:
                _log.info("Rows are published to %s exactly once", url)
            else:
                _log.warning("Rows are published to %s at least once: the broker has no journal", url)
        return journalled

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int = 0) -> None:
        """Publish the rows of the successful tasks in one transaction."""
        parts = sorted(_staged(messages), key=lambda part: part.partition)
        tokens = [token for part in parts for token in part.tokens]
        if not tokens:
            return
        query, batch = parts[0].query, parts[0].batch
        with BrokerLink(self._options.place) as link:
            try:
                link.ask("/sink/commit", {"query": query, "batch": batch, "tokens": tokens})
            except PayloadTooLarge as error:
                raise PayloadTooLarge(
                    f"batch {batch} has {len(tokens)} portions, which is more than the broker at "
                    f"{self._options.place.url} takes in one transaction, see its --max-message: make the batch "
                    f"smaller, or portionBytes larger"
                ) from error
        if batch:
            # The broker cannot tell rows of failed attempts from published ones before the batch is over.
            self._forget(query, batch - 1)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int = 0) -> None:
        """Discard the staged rows, if the broker is reachable; if not, it discards them by itself within a day."""
        for part in _staged(messages)[:1]:
            self._forget(part.query, part.batch)

    def _write(self, query: str, batch: int, batches: Iterator[pa.RecordBatch]) -> StagedRows:
        context = TaskContext.get()
        partition, attempt = (0, 0) if context is None else (context.partitionId(), context.taskAttemptId())
        options = self._options
        portions = Rows(options.topic, options.packed, options.portion, options.original).portions(batches)
        with BrokerLink(options.place) as link:
            if not (self._isJournalled(link) if self._stages is None else self._stages):
                return StagedRows(query, batch, partition, _publish(link, portions))
            rows, tokens = 0, []
            for records in portions:
                told = {"query": query, "batch": batch, "part": f"{partition}-{attempt}", "records": records}
                tokens.append(link.ask("/sink/stage", told)["token"])
                rows += len(records)
            return StagedRows(query, batch, partition, rows, tuple(tokens))

    def _forget(self, query: str, batch: int) -> None:
        try:
            with BrokerLink(replace(self._options.place, timeout=0)) as link:
                link.ask("/sink/abort", {"query": query, "batch": batch})
        except PipelineError as error:
            _log.warning("Unpublished rows staged for batch %s are discarded later: %s", batch, error)


class StreamSink(_Sink, DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query; Spark repeats a batch until its commit has succeeded. Raises
    OptionRefused for an option or column, BrokerRefused, and NotJournalled if exactly once was requested without a
    journal.
    """

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
        if not query or batch is None:
            raise PipelineError("this task does not know of which streaming query it is")
        return self._write(query, int(batch), iterator)


class BatchSink(_Sink, DataSourceArrowWriter):
    """Publishes all rows of a table at once when it is complete; refuses to overwrite a topic; raises as StreamSink."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool = False) -> None:
        if overwrite:
            raise OptionRefused("messages of a topic cannot be overwritten: write with the mode 'append'")
        super().__init__(options, schema)
        self._query = self._options.query or f"batch-{uuid.uuid4()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        return self._write(self._query, self._options.batch, iterator)


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[StagedRows]:
    return [message for message in messages if isinstance(message, StagedRows) and message.tokens]


def _publish(link: BrokerLink, portions: Iterator[list[Record]]) -> int:
    """Publish records at once, and return their number when the broker has all of them."""
    rows = 0
    client = link.client
    try:
        for records in portions:
            rows += len(records)
            for (topic, plain), run in groupby(records, lambda record: (record["topic"], "headers" not in record)):
                if plain:
                    client.publish_many(topic, map(_valueOf, run))
                else:
                    for record in run:
                        headers = {name: each for name, each in record["headers"].items() if name not in _NOT_HEADERS}
                        client.publish(topic, _valueOf(record), headers=headers)
        client.flush(link.place.timeout)
    except TimeoutError as error:
        raise BrokerGone(f"the broker at {link.place.url} did not take all rows in time: {error}") from error
    except ClientError as error:
        raise BrokerRefused(f"the broker at {link.place.url} did not take all rows: {error}") from error
    return rows


def _valueOf(record: Record) -> Any:
    """Return the value for a FlexiMQ client to publish, so that each dialect receives this record's content."""
    if "value" in record:
        return record["value"]
    payload, content = record["payload"], CONTENTS.get(record["content"], CONTENTS[0])[0]
    if content is Content.TEXT:
        return payload.decode("utf-8", "replace")
    return Packed(payload) if content is Content.MESSAGEPACK else payload
