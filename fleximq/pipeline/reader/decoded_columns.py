"""The columns ``decoded`` and ``error`` of the source: payloads decoded by the option ``decode`` and its companions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from fleximq.pipeline.errors import OptionRefused
from fleximq.pipeline.payloads.ddl import parsed
from fleximq.pipeline.payloads.dialect_payloads import VERBATIM, Identity

if TYPE_CHECKING:
    from fleximq.pipeline.payloads.decoder import Decoder

#: The columns made from payloads.
MADE = ("decoded", "error")
#: The columns they are made from.
_NEEDED = ("value", "dialect", "content")
#: The options that are read here.
OPTIONS = ("decode", "decodeSchema", "identityMetadata", "identityBase64")


class Decoding(NamedTuple):
    """How payloads are decoded: format, columns, the parts of Identity messages, and the schema of some formats."""

    format: str
    schema: pa.Schema | None = None
    identity: Identity = VERBATIM
    definition: str = ""

    @classmethod
    def of(cls, options: Mapping[str, str], identity: Identity) -> "Decoding | None":
        """Return the decoding that options select, None without; raises OptionRefused if they are invalid."""
        if "decode" not in options:
            given = [name for name in OPTIONS if name in options]
            if given:
                raise OptionRefused(f"the option {given[0]!r} belongs to 'decode', which is missing")
            return None
        ddl = options.get("decodeSchema")
        from fleximq.pipeline.payloads.schema_formats import formatIn

        decode, definition = formatIn(options["decode"])
        decoding = cls(decode, None if ddl is None else parsed(ddl), identity, definition)
        names = [name.lower() for name in decoding.decoder().schema.names]
        if identity.metadata and "metadata" in names[:-1]:
            raise OptionRefused("the column 'metadata' has the metadata of messages, so the schema cannot have one")
        return decoding

    def decoder(self) -> "Decoder":
        """Return the decoder for payloads."""
        # This import is a quarter of the load time of each of Spark's processes, and few of them decode.
        from fleximq.pipeline.payloads.decoder import Decoder

        return Decoder(*self)

    def types(self) -> dict[str, pa.DataType]:
        """Return the types of the columns that are made."""
        return {"decoded": pa.struct(list(self.decoder().schema)), "error": pa.string()}


def needed(columns: Sequence[str]) -> list[str]:
    """Return the columns to read in order to make these."""
    if not any(name in MADE for name in columns):
        return list(columns)
    return list(dict.fromkeys([*(name for name in columns if name not in MADE), *_NEEDED]))


def decoded(
    batches: Iterable[pa.RecordBatch], columns: Sequence[str], decoding: Decoding | None
) -> Iterator[pa.RecordBatch]:
    """Yield batches with exactly these columns, in this order, from batches with the :func:`needed` ones."""
    if decoding is None or not any(name in MADE for name in columns):
        yield from batches
        return
    decoder = decoding.decoder()
    for batch in batches:
        made = decoder.decode(*(batch.column(name) for name in _NEEDED))
        found = dict(zip(batch.schema.names, batch.columns, strict=True))
        found["decoded"] = made.columns
        found["error"] = pa.nulls(len(batch), pa.string()) if made.errors is None else made.errors
        yield pa.record_batch([found[name] for name in columns], names=list(columns))
