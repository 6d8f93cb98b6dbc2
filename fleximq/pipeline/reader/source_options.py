"""The options of the source, with the names of those of Spark's Kafka source where both exist."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fleximq.config import option_values
from fleximq.errors import SettingError
from fleximq.pipeline.broker_link import BrokerAddress, flag
from fleximq.pipeline.errors import OptionRefused
from fleximq.pipeline.files.schema import ALL_COLUMNS, COLUMNS
from fleximq.pipeline.files.selection import SLICE_BYTES, Topics
from fleximq.pipeline.lag.reporter import groupName
from fleximq.pipeline.payloads.dialect_payloads import Identity
from fleximq.pipeline.reader.decoded_columns import MADE, OPTIONS, Decoding
from fleximq.pipeline.reader.offsets import EARLIEST, LATEST, Points, StartKind, pointsOf, timesOf
from fleximq.values.urls import urlsIn

#: The options for the connection to a broker (:meth:`fleximq.pipeline.broker_link.BrokerAddress.of`).
_BROKER = ("url", "token", "credentials", "caFile", "certFile", "keyFile", "brokerTimeout")
_KNOWN = {
    *_BROKER,
    *OPTIONS,
    *("path", "paths", "subscribe", "subscribePattern", "topics", "columns", "includeHeaders"),
    *("startingOffsets", "startingOffsetsByTimestamp", "startingTimestamp"),
    *("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"),
    *("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"),
    *("minPartitions", "partitionBytes"),
    *("failOnDataLoss", "pushFilters", "consumerGroup", "lagUrl"),
}
_CANONICAL = {name.lower(): name for name in _KNOWN}
#: Seconds of the units of time that Spark knows.
_TIME_UNITS = {"us": 1e-6, "": 1e-3, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_TIME = re.compile(r"([0-9]{1,15}) *([a-z]*)", re.ASCII)
#: Default of ``maxTriggerDelay`` in seconds.
MAX_DELAY = 900.0


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The parsed options of the source: either ``paths``, folders or globs of folders, or ``brokers``. Without
    ``start`` and ``end`` a stream begins with the next record, and a batch reads all. A stream reports the progress of
    ``group`` to the brokers in ``told``, and waits for ``minRecords``, at most ``maxDelay`` seconds.
    """

    paths: tuple[str, ...]
    topics: Topics = Topics()
    columns: tuple[str, ...] = COLUMNS
    start: Points | None = None
    end: Points | None = None
    maxRecords: int | None = None
    maxBytes: int | None = None
    minRecords: int = 1
    maxDelay: float = MAX_DELAY
    minPartitions: int = 1
    partitionBytes: int = SLICE_BYTES
    failOnDataLoss: bool = True
    pushFilters: bool = False
    decoding: Decoding | None = None
    brokers: tuple[BrokerAddress, ...] = ()
    group: str | None = None
    told: tuple[BrokerAddress, ...] = ()

    @classmethod
    def of(cls, written: Mapping[str, str]) -> "SourceOptions":
        """Return the checked options; names are case-insensitive, as everywhere in Spark. Raises OptionRefused."""
        options: dict[str, str] = {}
        for name, value in written.items():
            # A name with a dot is a setting of Spark or of a catalog.
            if "." not in name:
                known = _CANONICAL.get(name.lower())
                if known is None:
                    raise OptionRefused(f"the source has no option {name!r}")
                options[known] = value
        end = _points(options, "ending")
        if end is not None and any(point.kind is StartKind.EARLIEST for point in (end.others, *end.named.values())):
            raise OptionRefused("the option 'endingOffsets' cannot be earliest")
        brokers = _brokers(options)
        identity = Identity(flag(options, "identityMetadata", False), flag(options, "identityBase64", False))
        decoding = Decoding.of(options, identity)
        return cls(
            () if brokers else _paths(options),
            _topics(options),
            _columns(options, () if decoding is None else MADE),
            _points(options, "starting"),
            end,
            _number(options, "maxOffsetsPerTrigger", option_values.count),
            _number(options, "maxBytesPerTrigger", option_values.size),
            *_minimum(options),
            _number(options, "minPartitions", option_values.count) or 1,
            _number(options, "partitionBytes", option_values.size) or SLICE_BYTES,
            flag(options, "failOnDataLoss", True),
            flag(options, "pushFilters", False),
            decoding,
            brokers,
            *_group(options, brokers),
        )


def _brokers(options: Mapping[str, str]) -> tuple[BrokerAddress, ...]:
    """Return the brokers of the comma-separated URLs; none without a URL."""
    given = [name for name in _BROKER if name in options]
    if "url" not in options:
        if given and "lagUrl" not in options:
            raise OptionRefused(f"the option {given[0]!r} belongs to 'url', which is missing")
        return ()
    if "path" in options or "paths" in options:
        raise OptionRefused("the options 'path' and 'url' exclude each other: a folder is read, or brokers are asked")
    return tuple(BrokerAddress.of(options, url) for url in _list(options, "url", urlsIn))


def _group(
    options: Mapping[str, str], brokers: tuple[BrokerAddress, ...]
) -> tuple[str | None, tuple[BrokerAddress, ...]]:
    """Return the consumer group, and the brokers to report its progress to: those that are read, or of ``lagUrl``."""
    if "consumerGroup" not in options:
        if "lagUrl" in options:
            raise OptionRefused("the option 'lagUrl' belongs to 'consumerGroup', which is missing")
        return None, ()
    if "lagUrl" in options:
        if brokers:
            raise OptionRefused(
                "the options 'url' and 'lagUrl' exclude each other: reports go to the brokers that are read"
            )
        brokers = tuple(BrokerAddress.of(options, url) for url in _list(options, "lagUrl", urlsIn))
    if not brokers:
        raise OptionRefused("the option 'consumerGroup' needs 'lagUrl', the broker that is to know of it, or 'url'")
    return groupName(options["consumerGroup"]), brokers


def _paths(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the folders; Spark gives those of ``load([...])`` as JSON."""
    text = options.get("paths", options.get("path", ""))
    try:
        paths = json.loads(text) if text.startswith("[") else [text]
    except ValueError:
        paths = [text]
    if not paths or not all(isinstance(path, str) and path for path in paths):
        raise OptionRefused("the option 'path' must name the folder of a journal, or several, or 'url' a broker")
    return tuple(path.removeprefix("file://").removeprefix("file:") for path in paths)


def _topics(options: Mapping[str, str]) -> Topics:
    given = [name for name in ("subscribe", "subscribePattern", "topics") if name in options]
    if len(given) > 1:
        raise OptionRefused(f"the options {' and '.join(map(repr, given))} exclude each other")
    if "subscribe" in options:
        return Topics(frozenset(_list(options, "subscribe")))
    if "topics" in options:
        return Topics(levels=tuple(_list(options, "topics")))
    pattern = options.get("subscribePattern")
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise OptionRefused(f"the option 'subscribePattern' is no regular expression: {error}") from None
    return Topics(pattern=pattern)


def _columns(options: Mapping[str, str], made: tuple[str, ...]) -> tuple[str, ...]:
    headers = flag(options, "includeHeaders", True)
    if "columns" not in options:
        return tuple(name for name in (*COLUMNS, *made) if headers or name != "headers")
    known = (*ALL_COLUMNS, *made)
    columns = _list(options, "columns")
    for name in columns:
        if name not in known:
            raise OptionRefused(f"the option 'columns' names {name!r}, but there are only {', '.join(known)}")
    if len(set(columns)) < len(columns):
        raise OptionRefused("the option 'columns' names a column twice")
    return tuple(columns)


def _list(options: Mapping[str, str], name: str, split: Callable[[str], list[str]] | None = None) -> list[str]:
    """Return the parts of an option, by default those between commas."""
    parts = options[name].split(",") if split is None else split(options[name])
    found = [each.strip() for each in parts if each.strip(" ,")]
    if not found:
        raise OptionRefused(f"the option {name!r} is empty")
    return found


def _points(options: Mapping[str, str], which: str) -> Points | None:
    """Return the start or end of a read; times take precedence over offsets, as for Kafka."""
    others = EARLIEST if which == "starting" else LATEST
    for suffix, read in (("Timestamp", timesOf), ("OffsetsByTimestamp", timesOf), ("Offsets", pointsOf)):
        name = which + suffix
        if name in options:
            return read(name, options[name], others)
    return None


def _number(options: Mapping[str, str], name: str, read: Callable[[str, Any], int]) -> int | None:
    if name not in options:
        return None
    try:
        number = read(name, options[name])
    except SettingError as error:
        raise OptionRefused(f"the option {error}") from None
    if number < 1:
        raise OptionRefused(f"the option {name} is {number}, but must be at least 1")
    return number


def _minimum(options: Mapping[str, str]) -> tuple[int, float]:
    """Return the number of new records to wait for, and the maximum delay in seconds."""
    records = _number(options, "minOffsetsPerTrigger", option_values.count) or 1
    most = _number(options, "maxOffsetsPerTrigger", option_values.count)
    if most is not None and records > most:
        raise OptionRefused(
            f"the option minOffsetsPerTrigger is {records}, but must be at most maxOffsetsPerTrigger, which is {most}"
        )
    written = options.get("maxTriggerDelay")
    if written is None:
        return records, MAX_DELAY
    if "minOffsetsPerTrigger" not in options:
        raise OptionRefused("the option 'maxTriggerDelay' belongs to 'minOffsetsPerTrigger', which is missing")
    found = _TIME.fullmatch(written.strip().lower())
    if found is None or found[2] not in _TIME_UNITS:
        raise OptionRefused(f"the option 'maxTriggerDelay' is {written!r}, but must be a time, e.g. 15m, 30s or 500ms")
    return records, int(found[1]) * _TIME_UNITS[found[2]]
