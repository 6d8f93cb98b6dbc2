"""One publication as the rooms hand it to each other: its bytes, and what these bytes are.

The core never re-encodes a payload. A dialect that needs another form of it asks
:mod:`fleximq.wire.payload_conversion`,
which holds the table of DIALECTS, section 5.
"""

from enum import Enum
from typing import NamedTuple


class Content(Enum):
    """What the bytes of a payload are, told by the dialect they came from."""

    MESSAGEPACK = "messagepack"
    """FlexiMQ: one MessagePack value, or nothing."""
    BYTES = "bytes"
    """BlipMQ: opaque bytes."""
    TEXT = "text"
    """MiniMQ and Identity: UTF-8 text."""


class Message(NamedTuple):
    """One publication, taken out of its run; what queues hold and other dialects render.

    ``payload`` is in the form that ``content`` names. ``qos`` is the publisher's (0 or 1). The three ids are
    MiniMQ's fields, which cross to FlexiMQ as header keys of the same names; None where there is none.
    ``legacy`` marks a MiniMQ v1.0 message, which travels back without its last two fields; ``line`` whatever came as
    a MiniMQ line, and so may go back as one verbatim. ``offset`` is its place in the journal, 0 where it has none.
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
