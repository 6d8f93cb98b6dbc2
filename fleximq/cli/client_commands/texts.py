"""Text of the command line: topics are checked, values are parsed, and payloads are formatted.

Payloads are shown as to clients of dialects with text payloads (docs/reference/dialects.rst, "Across dialects").
"""

import json
from collections.abc import Callable, Iterable
from typing import Any

from fleximq.cli.command import argument, switch
from fleximq.cli.output import RAW, jsonOption, say
from fleximq.client.events import Delivery
from fleximq.errors import SettingError
from fleximq.values.message import Content, Message
from fleximq.values.patterns import doubtIn, mistakeIn
from fleximq.wire.messagepack_json import toJson
from fleximq.wire.payload_conversion import toBytes, toUtf8

#: The option that turns warnings into errors.
STRICT = switch("--strict", "refuse topics that may not mean what was typed, such as a..b")


def checkTopics(names: Iterable[str], strict: bool, publishes: bool = False) -> None:
    """Warn on standard error of names that are probably wrong.

    :param publishes: the names are topics of messages, not of subscriptions.
    :raises SettingError: a name is a URL; a subscription is surely wrong; if ``strict``, also in place of a
        warning.
    """
    for name in names:
        if "://" in name:
            raise SettingError(f"{name!r} is a URL, not a topic; --url names the broker")
        mistake = None if publishes else mistakeIn(name)
        doubt = mistake or doubtIn(name, publishes)
        if mistake or (doubt and strict):
            raise SettingError(str(doubt))
        if doubt:
            say(f"warning: {doubt}")


def argumentValue(name: str, word: str) -> Any:
    """Return the value of an argument, maybe with bytes that are not UTF-8; raises SettingError if it is invalid."""
    return PARSERS[name](word.encode("utf-8", "surrogateescape"))


def asJson(payload: bytes) -> Any:
    """Return a payload as a JSON value; None if it is empty or not MessagePack."""
    try:
        return json.loads(toJson(payload)) if payload else None
    except ValueError:
        return None


def deliveryAsJson(delivery: Delivery) -> dict[str, Any]:
    """Return a delivery for ``--json``: ``topic``, ``publisher``, ``value``, and the other fields of its header, with
    ``time`` in RFC 3339 for ``stored_at``.
    """
    more = {
        key: value if isinstance(value, str | int | float | bool | None) else repr(value)
        for key, value in delivery.header.items()
        if key not in ("topic", "routing")
    }
    if delivery.time is not None:
        del more["stored_at"]
        more["time"] = delivery.time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"topic": delivery.topic, "publisher": delivery.publisher, "value": asJson(delivery.payload), **more}


def _parser(read: Callable[[bytes], Any], words: str) -> Callable[[bytes], Any]:
    def parse(written: bytes) -> Any:
        try:
            return read(written)
        except (ValueError, RecursionError) as error:
            raise SettingError(f"the value is not {words.format(error)}") from None

    return parse


def _indented(payload: bytes) -> bytes:
    try:
        return json.dumps(json.loads(toJson(payload)), ensure_ascii=False).encode() + b"\n" if payload else b"null\n"
    except ValueError:
        return toUtf8(_message(payload)) + b"\n"


def _message(payload: bytes) -> Message:
    return Message(payload, Content.MESSAGEPACK)


#: Parsers of values by format; they raise SettingError.
PARSERS: dict[str, Callable[[bytes], Any]] = {
    "text": _parser(bytes.decode, "UTF-8: give it as hex (--as hex)"),
    "json": _parser(json.loads, "JSON: {}"),
    "hex": _parser(lambda written: bytes.fromhex(written.decode()), "hex: two digits a byte, e.g. 0aff"),
}
#: Formatters of payloads by format; those with lines add the line's end.
FORMATTERS: dict[str, Callable[[bytes], bytes]] = {
    "text": lambda payload: toUtf8(_message(payload)) + b"\n",
    "json": _indented,
    "hex": lambda payload: toBytes(_message(payload)).hex().encode() + b"\n",
    "raw": lambda payload: toBytes(_message(payload)),
}

#: The option for the format of values on the command line.
INPUT = argument("--as", None, "the format of VALUE: text, JSON, or bytes in hex", dest="as_", choices=tuple(PARSERS),
                 default="text")  # fmt: skip
#: The options for the format of printed payloads.
OUTPUT = (
    argument("--format", None, "the format of values; raw writes their bytes without separators [text]",
             choices=tuple(FORMATTERS), default="text"),
    jsonOption("one JSON object per line, with all fields"),
    RAW,
)  # fmt: skip
