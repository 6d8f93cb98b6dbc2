"""The tables of a query: each topic by its own name, ``messages`` for all, those of a lake, and those that the query
defines; opened when named.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType

from fleximq.pipeline.errors import LakeRefused, OptionRefused, sentenceOf
from fleximq.pipeline.files.schema import COLUMNS
from fleximq.pipeline.lake.live_files import logOf
from fleximq.pipeline.lake.locations import sparkPath
from fleximq.pipeline.lake.storage.lake_files import FILES
from fleximq.pipeline.lake.table.file_names import BY_KEY, isFileName, tableNames
from fleximq.pipeline.lake.table.format import layoutOf
from fleximq.pipeline.payloads.ddl import written
from fleximq.pipeline.payloads.decoder import STRUCTURED
from fleximq.pipeline.payloads.schema_formats import REGISTRY, formatIn
from fleximq.pipeline.query.journal_sample import isThere, schemaOf, topicsOf
from fleximq.pipeline.query.lake_source import LakeSource
from fleximq.pipeline.query.past_state import stateAt
from fleximq.pipeline.query.query_tables import QueryTable
from fleximq.pipeline.query.table_names import ALL, noColumns, noTable, noTopic, noTwins, unquoted
from fleximq.pipeline.reader.source_options import SourceOptions

_PART = re.compile(r"`((?:[^`]|``)*)`")


class Tables:
    """The tables that a query can name: of the source, with sealed history, ``own`` ones of the query, and of the
    folder of a lake, the latter with the rows before the offset ``asOf`` of each journal only.
    """

    def __init__(
        self,
        spark: SparkSession,
        options: Mapping[str, str] | None,
        sealed: str | None = None,
        lake: str | None = None,
        asOf: int | None = None,
        own: Mapping[str, QueryTable] | None = None,
    ) -> None:
        self._spark = spark
        self._options = options
        self._sealed = sealed
        self._lake = lake
        self._asOf = asOf
        self._own = own or {}

    def ask(self, query: str) -> DataFrame:
        """Return the result of a query; raises PipelineError if it is invalid, fails, or names an unknown table."""
        opened: list[str] = []
        try:
            while True:
                try:
                    return self._spark.sql(query)
                except AnalysisException as error:
                    name = _missing(error)
                    if name is None:
                        raise OptionRefused(sentenceOf(error)) from error
                    if name in opened:
                        raise unquoted(name) from error
                    self._checkTwins(name, query)
                    self._open(name).createOrReplaceTempView(_quoted(name))
                    opened.append(name)
        finally:
            # The result does not need them.
            for name in opened:
                self._spark.catalog.dropTempView(name)

    def _checkTwins(self, name: str, query: str) -> None:
        """Raise OptionRefused if a query names a second topic that Spark would take for the same."""
        if self._options is None or name == ALL or name in self._own:
            return
        noTwins(name, query, lambda other: isThere(SourceOptions.of(_plain(self._options or {})), other, self._sealed))

    def _open(self, name: str) -> DataFrame:
        own = self._own.get(name)
        if own is None and self._lake is not None and isFileName(name) and FILES.isTable(f"{self._lake}/{name}"):
            return self._lakeTable(f"{self._lake}/{name}")
        if self._options is None:
            raise noTable(name, str(self._lake), [*self._own, *tableNames(self._lake)])
        options = dict(self._options)
        if own is not None or name != ALL:
            for other in ("topics", "subscribe", "subscribePattern"):
                options.pop(other, None)
        if own is not None:
            options["topics"] = ",".join(own.spec.topics)
            if own.format is not None:
                options.pop("decodeSchema", None)
                options["decode"] = own.format
        elif name != ALL:
            self._checkTopic(name)
            # The option is a list with commas.
            isListed = "," not in name and name == name.strip()
            options.update({"subscribe": name} if isListed else {"subscribePattern": re.escape(name)})
        return self._decoded(options, name) if "decode" in options else self._load(options)

    def _lakeTable(self, table: str) -> DataFrame:
        if self._asOf is None:
            return lakeTable(self._spark, table)
        if layoutOf(table) == BY_KEY:
            return stateAt(table, self._asOf, lambda name: lakeTable(self._spark, f"{self._lake}/{name}"))
        return lakeTable(self._spark, table).where(F.col("offset") < self._asOf)

    def _checkTopic(self, name: str) -> None:
        chosen = SourceOptions.of(_plain(self._options or {}))
        if not isThere(chosen, name, self._sealed):
            raise noTopic(name, [*self._own, *tableNames(self._lake), *topicsOf(chosen, self._sealed)])

    def _load(self, options: Mapping[str, str]) -> DataFrame:
        if self._sealed is None:
            return self._spark.read.format("fleximq").options(**options).load()
        from fleximq.pipeline import history

        others = dict(options)
        path = others.pop("path", None)
        folders = json.loads(path) if path is not None and path.startswith("[") else path
        return history.read(self._spark, folders, self._sealed, **others)

    def _decoded(self, options: dict[str, str], name: str) -> DataFrame:
        """Return the source's columns, those of payloads instead of ``value``, and ``error`` for invalid ones."""
        decode, definition = formatIn(options["decode"])
        if decode in (*STRUCTURED, REGISTRY) and "decodeSchema" not in options:
            found = schemaOf(SourceOptions.of(_plain(options)), decode, self._sealed, definition)
            if not found.names:
                raise noColumns(None if name == ALL else name, options["decode"])
            options["decodeSchema"] = written(found)
        rows = self._load(options)
        kept = [name for name in COLUMNS if name != "value"]
        fields = [field.name for field in rows.schema["decoded"].dataType.fields]  # type: ignore[attr-defined]
        taken = {name.lower() for name in (*kept, "error", "decoded")}
        own = [name for name in fields if name.lower() not in taken]
        columns: list[Any] = [F.col(name) for name in kept]
        columns += [F.col("decoded").getField(name).alias(name) for name in own]
        # Fields with names of source columns are available as decoded.offset.
        columns += [F.col("decoded")] if len(own) < len(fields) else []
        return rows.select(*columns, F.col("error"))


def _plain(options: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in options.items() if name not in ("decode", "decodeSchema")}


def lakeTable(spark: SparkSession, table: str, byFolder: bool = True) -> DataFrame:
    """Return the live rows of a lake table; raises LakeRefused if it cannot be read. ``byFolder``: columns in folders'
    names are read too, and hide those of the same name in files.
    """
    if "://" in table:
        # Spark itself would need jars and settings of its own for the store.
        spark.dataSource.register(LakeSource)
        return spark.read.format(LakeSource.name()).option("byFolder", str(byFolder).lower()).load(table)
    log = logOf(table)
    # Without, filters reach files as Java's former dates, which lack 5 to 14 October 1582 and would find no rows there.
    spark.conf.set("spark.sql.datetime.java8API.enabled", "true")
    reader, paths = spark.read, [table]
    if log is not None:
        paths = [f"{table}/{file.path}" for file in log.files()]
        if not paths:
            raise LakeRefused(f"the table {table} has no files yet")
        reader = reader.option("mergeSchema", "true")
    folders = {"basePath": table} if byFolder else {"recursiveFileLookup": "true"}
    rows = reader.options(**folders).parquet(*map(sparkPath, paths))
    # Earlier versions wrote bounds, which leave out NaN; a filter of a product does not use them.
    numbers = [field for field in rows.schema if isinstance(field.dataType, DoubleType | FloatType)]
    return rows.withColumns({each.name: F.col(_quoted(each.name)) * F.lit(1).cast(each.dataType) for each in numbers})


def _missing(error: AnalysisException) -> str | None:
    if error.getCondition() not in ("TABLE_OR_VIEW_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND.WITHOUT_SUGGESTION"):
        return None
    parts = _PART.findall((error.getMessageParameters() or {}).get("relationName", ""))
    return ".".join(part.replace("``", "`") for part in parts) or None


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
