"""An operator's acts against clients, for the broker's paths and the web API: disconnect, ban, list and end bans."""

from collections.abc import Callable, Mapping
from typing import Any

from twisted.logger import Logger
from zope.interface import implementer

from fleximq.broker.broker import Broker
from fleximq.broker.envelope import ConnectedClient
from fleximq.broker.paths.arguments import Listing, number, page, text
from fleximq.errors import BadRequest, BrokerError, Forbidden, JoinRejected
from fleximq.interfaces import IOperator
from fleximq.security.bans import Ban, Bans, banKey, keysOf
from fleximq.security.principal import ANONYMOUS, MAX_NAME_CHARACTERS
from fleximq.services.reload import Reload

_log = Logger()

#: The default and the longest duration of a ban, in seconds.
BAN_SECONDS, MAX_BAN_SECONDS = 3600, 366 * 86400
#: Maximum bytes of names and reasons.
_NAME_BYTES, _REASON_BYTES = 4 * MAX_NAME_CHARACTERS, 500

Arguments = Mapping[str, Any]


@implementer(IOperator)
class Operator:
    """Acts for operators; each act takes arguments and the name of the operator. ``reload`` holds the settings."""

    def __init__(self, broker: Broker, bans: Bans, reload: Reload) -> None:
        self._broker = broker
        self._bans = bans
        self._reload = reload

    def reload(self) -> dict[str, Any]:
        return self._reload.reloadForClient()

    def perform(self, act: str, arguments: Arguments, by: str) -> tuple[Arguments, dict[str, Any]]:
        acts = {"kick": self._kick, "ban": self._ban, "unban": self._unban, "bans": self._list}
        read = _read(act, arguments)
        return read, acts[act](read, by)

    def _kick(self, arguments: Arguments, by: str) -> dict[str, Any]:
        """Disconnect the client with this ``client_id``, or those of a ``principal`` or an ``address``."""
        if "client_id" in arguments:
            clientId = arguments["client_id"]
            return {"disconnected": self._expel(lambda client: client.id == clientId, Forbidden(_DISCONNECTED))}
        key = banKey(*_named(arguments))
        return {"disconnected": self._expel(lambda client: key in _keys(client), Forbidden(_DISCONNECTED))}

    def _ban(self, arguments: Arguments, by: str) -> dict[str, Any]:
        """Ban a ``principal`` or an ``address`` for so many ``seconds``, with a ``reason``; disconnect its clients."""
        kind, name = _named(arguments)
        if (kind, name) == ("principal", ANONYMOUS) and self._isAnonymous(by):
            raise BadRequest("this would ban yourself: authenticate to ban anonymous clients")
        seconds = arguments["seconds"]
        ban = Ban(kind, name, self._broker.clock.seconds() + seconds, arguments["reason"], by)
        self._bans.add(ban)
        _log.info(
            "{by} bans {kind} {name} for {seconds} s", by=by, kind=kind, name=name, seconds=seconds, event="admin"
        )
        key = banKey(kind, name)
        gone = self._expel(lambda client: key in _keys(client), JoinRejected("this client is banned"))
        return {**self._row(ban), "disconnected": gone}

    def _isAnonymous(self, by: str) -> bool:
        # Operators without a principal are named by their clients, on the web by the word.
        clients = self._broker.clients
        return by == ANONYMOUS or any(each.principal is None and each.name == by for each in clients)

    def _unban(self, arguments: Arguments, by: str) -> dict[str, Any]:
        """End the ban of a ``principal`` or an ``address``; ``removed`` tells whether there was one."""
        kind, name = _named(arguments)
        removed = self._bans.remove(kind, name)
        if removed:
            _log.info("{by} ends the ban of {kind} {name}", by=by, kind=kind, name=name, event="admin")
        return {"removed": removed}

    def _list(self, arguments: Arguments, by: str) -> dict[str, Any]:
        """List the bans in force; their keys are ``KIND NAME``."""
        some = arguments["after"], arguments["limit"]
        return Listing("bans", self._bans, lambda ban: f"{ban.kind} {ban.name}", self._row, *some).atOnce()

    def _row(self, ban: Ban) -> dict[str, Any]:
        until = self._broker.wall() + ban.until - self._broker.clock.seconds()
        return {ban.kind: ban.name, "until": int(until * 1000), "reason": ban.reason, "by": ban.by}

    def _expel(self, chosen: Callable[[ConnectedClient], bool], error: BrokerError) -> int:
        """Disconnect clients, and return their number; those of extensions have no connection."""
        found = [each.conversation for each in self._broker.clients if each.conversation is not None and chosen(each)]
        for conversation in found:
            conversation.expel(error)
        return len(found)


_DISCONNECTED = "disconnected by the operator"


def _read(act: str, arguments: Arguments) -> Arguments:
    """Return the arguments that an act uses, checked and with their defaults; raises BadRequest for a wrong one."""
    if act == "bans":
        after, limit = page(arguments, str, "")
        return {"after": after, "limit": limit}
    if act == "kick" and "client_id" in arguments:
        return {"client_id": number(arguments, "client_id")}
    kind, name = _named(arguments)
    if act != "ban":
        return {kind: name}
    seconds = number(arguments, "seconds", BAN_SECONDS, MAX_BAN_SECONDS, least=1)
    reason = text(arguments, "reason", _REASON_BYTES) if arguments.get("reason") else ""
    return {kind: name, "seconds": seconds, "reason": reason}


def _named(arguments: Arguments) -> tuple[str, str]:
    kinds = [kind for kind in ("principal", "address") if kind in arguments]
    if len(kinds) != 1:
        raise BadRequest("name either a 'principal' or an 'address'")
    return kinds[0], text(arguments, kinds[0], _NAME_BYTES)


def _keys(client: ConnectedClient) -> tuple[Any, Any]:
    return keysOf(client.principal, client.address)
