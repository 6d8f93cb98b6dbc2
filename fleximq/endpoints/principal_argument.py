"""The argument ``principal=NAME`` of a listener: all its clients are this principal.

MiniMQ's clients cannot show who they are, so the listener says it. Everybody who reaches it has the principal's rights:
it must be on a UNIX socket or on loopback.
"""

import re

from twisted.internet.address import IPv4Address

from fleximq.endpoints.endpoint_string import EndpointString
from fleximq.errors import SettingError
from fleximq.security.anonymous_access import isLocal
from fleximq.security.principal import isName
from fleximq.values.urls import isUrl

_ARGUMENT = re.compile(r"(?<!\\):principal=((?:[^:\\]|\\.)*)")


def withoutPrincipal(endpoint: str) -> tuple[str, str | None]:
    """Return an endpoint without the argument, and its value; a TCP port with it is on loopback by default."""
    found = _ARGUMENT.search(endpoint)
    if found is None or isUrl(endpoint):
        return endpoint, None
    endpoint = endpoint[: found.start()] + endpoint[found.end() :]
    parsed = EndpointString.parse(endpoint)
    if parsed.kind == "tcp" and len(parsed.arguments) < 2 and "interface" not in parsed.named:
        endpoint += ":interface=127.0.0.1"
    return endpoint, found[1].replace("\\", "")


def checkPrincipal(name: str, dialect: str | None, endpoint: EndpointString) -> None:
    """Raise SettingError unless only local MiniMQ clients can be this principal."""
    if dialect != "minimq":
        raise SettingError("principal is for MiniMQ, which has no credentials: minimq+tcp:5677:principal=NAME")
    if not isName(name):
        raise SettingError(f"{name!r} cannot be the name of a principal")
    interface = endpoint.named.get("interface", (*endpoint.arguments, "", "")[1])
    isLocalTcp = endpoint.kind == "tcp" and isLocal(IPv4Address("TCP", interface, 0))
    if endpoint.kind != "unix" and not isLocalTcp:
        raise SettingError("principal is only for unix:PATH, tcp:PORT and tcp:PORT:interface=127.0.0.1")
