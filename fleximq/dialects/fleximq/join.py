"""The JOIN of a FlexiMQ client: its name and credentials (FlexiMQ document 4.2 and 5.2)."""

import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgpack

from fleximq.errors import BadRequest
from fleximq.security.credentials import ApiKey, Password, Signature, Token
from fleximq.wire.fleximq_header import MessageType, OpenHeader, checkHeader

#: Maximum length of the name that a client joins with.
CLIENT_NAME_CHARACTERS = 256

Credentials = Token | Password | ApiKey | Signature


class JoinRequest(NamedTuple):
    """The content of a JOIN; no more than this of its header is held while the credentials are checked.

    ``name`` is None without the field. ``wantsChallenge``: the client has a key and asks for a challenge to sign.
    """

    id: str | None
    name: str | None = None
    credentials: Credentials | None = None
    wantsChallenge: bool = False


def readJoin(client_id: int, opened: OpenHeader, challenge: str) -> JoinRequest:
    """Return the content of a JOIN.

    :param challenge: the challenge that this connection was sent, "" without one.
    :raises BadRequest, InvalidRouting, AuthenticationFailed: see :func:`fleximq.wire.fleximq_header.checkHeader`.
    """
    if client_id != 0:
        raise BadRequest("the client id of a JOIN must be 0")
    if opened.unreadable is not None:
        raise opened.unreadable
    header = checkHeader(MessageType.JOIN, opened.fields)
    auth = header.fields.get("auth", {})
    if auth.get("type") == "public_key" and "signature" not in auth:
        return JoinRequest(header.id, wantsChallenge=True)
    credentials = credentialsIn(header.fields, challenge)
    name = (header.fields["client_name"] or "") if "client_name" in header.fields else None
    if name is not None and (not isinstance(name, str) or len(name) > CLIENT_NAME_CHARACTERS):
        raise BadRequest(f"'client_name' must be a string of at most {CLIENT_NAME_CHARACTERS} characters")
    return JoinRequest(header.id, name, credentials)


def credentialsIn(fields: Mapping[Any, Any], challenge: str) -> Credentials | None:
    """Return the credentials in a checked JOIN, None without any.

    :param challenge: the challenge that this connection was sent, "" without one.
    """
    auth = fields.get("auth")
    if auth is None:
        return None
    if auth["type"] == "token":
        return Token(auth["token"])
    if auth["type"] == "basic":
        return Password(auth["username"], auth["password"])
    if auth["type"] == "public_key":
        return Signature(auth["public_key"], challenge, auth["signature"])
    return ApiKey(auth["api_key"])


def newChallenge() -> tuple[str, bytes]:
    """Return a challenge, and the payload that asks for another JOIN with its signature."""
    challenge = secrets.token_urlsafe(32)
    return challenge, msgpack.packb({"error": "sign the challenge in another JOIN", "challenge": challenge})
