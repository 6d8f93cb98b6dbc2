"""``fleximq values``: what the broker stores by keys."""

from argparse import Namespace
from datetime import UTC, datetime

from fleximq.cli.client_commands.broker_options import Address, seconds
from fleximq.cli.client_commands.client_command import clientCommand, readingAnswers
from fleximq.cli.client_commands.texts import FORMATTERS, INPUT, OUTPUT, argumentValue, asJson
from fleximq.cli.command import argument, group
from fleximq.cli.output import console, jsonOption, out, outJson, say, table, tell

_KEY = argument("key", "KEY", "a name with levels, like that of a topic")
_EXPIRES = argument("--expires", "SECONDS", "remove it after this time", type=seconds)


@clientCommand("ls", argument("--prefix", "KEY", "only keys that begin with this", default=""), jsonOption())
def _list(arguments: Namespace, address: Address) -> None:
    """List the keys that have a value."""
    with readingAnswers(), address.connect() as client:
        rows = client.values(address.timeout, prefix=arguments.prefix)
        if arguments.json:
            for row in rows:
                outJson(row)
            return
        cells = [(row["key"], str(row["revision"]), _time(row["expires"]), row["principal"] or "") for row in rows]
    console().print(table(("key", "revision", "expires", "principal"), cells, expand=False))


def _time(expires: int | None) -> str:
    if expires is None:
        return "never"
    return f"{datetime.fromtimestamp(expires / 1000, UTC).astimezone():%Y-%m-%d %H:%M:%S}"


@clientCommand("get", _KEY, argument("--wait", "SECONDS", "wait for a value if there is none", type=seconds), *OUTPUT)
def _get(arguments: Namespace, address: Address) -> int:
    """Print the value of a key; exit code 1 if it has none."""
    with address.connect() as client:
        found = client.get_value(arguments.key, wait=arguments.wait or 0, timeout=address.timeout)
    if found is None:
        return _missing(arguments.key)
    if arguments.json:
        outJson({"key": arguments.key, "revision": found.revision, "value": asJson(found.payload)})
    else:
        out(FORMATTERS[arguments.format](found.payload), arguments.raw)
    return 0


@clientCommand(
    "put", _KEY, argument("value", "VALUE", "the value to store"), INPUT, _EXPIRES,
    argument("--if-revision", "NUMBER", "only if its value has this revision, 0: only if it has none", type=int),
    jsonOption(),
)  # fmt: skip
def _put(arguments: Namespace, address: Address) -> None:
    """Store a value under a key, in place of any other."""
    value = argumentValue(arguments.as_, arguments.value)
    with address.connect() as client:
        revision = client.put_value(
            arguments.key, value, expires=arguments.expires, if_revision=arguments.if_revision, timeout=address.timeout
        )
    tell(arguments, f"{arguments.key} has the revision {revision}", key=arguments.key, revision=revision)


@clientCommand(
    "add", _KEY, argument("number", "NUMBER", "what to add [1]", type=int, nargs="?", default=1), _EXPIRES, jsonOption()
)
def _add(arguments: Namespace, address: Address) -> None:
    """Add to the number of a key, 0 if it has no value, and print the sum."""
    with address.connect() as client:
        total = client.add_to_value(arguments.key, arguments.number, expires=arguments.expires, timeout=address.timeout)
    if arguments.json:
        outJson({"key": arguments.key, "sum": total})
    else:
        out(b"%d\n" % total)


@clientCommand("rm", _KEY)
def _remove(arguments: Namespace, address: Address) -> int:
    """Remove the value of a key."""
    with address.connect() as client:
        return 0 if client.delete_value(arguments.key, timeout=address.timeout) else _missing(arguments.key)


def _missing(key: str) -> int:
    say(f"fleximq: there is no value of {key}")
    return 1


VALUES = group("values", "List, get, put, add to and remove values.", _list, _get, _put, _add, _remove)
