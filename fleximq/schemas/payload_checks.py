"""Checks publications by the schemas of their topics, for the broker."""

from collections.abc import Callable, Sequence
from functools import partial

from fleximq.errors import SettingError
from fleximq.schemas.definition import JSON_SCHEMA, definitionOf, formOf
from fleximq.schemas.misfit import ICodec, Misfit
from fleximq.values.message import Content, Message
from fleximq.values.patterns import anyOf
from fleximq.wire.messagepack_json import toJson
from fleximq.wire.payload_conversion import toBytes

#: Maximum bytes of a payload with a schema: its check holds up the reactor.
MAX_BYTES = 1 << 20

#: Returns why a message does not fit, as ``orders.total must be a number``, None if it does.
Check = Callable[[Message], str | None]


class PayloadChecks:
    """The schemas of some topics: ``lines`` are a pattern each, and the file of the schema with perhaps a message of
    Protocol Buffers. All files are read; raises SettingError for one that cannot be used.
    """

    def __init__(self, lines: Sequence[tuple[str, str]]) -> None:
        self._known = []
        for pattern, file in lines:
            try:
                definition = definitionOf(formOf(file), file)
                self._known.append((anyOf((pattern,)), definition.codec(), definition.form == JSON_SCHEMA))
            except SettingError as error:
                raise SettingError(f"schema {pattern}={file}: {error}") from error

    def of(self, topic: str) -> Check | None:
        """Return the check of a topic's messages: that of the first pattern that matches; None without one."""
        for matches, codec, isJson in self._known:
            if matches(topic):
                return partial(_fault, topic, codec, isJson)
        return None


def _fault(topic: str, codec: ICodec, isJson: bool, message: Message) -> str | None:
    try:
        if len(message.payload) > MAX_BYTES:
            raise Misfit("", f"has more than {MAX_BYTES:,} bytes, the most with a schema")
        content = _content(message, isJson)
        if len(content) > MAX_BYTES:
            raise Misfit("", f"has more than {MAX_BYTES:,} bytes as JSON, the most with a schema")
        codec.read(content)
    except Misfit as misfit:
        return f"{topic}.{misfit.path} {misfit.words}" if misfit.path else f"{topic}: the payload {misfit.words}"
    return None


def _content(message: Message, isJson: bool) -> bytes:
    """Return the bytes that the schema describes: of MessagePack the content of a str or bin, or else its JSON."""
    content = toBytes(message)
    if message.content is not Content.MESSAGEPACK or content is not message.payload or not content:
        return content
    if not isJson:
        raise Misfit("", "is no bytes but another value of MessagePack")
    try:
        return toJson(content)
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        raise Misfit("", f"is no JSON: {error}") from None
