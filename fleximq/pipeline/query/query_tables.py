"""The tables that a query itself defines: ``NAME=PATTERN[,PATTERN][:FORMAT]``, the topics that match with the columns
of their payloads.
"""

from collections.abc import Iterable
from typing import NamedTuple

from fleximq.config import option_values
from fleximq.pipeline.errors import OptionRefused
from fleximq.pipeline.lake.table.table_spec import TableSpec, splitFormat, tableOf
from fleximq.pipeline.payloads.schema_formats import REGISTRY


class QueryTable(NamedTuple):
    """A table; ``format`` is its format as an option has it, with the file of a schema, None for that of others."""

    spec: TableSpec
    format: str | None


def queryTable(name: str, written: object) -> QueryTable:
    """Read one table; raises OptionRefused. The file of its schema is read."""
    text = option_values.text(name, written)
    spec = tableOf(name, text)
    if spec.upsert:
        raise OptionRefused(
            f"{name} is {text!r}, but only tables of a lake can have upsert: ingest it, or leave it out"
        )
    if not spec.isExplicit:
        return QueryTable(spec, None)
    # The URL may be that of the environment, which Spark's workers need not have.
    isRegistry = spec.decode == REGISTRY
    return QueryTable(spec, f"{REGISTRY}:{spec.definition}" if isRegistry else splitFormat(text.partition("=")[2])[1])


def byName(tables: Iterable[QueryTable] | None) -> dict[str, QueryTable]:
    """Return tables by their names; raises OptionRefused for two that SQL does not tell apart."""
    found: dict[str, QueryTable] = {}
    for table in tables or ():
        name = table.spec.name
        if name.lower() in map(str.lower, found):
            raise OptionRefused(f"--table names {name!r} twice")
        found[name] = table
    return found
