"""Filters to ask each reader, and the rows that they must select."""

import math
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa

from fleximq.pipeline.lake.iceberg import catalogOf
from fleximq.pipeline.lake.live_files import liveFiles


class Source(NamedTuple):
    """One table of a lake, and its format."""

    lake: str
    name: str
    format: str

    @property
    def table(self) -> str:
        """The table's folder."""
        return f"{self.lake}/{self.name}"

    @property
    def iceberg(self) -> Any:
        """The table as PyIceberg opens it."""
        return catalogOf(self.lake, None).load_table(("lake", self.name))

    @property
    def files(self) -> list[str]:
        """The files of a plain table."""
        return [f"{self.table}/{path}" for path, _ in liveFiles(self.table)]


class Question(NamedTuple):
    """A filter on a column: ``greater`` than a value, ``equal`` to it, or ``null``. Times are in microseconds."""

    column: str
    type: pa.DataType
    kind: str
    value: Any = None


#: A row's values by column.
Row = Mapping[str, Any]


def questionsFor(random: Random, rows: Sequence[Row], schema: pa.Schema, number: int) -> list[Question]:
    """Return questions about so many columns of a table, chosen at random."""
    fields = [field for field in schema if not pa.types.is_nested(field.type) and field.type != pa.binary()]
    chosen: list[Question] = []
    for name, dataType in ((field.name, field.type) for field in random.sample(fields, min(number, len(fields)))):
        # Not all readers can write NUL in a filter.
        values = [row[name] for row in rows if row[name] is not None and "\0" not in str(row[name])]
        chosen.append(Question(name, dataType, "null"))
        if values:
            chosen.append(Question(name, dataType, "equal", random.choice(values)))
            if dataType != pa.bool_():
                chosen.append(Question(name, dataType, "greater", random.choice(values)))
        finite = [value for value in values if isinstance(value, float) and math.isfinite(value)]
        if finite:
            # NaN is greater than all numbers, except to PyArrow.
            chosen.append(Question(name, dataType, "greater", max(finite)))
            chosen.append(Question(name, dataType, "equal", math.nan))
    return chosen


def answer(rows: Sequence[Row], question: Question, reader: str) -> list[int]:
    """Return the offsets that a reader must find, in order."""
    # PyIceberg asks for NaN by a filter of its own.
    isNumber = reader in ("deltalake", "pyiceberg") and not (reader == "pyiceberg" and question.value != question.value)
    return sorted(row["offset"] for row in rows if _isSelected(row[question.column], question, isNumber))


def _isSelected(value: Any, question: Question, isNumber: bool) -> bool:
    """Tell whether a value is selected; ``isNumber``: NaN is not equal to itself, nor greater than numbers."""
    if question.kind == "null" or value is None:
        return question.kind == "null" and value is None
    if isinstance(value, float) and (math.isnan(value) or math.isnan(question.value)):
        isBoth = math.isnan(value) and math.isnan(question.value)
        return not isNumber and (isBoth if question.kind == "equal" else math.isnan(value) and not isBoth)
    return bool(value > question.value if question.kind == "greater" else value == question.value)
