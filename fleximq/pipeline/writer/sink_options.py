"""The options of the sink and its columns, checked before any row is written."""

from collections.abc import Mapping
from dataclasses import dataclass

from fleximq.limits import KIBIBYTE, MEBIBYTE, isTooLong
from fleximq.pipeline.broker_link import Place, choice, flag
from fleximq.pipeline.errors import OptionRefused
from fleximq.values.urls import urlsIn

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

    place: Place
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
        format = choice(options, "valueFormat", _FORMATS, "bytes")
        query = options.get("txnAppId", "")
        if len(query.encode()) > _MAX_NAME_BYTES:
            raise OptionRefused(f"the option 'txnAppId' may have at most {_MAX_NAME_BYTES} bytes")
        if bool(query) != ("txnVersion" in options):
            raise OptionRefused("the options 'txnAppId' and 'txnVersion' belong together")
        return cls(
            Place.of(options),
            topic,
            flag(options, "requireExactlyOnce", False),
            format == "messagepack",
            _number(options, "portionBytes", MEBIBYTE, KIBIBYTE, 8 * MEBIBYTE),
            query,
            _number(options, "txnVersion", 0, 0, _BATCH_MOST),
            format == "original",
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
