"""The format of a table, plain Parquet, Delta Lake or Iceberg, and the layout of its files in folders."""

import json
import os
from typing import Any

from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.lake.locations import checkDelta, checkIceberg
from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from fleximq.pipeline.lake.storage.own_folder import OWN
from fleximq.pipeline.lake.table.file_names import BY_KEY, DATE, LAYOUTS, NAMED, TOPIC, writeOwn

PARQUET, DELTA, ICEBERG = "parquet", "delta", "iceberg"
TABLE_FORMATS = (PARQUET, DELTA, ICEBERG)
#: The namespace of Iceberg tables, unless the record of the format names another.
NAMESPACE = "lake"
_NAME = "format"
#: Options of the format that a record need not have.
_DEFAULTS = {"catalog": "of the lake itself", "namespace": NAMESPACE}
_LAYOUT = "layout"


def formatOf(table: str, files: LakeFiles = FILES) -> dict[str, Any]:
    """Return a table's format as ``format``, with its options; Parquet if none is recorded. Raises LakeRefused."""
    path = f"{table}/{OWN}/{_NAME}"
    try:
        found = json.loads(files.readOwn(table, _NAME))
    except FileNotFoundError:
        return {"format": PARQUET}
    except (OSError, ValueError) as error:
        raise LakeRefused(f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict) or found.get("format") not in TABLE_FORMATS:
        raise LakeRefused(f"{path} names a format that this FlexiMQ does not know")
    if found.get(_LAYOUT, TOPIC) not in (*LAYOUTS, BY_KEY):
        raise LakeRefused(f"{path} names a layout that this FlexiMQ does not know")
    return found


def layoutOf(table: str, files: LakeFiles = FILES) -> str:
    """Return a table's layout; raises LakeRefused."""
    found: str = formatOf(table, files).get(_LAYOUT, NAMED)
    return found


def dataFolder(table: str, files: LakeFiles = FILES) -> str:
    """Return the folder of the files of days within a table: ``data/`` for tables in catalogs that others share, some
    of which accept no other; else the table's own, an empty text. Raises LakeRefused.
    """
    return "data/" if formatOf(table, files).get("catalog") is not None else ""


def checkAllRows(table: str, job: str, files: LakeFiles = FILES) -> None:
    """Raise LakeRefused if a table only has the latest row of each key, for a job that needs the others."""
    if layoutOf(table, files) == BY_KEY:
        raise LakeRefused(
            f"the table {table} has only the latest row of each key, which is not enough for {job}: ingest into a "
            "table of another name, which gets all records of the journal"
        )


def setLayout(table: str, layout: str, files: LakeFiles = FILES) -> None:
    """Record another layout, for the files that follow; raises LakeRefused, and OSError."""
    writeOwn(table, _NAME, {**formatOf(table, files), _LAYOUT: layout}, files)


def setFormat(table: str, wanted: dict[str, Any], layout: str | None = None, files: LakeFiles = FILES) -> None:
    """Record format and layout (None: by day) of a new table, or check those of others; raises LakeRefused, OSError."""
    if not (files.hasOwn(table, _NAME) or files.hasOwn(table, "ledger")):
        if layout == TOPIC and wanted["format"] == DELTA:
            # Some readers expect the log's partitions as folders, with the very values.
            raise LakeRefused(f"the table {table} cannot have the layout {TOPIC}: Delta tables are laid out by {DATE}")
        if layout == BY_KEY and wanted["format"] == PARQUET:
            raise LakeRefused(
                f"the table {table} cannot replace rows: plain Parquet has no log that exchanges files for all readers "
                "at once; choose --format delta or iceberg"
            )
        if wanted["format"] == DELTA:
            checkDelta(table)
        if wanted["format"] == ICEBERG:
            checkIceberg(table)
        writeOwn(table, _NAME, {**wanted, _LAYOUT: layout or DATE}, files)
        return
    had = formatOf(table, files)
    has = had.pop(_LAYOUT, NAMED)
    if had["format"] != wanted["format"]:
        raise LakeRefused(f"the table {table} is of format {had['format']} and cannot become {wanted['format']}")
    for name, value in wanted.items():
        # Without an option, a table retains its catalog.
        if had.get(name, _DEFAULTS.get(name)) != value:
            raise LakeRefused(
                f"the table {table} has the {name} {had.get(name, _DEFAULTS[name])} and cannot change to {value}"
            )
    if (layout == BY_KEY) != (has == BY_KEY):
        kinds = {True: "the latest row of each key", False: "all rows"}
        raise LakeRefused(
            f"the table {table} has {kinds[has == BY_KEY]} and cannot change to {kinds[layout == BY_KEY]}"
        )
    if layout is not None and (layout == DATE) != (has == DATE):
        raise LakeRefused(
            f"the table {table} has the layout {TOPIC if has == NAMED else has} and cannot change to {layout}; a new "
            f"table with this layout can be filled by fleximq-pipeline backfill NEW --from {os.path.basename(table)}"
        )
