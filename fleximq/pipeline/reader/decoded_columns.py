"""The columns ``decoded`` and ``error`` of the source: what payloads say, by the options ``decode`` and its like."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from fleximq.pipeline.errors import OptionRefused
from fleximq.pipeline.payloads.ddl import parsed, typeWritten
from fleximq.pipeline.payloads.dialect_payloads import VERBATIM, Identity

if TYPE_CHECKING:
    from fleximq.pipeline.payloads.decoder import Decoder

#: The columns that are made of payloads.
MADE = ("decoded", "error")
#: What they are made of.
_NEEDED = ("value", "dialect", "content")
#: The options that are read here.
OPTIONS = ("decode", "decodeSchema", "identityMetadata", "identityBase64")


class Decoding(NamedTuple):
    """How payloads are decoded: format, columns, and what is taken apart before."""

    format: str
    schema: pa.Schema | None = None
    identity: Identity = VERBATIM

    @classmethod
    def of(cls, options: Mapping[str, str], identity: Identity) -> "Decoding | None":
        """Return what options ask for; None if payloads stay as they are.

        :raises OptionRefused: they do not go together, or the schema is none.
        """
        if "decode" not in options:
            given = [name for name in OPTIONS if name in options]
            if given:
                raise OptionRefused(f"the option {given[0]!r} belongs to 'decode', which is missing")
            return None
        ddl = options.get("decodeSchema")
        decoding = cls(options["decode"].strip().lower(), None if ddl is None else parsed(ddl), identity)
        decoding.decoder()
        return decoding

    def decoder(self) -> "Decoder":
        """Return what decodes payloads like this."""
        # It takes a quarter of all that is loaded, which each of Spark's processes would do, and few of them decode.
        from fleximq.pipeline.payloads.decoder import Decoder

        return Decoder(*self)

    def types(self) -> dict[str, pa.DataType]:
        """Return the types of the columns that are made."""
        return {"decoded": pa.struct(list(self.decoder().schema)), "error": pa.string()}

    def ddl(self) -> dict[str, str]:
        """Return the same in Spark's DDL."""
        return {name: typeWritten(type) for name, type in self.types().items()}


def needed(columns: Sequence[str]) -> list[str]:
    """Return the columns that have to be read so that these can be had."""
    if not any(name in MADE for name in columns):
        return list(columns)
    return list(dict.fromkeys([*(name for name in columns if name not in MADE), *_NEEDED]))


def decoded(
    batches: Iterable[pa.RecordBatch], columns: Sequence[str], decoding: Decoding | None
) -> Iterator[pa.RecordBatch]:
    """Yield batches with just these columns, in this order.

    :param batches: with the columns that are :func:`needed`.
    """
    if decoding is None or not any(name in MADE for name in columns):
        yield from batches
        return
    decoder = decoding.decoder()
    for batch in batches:
        made = decoder.decode(*(batch.column(name) for name in _NEEDED))
        found = {
            **dict(zip(batch.schema.names, batch.columns, strict=True)),
            "decoded": made.columns,
            "error": pa.nulls(len(batch), pa.string()) if made.errors is None else made.errors,
        }
        yield pa.record_batch([found[name] for name in columns], names=list(columns))
