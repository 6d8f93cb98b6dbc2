"""Parses and writes schemas in Spark's DDL: ``name STRING, at TIMESTAMP, sizes ARRAY<BIGINT>``."""

import re
from typing import NamedTuple

import pyarrow as pa

from fleximq.pipeline.errors import OptionRefused

NESTING = 32
#: Maximum digits of a DECIMAL.
DIGITS = 38

_MOMENT = pa.timestamp("us", tz="UTC")
#: The types of one word; the first word for each is the one that is written.
_WORDS = {
    "STRING": pa.string(),
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "BYTE": pa.int8(),
    "SMALLINT": pa.int16(),
    "SHORT": pa.int16(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "LONG": pa.int64(),
    "FLOAT": pa.float32(),
    "REAL": pa.float32(),
    "DOUBLE": pa.float64(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": _MOMENT,
}
_WRITTEN = {dataType: word for word, dataType in reversed(_WORDS.items())}
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|(\w+)|([<>(),:])|('(?:[^'\\]|\\.)*')|(\S))", re.DOTALL)
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parsed(ddl: str, twins: bool = False) -> pa.Schema:
    """Return the schema that DDL describes, without comments; raises OptionRefused if payloads cannot have it.
    ``twins``: names of columns may differ only in case.
    """
    fields = _fields(_Tokens(ddl), None, 0, twins)
    if not fields:
        raise OptionRefused("the schema has no columns")
    return pa.schema(fields)


def written(schema: pa.Schema) -> str:
    """Return a schema as DDL, which :func:`parsed` accepts; raises as :func:`typeWritten`."""
    return ", ".join(f"{_quoted(field.name)} {typeWritten(field.type)}" for field in schema)


def typeWritten(dataType: pa.DataType) -> str:
    """Return a type in DDL; raises OptionRefused if payloads cannot have it."""
    word = _WRITTEN.get(dataType)
    if word is not None:
        return word
    if pa.types.is_decimal128(dataType):
        return f"DECIMAL({dataType.precision},{dataType.scale})"
    if pa.types.is_list(dataType):
        return f"ARRAY<{typeWritten(dataType.value_type)}>"
    if pa.types.is_map(dataType) and dataType.key_type == pa.string():
        return f"MAP<STRING, {typeWritten(dataType.item_type)}>"
    if pa.types.is_struct(dataType) and dataType.num_fields:
        return f"STRUCT<{', '.join(f'{_quoted(field.name)}: {typeWritten(field.type)}' for field in dataType)}>"
    raise OptionRefused(f"payloads have no type {dataType}")


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else f"`{name.replace('`', '``')}`"


class _Token(NamedTuple):
    """A token: a name, a sign, or empty at the end; ``plain`` if it has no backquotes."""

    text: str
    isName: bool = False
    plain: bool = True

    def __str__(self) -> str:
        return repr(self.text[:40]) if self.text else "nothing"


class _Tokens:
    """The tokens of the text."""

    def __init__(self, ddl: str) -> None:
        self._left = [_token(*match.groups()) for match in _TOKEN.finditer(ddl)][::-1]

    def peek(self) -> str | None:
        """Return the next sign, or plain name in capitals; empty for a quoted name, None at the end."""
        if not self._left:
            return None
        return self._left[-1].text.upper() if self._left[-1].plain else ""

    def take(self) -> _Token:
        return self._left.pop() if self._left else _Token("")

    def name(self, what: str) -> str:
        """Return the next token, a name; raises OptionRefused if it is no name."""
        token = self.take()
        if not token.isName:
            raise OptionRefused(f"the schema has {token} where {what} should stand")
        return token.text

    def skip(self, sign: str | None) -> bool:
        """Skip a sign, if it is the next token; None: tell whether this is the end."""
        found = self.peek() == sign
        if found and sign:
            self._left.pop()
        return found

    def expect(self, sign: str, where: str) -> None:
        if not self.skip(sign):
            raise OptionRefused(f"the schema has {self.take()} instead of {sign!r} {where}")


def _token(quoted: str | None, word: str | None, sign: str | None, text: str | None, other: str | None) -> _Token:
    if quoted is not None:
        return _Token(quoted.replace("``", "`"), True, False)
    return _Token(word or sign or text or other or "", word is not None)


def _fields(tokens: _Tokens, end: str | None, depth: int, twins: bool = False) -> list[pa.Field]:
    """Return the fields up to a sign, or to the end of the text if None."""
    fields: list[pa.Field] = []
    known: set[str] = set()
    while not tokens.skip(end):
        if fields and not tokens.skip(","):
            raise OptionRefused(f"the schema has {tokens.take()} behind {fields[-1].name!r}")
        name = tokens.name("a column's name")
        if (key := name if twins else name.lower()) in known:
            raise OptionRefused(f"the schema has {name!r} twice")
        known.add(key)
        tokens.skip(":")
        fields.append(pa.field(name, _type(tokens, depth)))
        if tokens.peek() == "NOT":
            raise OptionRefused(
                f"the column {name!r} cannot be NOT NULL: where a payload does not fit, all columns are null"
            )
        if tokens.skip("COMMENT") and not tokens.take().text.startswith("'"):
            raise OptionRefused(f"the comment of {name!r} is not in backquotes")
    return fields


def _type(tokens: _Tokens, depth: int) -> pa.DataType:
    if depth > NESTING:
        raise OptionRefused(f"the schema is nested deeper than {NESTING}")
    word = tokens.name("a type").upper()
    if word in _WORDS:
        return _WORDS[word]
    if word in _DECIMALS:
        return _decimal(tokens)
    if word not in ("ARRAY", "MAP", "STRUCT"):
        raise OptionRefused(f"the schema has the type {word[:40]}, which payloads do not have")
    tokens.expect("<", f"behind {word}")
    if word == "STRUCT":
        fields = _fields(tokens, ">", depth + 1)
        if not fields:
            raise OptionRefused("a STRUCT of the schema has no fields")
        return pa.struct(fields)
    first = _type(tokens, depth + 1)
    if word == "ARRAY":
        tokens.expect(">", "after an ARRAY's type")
        return pa.list_(first)
    if first != pa.string():
        raise OptionRefused("the keys of a MAP of the schema must be of type STRING")
    tokens.expect(",", "after a MAP's first type")
    item = _type(tokens, depth + 1)
    tokens.expect(">", "after a MAP's types")
    return pa.map_(first, item)


def _decimal(tokens: _Tokens) -> pa.DataType:
    precision, scale = 10, 0
    if tokens.skip("("):
        precision = _number(tokens)
        if tokens.skip(","):
            scale = _number(tokens)
        tokens.expect(")", "after a DECIMAL's digits")
    if not 1 <= precision <= DIGITS or scale > precision:
        raise OptionRefused(
            f"the schema has a DECIMAL({precision},{scale}): it has 1 to {DIGITS} digits, and no more "
            "of them after the point"
        )
    return pa.decimal128(precision, scale)


def _number(tokens: _Tokens) -> int:
    text = tokens.name("a number of digits")
    if not text.isascii() or not text.isdigit() or len(text) > 4:
        raise OptionRefused(f"the schema has {_Token(text)} instead of a number of digits")
    return int(text)
