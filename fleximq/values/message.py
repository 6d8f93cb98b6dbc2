"""One publication as the rooms exchange it: its bytes, and their kind.

The core never re-encodes a payload; dialects do, with :mod:`fleximq.wire.payload_conversion`.
"""

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from fleximq.values.publication_head import Head


class Content(Enum):
    """The kind of a payload's bytes, set by the publisher's dialect."""

    MESSAGEPACK = "messagepack"
    """FlexiMQ: one MessagePack value, or no bytes."""
    BYTES = "bytes"
    """BlipMQ: opaque bytes."""
    TEXT = "text"
    """MiniMQ and Identity: UTF-8 text."""


class Message(NamedTuple):
    """One publication, as queues store it and other dialects render it.

    ``payload`` is in the form that ``content`` names. ``qos`` is the publisher's (0 or 1). The three ids are MiniMQ's
    fields, and header keys of the same names in FlexiMQ; None if absent. ``legacy``: a MiniMQ v1.0 message, returned to
    MiniMQ without its last two fields. ``line``: received as a MiniMQ line, so it can be returned as one verbatim.
    ``offset``: its offset in the journal, 0 without one. ``head``: the header of a message from FlexiMQ, else None.
    """

    payload: bytes
    content: Content
    qos: int = 1
    message_id: str | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    legacy: bool = False
    line: bool = False
    offset: int = 0
    head: "Head | None" = None
