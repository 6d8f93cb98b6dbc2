"""The specification of one table: its topics, and how their payloads are decoded."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from fleximq.config import option_values
from fleximq.pipeline.errors import LakeRefused, OptionRefused
from fleximq.pipeline.files.selection import Topics
from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from fleximq.pipeline.lake.table.columns import TableColumns
from fleximq.pipeline.lake.table.file_names import isFileName, readRecorded, writeOwn
from fleximq.pipeline.payloads import ddl
from fleximq.pipeline.payloads.decoder import DEFINED, FORMATS, STRUCTURED, WITH_FIELDS, Decoder
from fleximq.pipeline.payloads.dialect_payloads import Identity
from fleximq.pipeline.payloads.schema_formats import REGISTRY, fieldsOf, formatIn
from fleximq.values.patterns import faultIn

#: Suffix of the topic for messages that do not fit the table.
DEAD = "~dlq"
_NAME = "table"
#: The column of payloads that are no maps.
_ONE = {"text": pa.schema([("text", pa.string())]), "raw": pa.schema([("body", pa.binary())])}
#: The schema that detects malformed payloads before any column is known.
_UNKNOWN = pa.schema([("value", pa.string())])
_KEYS = ("name", "topics", "decode", "schema", "identity-metadata", "identity-base64", "integers", "upsert")
#: The columns of messages by which rows can replace others; other names are fields of payloads.
MESSAGE_COLUMNS = ("key", "topic", "publisher")
#: The first format with a schema of its own in an option: its definition may have any characters.
_DEFINED = re.compile(rf"(?P<rest>.*?):(?P<format>({'|'.join(DEFINED)})(:.*)?)", re.DOTALL)
_UPSERT = re.compile(r"(?P<rest>.*):upsert\((?P<column>[^()]*)\)", re.DOTALL)


@dataclass(frozen=True)
class TableSpec:
    """One table. ``topics`` are patterns, all topics if empty; ``schema`` is DDL, inferred if None, with the fields of
    ``integers`` as BIGINT. In a table of the latest rows, ``upsert`` is the column with the key of a row.
    ``definition`` is the schema of a format that has one of its own. ``isExplicit`` tells that ``decode`` is not the
    default.
    """

    name: str
    topics: tuple[str, ...] = ()
    decode: str = "raw"
    schema: str | None = None
    metadata: bool = False
    base64: bool = False
    integers: tuple[str, ...] = ()
    upsert: str = ""
    definition: str = ""
    isExplicit: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        if not isFileName(self.name):
            raise OptionRefused(
                f"a table cannot be called {self.name!r}: letters, digits, '.', '_' and '-' only, at most 100, and a "
                "letter or digit first"
            )
        if self.decode not in FORMATS:
            raise OptionRefused(
                f"the table {self.name} has payloads as {self.decode!r}, but there are only {', '.join(FORMATS)}"
            )
        if self.decode in DEFINED:
            Decoder(self.decode, self.fields if self.decode != REGISTRY else _UNKNOWN, self.identity, self.definition)
        if self.schema is not None:
            if self.decode not in STRUCTURED:
                raise OptionRefused(f"the table {self.name} has a schema, which is only for {' and '.join(STRUCTURED)}")
            Decoder(self.decode, ddl.parsed(self.schema), self.identity)
        if self.upsert and self.upsert not in MESSAGE_COLUMNS:
            if self.decode not in WITH_FIELDS:
                raise OptionRefused(
                    f"the table {self.name} has upsert({self.upsert}), but only {', '.join(WITH_FIELDS)} have fields; "
                    f"others can have upsert of {', '.join(MESSAGE_COLUMNS)}"
                )
            if not self.isInferred and self.upsert not in self.fields.names:
                raise OptionRefused(
                    f"the table {self.name} has upsert({self.upsert}), but its schema has no such field"
                )

    @property
    def wholeFields(self) -> tuple[str, ...]:
        """The inferred fields with numbers as BIGINT; a key is one, since DOUBLE makes some numbers equal."""
        return (*self.integers, self.upsert) if self.upsert else self.integers

    @property
    def identity(self) -> Identity:
        """The parts that messages of the Identity dialect are split into."""
        return Identity(self.metadata, self.base64)

    @property
    def isInferred(self) -> bool:
        """Whether the columns are inferred from payloads."""
        return self.decode == REGISTRY or (self.decode in STRUCTURED and self.schema is None)

    @cached_property
    def wanted(self) -> Topics:
        """The topics."""
        return Topics(levels=self.topics)

    @property
    def fields(self) -> pa.Schema:
        """The columns that are known before any payload is read."""
        if self.schema is not None:
            return ddl.parsed(self.schema)
        if self.decode in DEFINED and self.decode != REGISTRY and self.definition:
            return fieldsOf(self.definition)
        isApart = self.decode == "text" or (self.decode == "raw" and (self.metadata or self.base64))
        return _ONE[self.decode] if isApart else pa.schema([])

    def decoder(self, columns: TableColumns) -> Decoder | None:
        """Return the decoder, None if payloads stay; before any column is known, it only finds malformed ones."""
        identity = Identity(columns.metadata, self.base64)
        if len(columns.fields):
            return Decoder(self.decode, columns.fields, identity, self.definition)
        return Decoder(self.decode, _UNKNOWN, identity, self.definition) if self.decode in WITH_FIELDS else None


def tableOf(name: str, written: object) -> TableSpec:
    """Read ``NAME=PATTERN[,PATTERN][:FORMAT]`` or a table of the settings file; raises OptionRefused for others."""
    spec = _ofMapping(name, written) if isinstance(written, Mapping) else _ofText(name, written)
    for pattern in spec.topics:
        if fault := faultIn(pattern):
            raise OptionRefused(f"{name} has {pattern!r}, but {fault}")
    return spec


def _ofText(name: str, written: object) -> TableSpec:
    text = option_values.text(name, written)
    replacing = _UPSERT.fullmatch(text)
    table, equals, rest = (replacing["rest"] if replacing else text).partition("=")
    upsert = replacing["column"].strip() if replacing else ""
    if replacing and not upsert:
        raise OptionRefused(f"{name} is {text!r}, but upsert needs a column, e.g. state=devices.#:json:upsert(key)")
    patterns, decode = splitFormat(rest)
    isExplicit, definition = len(patterns) < len(rest), ""
    if _DEFINED.fullmatch(rest):
        decode, definition = formatIn(decode)
    if not isExplicit or decode not in FORMATS:
        if isExplicit and patterns.endswith(("#", "*")):
            raise OptionRefused(f"{name} is {text!r}, but there is no format {decode!r}, only {', '.join(FORMATS)}")
        # A topic's name may have a colon.
        patterns, isExplicit, decode = rest, False, "raw"
    topics = tuple(each.strip() for each in patterns.split(","))
    if not equals or not all(topics):
        raise OptionRefused(
            f"{name} is {text!r}, but must be NAME=PATTERN[,PATTERN][:FORMAT], e.g. sensors=sensors.#:json"
        )
    return TableSpec(table.strip(), topics, decode, upsert=upsert, definition=definition, isExplicit=isExplicit)


def splitFormat(written: str) -> tuple[str, str]:
    """Split ``PATTERN[,PATTERN][:FORMAT]`` before the format, which is empty if there is none."""
    if defined := _DEFINED.fullmatch(written):
        return defined["rest"], defined["format"]
    patterns, colon, decode = written.rpartition(":")
    return (patterns, decode) if colon else (written, "")


def _ofMapping(name: str, written: Mapping[str, Any]) -> TableSpec:
    for key in written:
        if key not in _KEYS:
            raise OptionRefused(f"{name} has {key!r}, but there are only {', '.join(_KEYS)}")
    if "name" not in written:
        raise OptionRefused(f"{name} has no name")
    decode, definition = formatIn(option_values.text(f"{name}.decode", written.get("decode", "raw")))
    return TableSpec(
        option_values.text(f"{name}.name", written["name"]),
        option_values.texts(f"{name}.topics", written.get("topics", ())),
        decode,
        option_values.text(f"{name}.schema", written["schema"]) if "schema" in written else None,
        option_values.flag(f"{name}.identity-metadata", written.get("identity-metadata", False)),
        option_values.flag(f"{name}.identity-base64", written.get("identity-base64", False)),
        option_values.texts(f"{name}.integers", written.get("integers", ())),
        option_values.text(f"{name}.upsert", written.get("upsert", "")),
        definition,
        "decode" in written,
    )


def topicPatterns(specs: Iterable[TableSpec]) -> tuple[str, ...]:
    """Return patterns for all topics of these tables; none means every topic."""
    patterns: dict[str, None] = {}
    for spec in specs:
        if not spec.topics:
            return ()
        patterns.update(dict.fromkeys(spec.topics))
    return tuple(patterns)


def writeSpec(table: str, spec: TableSpec, files: LakeFiles = FILES) -> None:
    """Record the specification of a table, for jobs that read its payloads again; raises OSError."""
    writeOwn(table, _NAME, [asdict(spec)], files)


def readSpec(table: str, files: LakeFiles = FILES) -> TableSpec:
    """Return the recorded specification of a table; raises LakeRefused, also if only an older version fed the table."""
    found = readRecorded(table, _NAME, _specs, files)
    if found is None:
        raise LakeRefused(
            f"the table {table} was last fed by an older FlexiMQ, which did not record its topics: start its ingest "
            "once, then it does"
        )
    return found[0]


def packed(specs: Iterable[TableSpec]) -> str:
    """Return tables as text, for the tasks."""
    return json.dumps([asdict(spec) for spec in specs])


def unpacked(text: str) -> list[TableSpec]:
    """Return the tables that :func:`packed` has written."""
    return _specs(json.loads(text))


def _specs(found: Any) -> list[TableSpec]:
    return [
        TableSpec(**{**each, "topics": tuple(each["topics"]), "integers": tuple(each["integers"])}) for each in found
    ]
