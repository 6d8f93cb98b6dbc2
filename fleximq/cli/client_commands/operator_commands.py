"""``fleximq queues``, ``dead-letters``, ``clients``, ``topics`` and ``ban``: the broker's listings, and acts on them.

:data:`NOUNS` is the table of all but ``ban``; docs/reference/messages.rst describes the paths.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from itertools import chain
from time import time
from typing import Any, NamedTuple

from fleximq.cli.client_commands.broker_options import Address, addOptions, count
from fleximq.cli.client_commands.client_command import Row, clientCommand, pagedRows, readingAnswers, run, tellMissing
from fleximq.cli.client_commands.queue_moves import definition, move
from fleximq.cli.client_commands.texts import asJson
from fleximq.cli.command import Argument, Command, argument, group, switch
from fleximq.cli.output import console, jsonOption, outJson, say, show, table, tell
from fleximq.client.blocking import Client
from fleximq.errors import SettingError
from fleximq.limits import DEAD
from fleximq.values.message import Content, Message
from fleximq.values.printable import jsonLine
from fleximq.wire.payload_conversion import toMessagePack


class Action(NamedTuple):
    """One action of a command, with its help and the broker's path."""

    words: str
    path: str
    rows: str = ""  #: The key of the rows in the answer; the path may be paged.
    #: Headings of the table, and the fields of rows below them; without them rows are shown in full.
    columns: Mapping[str, str] = {}  # noqa: RUF012  (it is never changed)
    subject: Callable[[str], Row] | None = None  #: Returns the argument of the path for NAME; None: it takes no name.
    options: tuple[str, ...] = ()  #: The options that it takes, of :data:`_OPTIONS`.
    row: Callable[[Row], Row | None] = lambda row: row  #: Changes a row for the output; None drops it.
    sentence: str = ""  #: The result without rows, with the fields of the answer and the ``name``.
    #: Acts in place of one request, with the arguments and seconds for each answer.
    act: Callable[[Client, Row, float], Row] | None = None
    more: tuple[str, str] = ("", "")  #: A second paged path with rows, and their key in its answer.


def _topic(name: str, prefix: str = "") -> Row:
    return {"topic": prefix + name.removeprefix(prefix)}


def _client(name: str) -> Row:
    if not (name.isascii() and name.isdecimal() and int(name)):
        raise SettingError(f"{name!r} is not the id of a client; fleximq clients shows the ids")
    return {"client_id": int(name)}


def _message(row: Row) -> Row:
    """Return a waiting message with its value in place of its payload; the value is None if it is too large."""
    payload, content = row["payload"], Content(row["content"])
    value = None if payload is None else asJson(toMessagePack(Message(payload, content)))
    return {"value": value, **{name: each for name, each in row.items() if name != "payload"}}


def _letters(row: Row) -> Row | None:
    return {**row, "topic": row["topic"].removeprefix(DEAD)} if row["dead_letters"] else None


_LOAD = {
    "messages": "messages",
    "in flight": "in_flight",
    "consumers": "consumers",
    "memory": "bytes",
    "durable": "kept",
    "paused": "paused",
}
_PEEKED = {"value": "value", "id": "message_id", "deliveries": "deliveries", "bytes": "bytes"}
_LETTERS = {
    "value": "value", "id": "message_id", "reason": "reason", "attempts": "attempts", "died": "last",
    "consumer": "consumer", "words": "words",
}  # fmt: skip
_CLIENTS = {
    "name": "name", "as": "client_name", "id": "client_id", "dialect": "dialect", "principal": "principal",
    "from": "address", "seconds": "connected", "subs": "subscriptions", "queues": "queues",
    "node": "node",
}  # fmt: skip
#: Fields of which a table has no column if no row has a value.
_RARE = ("client_name", "node", "paused", "queues", "subscription")


def _named(name: str) -> Row:
    return {"queue": name}


def _queueOf(name: str) -> Row:
    return {"queue": name.removeprefix(DEAD)}


_LIMITED, _FILTERED = ("limit",), ("limit", "id", "reason", "consumer", "older", "younger", "words")

#: The commands, with their help, the name of their argument and their actions; the first one is the default.
NOUNS: Mapping[str, tuple[str, str, Mapping[str, Action]]] = {
    "queues": ("List, inspect, define, purge and delete work queues.", "TOPIC", {
        "ls": Action("list all, and BlipMQ subscriptions", "/broker/queues", "queues",
                   {"topic": "topic", "subscription": "subscription", **_LOAD},
                   more=("/broker/subscriptions", "subscriptions")),
        "info": Action("show one in full", "/broker/queues", "queues", {}, _topic),
        "purge": Action("discard the waiting messages", "/broker/queues/purge", subject=_topic,
                      sentence="messages of {name} discarded: {purged}"),
        "peek": Action("show the oldest messages, which stay", "/broker/queues/peek", "messages", _PEEKED, _topic,
                     _LIMITED, _message),
        "define": Action("set how it delivers, by --set", "/queue/define", subject=_named, options=("set", "replace"),
                       sentence="queue {name} is defined"),
        "pause": Action("stop its deliveries", "/queue/pause", subject=_named,
                      sentence="deliveries of {name} are paused"),
        "resume": Action("resume its deliveries", "/queue/pause", subject=lambda name: {"queue": name, "paused": False},
                       sentence="deliveries of {name} are resumed"),
        "delete": Action("delete it with its messages", "/queue/delete", subject=_named,
                       sentence="queue {name} is deleted, with messages: {deleted}"),
        "move": Action("put its messages into another one, without their ids", "/queue/list", subject=_named,
                     options=("limit", "to"), sentence="messages of {name} moved to {to}: {moved}", act=move),
    }),
    "dead-letters": ("List, inspect and return dead letters.", "QUEUE", {
        "ls": Action("list the topics with any", "/broker/queues", "queues", {"topic": "topic", **_LOAD}, row=_letters),
        "show": Action("show the oldest", "/broker/dead-letters", "letters", _LETTERS, _queueOf, _FILTERED,
                     _message),
        "return": Action("return them to the queue in which they died", "/broker/dead-letters/return", "", {},
                       _queueOf, _FILTERED, sentence="dead letters returned to the queue {name}: {returned}"),
    }),
    "clients": ("List, inspect and disconnect clients.", "ID", {
        "ls": Action("list all", "/broker/clients", "clients", _CLIENTS),
        "info": Action("show one in full", "/broker/clients", "clients", {},
                       lambda name: {"after": _client(name)["client_id"] - 1, "limit": 1}),
        "disconnect": Action("disconnect one", "/broker/kick", subject=_client, sentence="client {name} disconnected"),
    }),
    "topics": ("List topics.", "TOPIC", {
        "ls": Action("list all", "/broker/topics", "topics",
                   {"topic": "topic", "published": "published", "subscribers": "subscribers", "durable": "durable",
                    "queued": "queued", "node": "node"}),
    }),
}  # fmt: skip


def _command(noun: str) -> Command:
    words, metavar, actions = NOUNS[noun]
    helpText = "; ".join(f"{name}: {action.words}" for name, action in actions.items()) + " [ls]"
    own: list[Argument] = [argument("action", "COMMAND", helpText, nargs="?", choices=tuple(actions), default="ls")]
    if named := " and ".join(name for name, action in actions.items() if action.subject):
        own.append(argument("name", metavar, f"for {named}", nargs="?"))
    taken = {name for action in actions.values() for name in action.options}
    own += [each for name, (each, _) in _OPTIONS.items() if name in taken]
    return Command(noun, words, (*own, jsonOption(), addOptions), partial(run, partial(_run, noun)))


def _run(noun: str, arguments: Namespace, address: Address) -> int:
    action, name = NOUNS[noun][2][arguments.action], getattr(arguments, "name", None)
    if (name is None) != (action.subject is None):
        wants = f"needs the {NOUNS[noun][1]}" if name is None else f"takes no {NOUNS[noun][1]}"
        raise SettingError(f"{noun} {arguments.action} {wants}")
    asked: dict[str, Any] = dict(action.subject(name)) if action.subject and name is not None else {}
    asked |= _options(noun, arguments, action)
    with readingAnswers(), address.connect() as client:
        if not action.rows:
            act = action.act or (lambda client, asked, timeout: client.ask(action.path, asked, timeout))
            return _act(action, arguments, act(client, asked, address.timeout))
        if action.options or asked:
            found = client.ask(action.path, asked, address.timeout)[action.rows]
        else:
            paths = [each for each in ((action.path, action.rows), action.more) if each[0]]
            found = chain.from_iterable(pagedRows(client, *each, address.timeout) for each in paths)
        shown = list(filter(None, map(action.row, found)))
        if not action.columns and (not shown or str(shown[0].get("client_id", name)) != name):
            raise SettingError(f"there is no client {name}" if noun == "clients" else f"there is no queue of {name!r}")
        _show(action, arguments, shown)
    return 0


#: The options of actions, and the arguments of the path for a value.
_OPTIONS: Mapping[str, tuple[Argument, Callable[[Any], Row]]] = {
    "limit": (argument("--limit", "N", "at most so many messages", type=count), lambda number: {"limit": number}),
    "set": (argument("--set", "KEY=VALUE", "of its definition, e.g. max_attempts=5, retry.first=10; repeatable",
                     action="append"), definition),
    "replace": (switch("--replace", "change an existing definition"),
                lambda replace: {"replace": replace}),
    "to": (argument("--to", "QUEUE", "the queue to move to"), lambda queue: {"to": queue}),
    "id": (argument("--id", "ID", "only the message with this id; repeatable", action="append"),
           lambda ids: {"ids": ids}),
    "reason": (argument("--reason", "WORD", "only those that died for it: attempts, rejected, expired or too large"),
               lambda word: {"reason": word}),
    "consumer": (argument("--consumer", "NAME", "only those that this client had last"),
                 lambda name: {"consumer": name}),
    "older": (argument("--older", "SECONDS", "only those that died at least so long ago", type=count),
              lambda seconds: {"before": _ago(seconds)}),
    "younger": (argument("--younger", "SECONDS", "only those that died since then", type=count),
                lambda seconds: {"after": _ago(seconds)}),
    "words": (argument("--words", "TEXT", "only those whose consumer rejected them with these words"),
              lambda text: {"words": text}),
}  # fmt: skip


def _ago(seconds: int) -> int:
    """Return the time so many seconds ago in milliseconds since 1970."""
    return round((time() - seconds) * 1000)


def _options(noun: str, arguments: Namespace, action: Action) -> Row:
    taken = {name for each in NOUNS[noun][2].values() for name in each.options}
    asked: dict[str, Any] = {}
    for name, (_, argumentsFor) in _OPTIONS.items():
        value = getattr(arguments, name, None) if name in taken else None
        if value not in (None, False):
            if name not in action.options:
                raise SettingError(f"{noun} {arguments.action} takes no --{name}")
            asked |= argumentsFor(value)
    return asked


def _act(action: Action, arguments: Namespace, answer: Row) -> int:
    """Show the result of an act; an incomplete one is an error, as is one without a client."""
    tellMissing(answer)
    if answer.get("disconnected") == 0:
        raise SettingError(f"there is no client {arguments.name}")
    name = arguments.name
    if "returned" in answer:
        name = name.removeprefix(DEAD)
        if not answer["returned"] and arguments.id:
            raise SettingError(f"no dead letter of {name} has the id {' or '.join(arguments.id)}")
    tell(arguments, action.sentence.format(**answer, name=name), **answer)
    if answer.get("reason"):
        say(f"fleximq: not all: {answer['reason']}")
    return 1 if answer.get("reason") else 0


def _show(action: Action, arguments: Namespace, rows: list[Row]) -> None:
    if arguments.json:
        for row in rows:
            outJson(row)
        return
    if action.columns:
        rare = {name for name in _RARE if not any(row.get(name) for row in rows)}
        columns = {heading: name for heading, name in action.columns.items() if name not in rare}
        cells = [[_cell(name, row.get(name)) for name in columns.values()] for row in rows]
        shown = table(tuple(columns), cells, expand=False)
    else:
        shown = table(("", ""), [(name, _cell(name, value)) for row in rows for name, value in row.items()], False)
    console().print(shown)


def _cell(field: str, value: Any) -> Any:
    """Return the value of a field for a table: ids without separators, seconds without fractions, others as JSON."""
    if field == "queues":
        return ", ".join(value or ())
    if isinstance(value, dict | list):
        return jsonLine(value, (",", ":"))
    if field == "last" and value:
        return f"{datetime.fromtimestamp(value / 1000).astimezone():%Y-%m-%d %H:%M:%S}"
    if field in ("client_id", "subscription"):
        return str(value or "")
    return round(value) if isinstance(value, float) else value


QUEUES, DEAD_LETTERS, CLIENTS, TOPICS = map(_command, NOUNS)


def _banned(parser: ArgumentParser) -> None:
    banned = parser.add_mutually_exclusive_group(required=True)
    banned.add_argument("--principal", metavar="NAME", help="the name that its credentials gave it")
    banned.add_argument("--address", metavar="IP", help="an address; of IPv6 the first 64 bits count")


@clientCommand(
    "add",
    _banned,
    argument("--seconds", "N", "how long [3600]", type=count, default=3600),
    argument("--reason", "TEXT", "a note for the list and the audit log", default=""),
    jsonOption("one JSON object per ban"),
)
def _ban(arguments: Namespace, address: Address) -> None:
    """Disconnect a principal or an address, and refuse it until the ban ends."""
    with address.connect() as client:
        details = {"seconds": arguments.seconds, "reason": arguments.reason}
        found = client.ask("/broker/ban", {**_bannedName(arguments), **details}, address.timeout)
    tellMissing(found)
    show(arguments, f"{_banSentence(found)}; clients disconnected: {found['disconnected']}", found)


@clientCommand("ls", jsonOption("one JSON object per ban"))
def _listBans(arguments: Namespace, address: Address) -> None:
    """List the bans in force."""
    with readingAnswers(), address.connect() as client:
        for row in pagedRows(client, "/broker/bans", "bans", address.timeout):
            show(arguments, _banSentence(row), row)


@clientCommand("remove", _banned)
def _unban(arguments: Namespace, address: Address) -> int:
    """End a ban."""
    with address.connect() as client:
        found = client.ask("/broker/unban", _bannedName(arguments), address.timeout)
    tellMissing(found)
    if not found["removed"]:
        say("fleximq: there is no such ban")
    return 0 if found["removed"] else 1


def _bannedName(arguments: Namespace) -> dict[str, str]:
    return {"principal": arguments.principal} if arguments.principal else {"address": arguments.address}


def _banSentence(row: Row) -> str:
    kind = "principal" if "principal" in row else "address"
    until = datetime.fromtimestamp(row["until"] / 1000).astimezone()
    reason = f": {row['reason']}" if row["reason"] else ""
    return f"{kind} {row[kind]} until {until:%Y-%m-%d %H:%M:%S} by {row['by']}{reason}"


BAN = group("ban", "Refuse a principal or an address for a while.", _ban, _listBans, _unban)
