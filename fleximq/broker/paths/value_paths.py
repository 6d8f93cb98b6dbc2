"""The paths of values: put, get, add to, delete and list them. A key is a name like that of a topic."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Required, TypedDict

import msgspec

from fleximq.broker.authorization import permit, permitListening, sees
from fleximq.broker.broker import Broker
from fleximq.broker.envelope import ConnectedClient
from fleximq.broker.key_values.changes import LEAST, MOST
from fleximq.broker.key_values.key_values import Value
from fleximq.broker.paths.arguments import Answer, Arguments, Path, answerStored, array, number, page, seenNames, text
from fleximq.broker.topics.names import isBrokerTopic
from fleximq.errors import BadRequest, BrokerError, Forbidden
from fleximq.limits import MOST_MILLISECONDS, TOPIC_BYTES
from fleximq.rights import Action

#: Maximum number of keys of one request.
MOST_KEYS = 1000
#: Maximum milliseconds for which a request waits for a value.
MOST_WAIT = 60_000
_MOST_REVISION = (1 << 63) - 1


class _Put(TypedDict, total=False):
    # Each has a type: millions of empty arrays in MessagePack would take seconds and a hundred times their bytes.
    key: Required[str]
    value: Required[Annotated[bytes, "MessagePack"]]
    expires_in: int
    if_revision: int


_decode = msgspec.msgpack.Decoder(_Put).decode


def _readPut(packed: bytes) -> Any:
    """Return the arguments of ``/value/put``, with a value as large as a message."""
    try:
        return _decode(packed)
    except msgspec.ValidationError as error:
        raise BadRequest(f"a value is put with a 'key' and a 'value', a string and bytes: {error}") from None


def put(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/value/put`` when it is on disk: the ``revision`` of the new ``value``, bytes, of a ``key``.

    It replaces any other, or with ``if_revision`` only one with this revision, 0: none; else Conflict. It expires after
    ``expires_in`` milliseconds, or never.
    """
    key, value = _keyToChange(client, arguments), arguments.get("value")
    if not isinstance(value, bytes):
        raise BadRequest("'value' must be bytes")
    expires = _expires(broker, arguments) or 0
    broker.valueChanges.put(client, key, value, expires, _revision(arguments), _answering(answer, "revision"))


def add(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/value/add`` when it is on disk: the ``sum`` of a ``number``, 1 without it, and the value of a ``key``,
    which counts as 0 if there is none. With ``expires_in`` the value expires after so many milliseconds from now.
    """
    key, summand = _keyToChange(client, arguments), number(arguments, "number", 1, MOST, LEAST)
    broker.valueChanges.add(client, key, summand, _expires(broker, arguments), _answering(answer, "sum"))


def delete(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/value/delete`` when it is on disk: whether there was a value of this ``key``, which is ``deleted``; or
    Conflict if it has not the revision ``if_revision``. Of several ``keys``, ``deleted`` is the number of values.
    """
    if "keys" in arguments:
        _deleteAll(broker, client, _keys(arguments), answer)
        return

    def done(result: bool | BrokerError) -> None:
        if isinstance(result, BrokerError):
            answer(result)
        else:
            answerStored(broker, answer, {"deleted": result})

    broker.valueChanges.delete(_keyToChange(client, arguments), _revision(arguments), done)


def _deleteAll(broker: Broker, client: ConnectedClient, keys: Sequence[str], answer: Answer) -> None:
    for key in keys:
        _permitChange(client, key)
    results: list[bool | BrokerError] = []

    def done(result: bool | BrokerError) -> None:
        results.append(result)
        if len(results) == len(keys):
            answerStored(broker, answer, {"deleted": results.count(True)})

    for key in keys:
        broker.valueChanges.delete(key, None, done)
    if not keys:
        answer({"deleted": 0})


def get(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/value/get``: the ``values`` of these ``keys``, each with its revision; those that do not exist are
    missing, and those with a revision up to ``after``. About 8 MiB of values are in one answer; the keys of further
    ones are its ``rest``. If there is none, wait for the first one, up to ``wait`` milliseconds.
    """
    keys = _keys(arguments)
    for key in keys:
        permit(client, Action.SUBSCRIBE, key)
    after, wait = number(arguments, "after", 0, _MOST_REVISION), number(arguments, "wait", 0, MOST_WAIT)

    def found(values: Mapping[str, Value], rest: Sequence[str]) -> None:
        answer({"values": {key: [*value] for key, value in values.items()}, "rest": list(rest)})

    if wait:
        broker.keyValues.wait(client, keys, after, wait / 1000, found)
    else:
        broker.keyValues.get(client, keys, after, found)


def count(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/value/count``: how many keys begin with the levels of ``prefix``, which ends with ``/`` or ``.``; the
    client needs the right to read one of them.
    """
    prefix = text(arguments, "prefix", TOPIC_BYTES)
    if prefix[-1] not in "/.":
        raise BadRequest("'prefix' must end with / or .")
    permitListening(client, f"{prefix}#")
    answer({"count": broker.keyValues.count(prefix)})


def values(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/value/list``: the keys that the client may see, all or those with a ``prefix``, with revision,
    milliseconds since 1970 when it expires or nil, and the principal that has put it.
    """
    after, limit = page(arguments, str, "")
    prefix = text(arguments, "prefix", TOPIC_BYTES) if "prefix" in arguments else ""
    held = broker.keyValues

    def listed(keys: list[str], following: str | None) -> None:
        known = [(key, found) for key in keys if (found := held.held(key)) is not None]
        rows = [
            {
                "key": key,
                "revision": found.revision,
                "expires": found.expires or None,
                "principal": held.owners.name(found.owner),
            }
            for key, found in known
        ]
        answer({"values": rows, "next": following})

    seenNames(broker, lambda key: sees(client, key), partial(held.page, prefix), after, limit, listed)


def _keyToChange(client: ConnectedClient, arguments: Arguments) -> str:
    key = text(arguments, "key", TOPIC_BYTES)
    _permitChange(client, key)
    return key


def _permitChange(client: ConnectedClient, key: str) -> None:
    if isBrokerTopic(key):
        raise Forbidden("only the broker publishes to this topic")
    permit(client, Action.PUBLISH, key)


def _keys(arguments: Arguments) -> Sequence[str]:
    keys = array(arguments, "keys", MOST_KEYS)
    if not all(isinstance(key, str) for key in keys):
        raise BadRequest("'keys' must be strings")
    return keys


def _expires(broker: Broker, arguments: Arguments) -> int | None:
    """Return when a value expires, in milliseconds since 1970; None if the arguments do not say it."""
    if "expires_in" not in arguments:
        return None
    return number(arguments, "expires_in", None, MOST_MILLISECONDS, 1) + int(broker.wall() * 1000)


def _revision(arguments: Arguments) -> int | None:
    return number(arguments, "if_revision", None, _MOST_REVISION) if "if_revision" in arguments else None


def _answering(answer: Answer, name: str) -> Callable[[int | BrokerError], None]:
    return lambda result: answer(result if isinstance(result, BrokerError) else {name: result})


#: Those that need rights to keys, and not to the path: all of them.
OWN_RIGHTS = frozenset({put, add, delete, get, count, values})
#: The paths of values by name.
VALUE_PATHS: dict[str, Path] = {
    "/value/put": put,
    "/value/get": get,
    "/value/add": add,
    "/value/delete": delete,
    "/value/count": count,
    "/value/list": values,
}
#: Readers of the arguments of paths that take large ones.
VALUE_READERS: dict[Path, Callable[[bytes], Any]] = {put: _readPut}
