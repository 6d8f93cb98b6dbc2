"""``fleximq queues``, ``dead-letters``, ``clients`` and ``topics``: listings and acts of the broker's own paths.

:data:`NOUNS` is the table of these commands; docs/reference/messages.rst describes the paths.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from fleximq.cli.client_commands.broker_command import brokerCommand
from fleximq.cli.client_commands.broker_options import Address, count
from fleximq.cli.client_commands.payload_text import asJson
from fleximq.cli.output import addJsonOption, outJson, say, tell
from fleximq.cli.tables import console, table
from fleximq.client.blocking import Client
from fleximq.errors import SettingError
from fleximq.limits import DEAD
from fleximq.values.message import Content, Message
from fleximq.values.printable import jsonLine
from fleximq.wire.payload_conversion import toMessagePack

_PAGE = 1000

Row = Mapping[str, Any]


class Work(NamedTuple):
    """One work of a command.

    :param words: its help.
    :param path: the broker's path.
    :param rows: the key of the rows in the answer; the path may be paged.
    :param columns: headings of the table, and the fields of rows below them; without them rows are shown in full.
    :param subject: returns the argument of the path for the name on the command line; None: the work takes no name.
    :param isLimited: whether the work takes ``--limit``.
    :param row: changes a row for the output; None drops it.
    :param sentence: the result of a work without rows, with the fields of the answer and the ``name``.
    """

    words: str
    path: str
    rows: str = ""
    columns: Mapping[str, str] = {}  # noqa: RUF012  (it is never changed)
    subject: Callable[[str], Row] | None = None
    isLimited: bool = False
    row: Callable[[Row], Row | None] = lambda row: row
    sentence: str = ""


def _topic(name: str, prefix: str = "") -> Row:
    return {"topic": prefix + name.removeprefix(prefix)}


def _client(name: str) -> Row:
    if not (name.isascii() and name.isdecimal() and int(name)):
        raise SettingError(f"{name!r} is not the id of a client; fleximq clients shows the ids")
    return {"client_id": int(name)}


def _oneClient(name: str) -> Row:
    return {"after": _client(name)["client_id"] - 1, "limit": 1}


def _message(row: Row) -> Row:
    """Return a waiting message with its value in place of its payload; None if it is too large."""
    payload, content = row["payload"], Content(row["content"])
    value = None if payload is None else asJson(toMessagePack(Message(payload, content)))
    return {"value": value, **{name: each for name, each in row.items() if name != "payload"}}


def _letters(row: Row) -> Row | None:
    return {**row, "topic": row["topic"].removeprefix(DEAD)} if row["dead_letters"] else None


_LOAD = {"messages": "messages", "in flight": "in_flight", "bytes": "bytes", "durable": "kept"}
_LOOK = {"value": "value", "id": "message_id", "deliveries": "deliveries", "bytes": "bytes"}
_CLIENTS = {
    "name": "name", "id": "client_id", "dialect": "dialect", "principal": "principal", "from": "address",
    "seconds": "connected", "subs": "subscriptions",
}  # fmt: skip
_letter = partial(_topic, prefix=DEAD)

#: The commands, with their help, the name of their argument and their works; the first work is the default.
NOUNS: Mapping[str, tuple[str, str, Mapping[str, Work]]] = {
    "queues": ("List, inspect and purge work queues.", "TOPIC", {
        "ls": Work("list all", "/broker/queues", "queues", {"topic": "topic", **_LOAD}),
        "info": Work("show one in full", "/broker/queues", "queues", {}, _topic),
        "purge": Work("discard the waiting messages", "/broker/queues/purge", subject=_topic,
                      sentence="{purged} messages of {name} discarded"),
        "peek": Work("show the oldest messages, which stay", "/broker/queues/peek", "messages", _LOOK, _topic, True,
                     _message),
    }),
    "dead-letters": ("List, inspect and return dead letters.", "TOPIC", {
        "ls": Work("list the topics with any", "/broker/queues", "queues", {"topic": "topic", **_LOAD}, row=_letters),
        "show": Work("show the oldest", "/broker/queues/peek", "messages", _LOOK, _letter, True, _message),
        "return": Work("publish them to their topic again", "/broker/dead-letters/return", "", {}, _letter, True,
                       sentence="{returned} dead letters published to {name} again"),
    }),
    "clients": ("List, inspect and disconnect clients.", "ID", {
        "ls": Work("list all", "/broker/clients", "clients", _CLIENTS),
        "info": Work("show one in full", "/broker/clients", "clients", {}, _oneClient),
        "disconnect": Work("disconnect one", "/broker/kick", subject=_client, sentence="client {name} disconnected"),
    }),
    "topics": ("List topics.", "TOPIC", {
        "ls": Work("list all", "/broker/topics", "topics",
                   {"topic": "topic", "published": "published", "subscribers": "subscribers", "durable": "durable",
                    "queued": "queued"}),
    }),
}  # fmt: skip


def _prepare(noun: str, parser: ArgumentParser) -> None:
    _, metavar, works = NOUNS[noun]
    parser.set_defaults(work="ls")
    if len(works) > 1:
        told = "; ".join(f"{name}: {work.words}" for name, work in works.items())
        parser.add_argument("work", metavar="WORK", nargs="?", choices=tuple(works), default="ls", help=f"{told} [ls]")
        named = " and ".join(name for name, work in works.items() if work.subject)
        parser.add_argument("name", metavar=metavar, nargs="?", help=f"for {named}")
    if any(work.isLimited for work in works.values()):
        parser.add_argument("--limit", metavar="N", type=count, help="at most so many messages")
    addJsonOption(parser)


def _run(noun: str, arguments: Namespace, address: Address) -> int:
    work, name = NOUNS[noun][2][arguments.work], getattr(arguments, "name", None)
    if (name is None) != (work.subject is None):
        wants = f"needs the {NOUNS[noun][1]}" if name is None else f"takes no {NOUNS[noun][1]}"
        raise SettingError(f"{noun} {arguments.work} {wants}")
    if getattr(arguments, "limit", None) is not None and not work.isLimited:
        raise SettingError(f"{noun} {arguments.work} takes no --limit")
    asked: dict[str, Any] = dict(work.subject(name)) if work.subject and name is not None else {}
    if work.isLimited and arguments.limit is not None:
        asked["limit"] = arguments.limit
    with address.connect() as client:
        if not work.rows:
            return _act(work, arguments, client.ask(work.path, asked, address.timeout))
        shown = list(filter(None, map(work.row, _rows(client, work, asked, address.timeout))))
    if not work.columns and (not shown or str(shown[0].get("client_id", name)) != name):
        raise SettingError(f"there is no {noun.removesuffix('s')} {name}")
    _show(work, arguments, shown)
    return 0


def _rows(client: Client, work: Work, asked: dict[str, Any], timeout: float) -> Iterator[Row]:
    isPaged = not work.isLimited and "limit" not in asked
    while True:
        page = client.ask(work.path, asked | ({"limit": _PAGE} if isPaged else {}), timeout)
        yield from page[work.rows]
        if not isPaged or page["next"] is None:
            return
        asked["after"] = page["next"]


def _act(work: Work, arguments: Namespace, answer: Row) -> int:
    """Show the result of an act; an incomplete one is an error, as is one without a client."""
    if answer.get("disconnected") == 0:
        raise SettingError(f"there is no client {arguments.name}")
    tell(arguments, work.sentence.format(**answer, name=arguments.name), **answer)
    if answer.get("reason"):
        say(f"fleximq: not all: {answer['reason']}")
    return 1 if answer.get("reason") else 0


def _show(work: Work, arguments: Namespace, rows: list[Row]) -> None:
    if arguments.json:
        for row in rows:
            outJson(row)
        return
    if work.columns:
        cells = [[_cell(name, row[name]) for name in work.columns.values()] for row in rows]
        shown = table(tuple(work.columns), cells, expand=False)
    else:
        shown = table(("", ""), [(name, _cell(name, value)) for row in rows for name, value in row.items()], False)
    console().print(shown)


def _cell(field: str, value: Any) -> Any:
    """Return the value of a field for a table: ids without separators, seconds without fractions, others as JSON."""
    if isinstance(value, dict | list):
        return jsonLine(value, (",", ":"))
    return str(value) if field == "client_id" else round(value) if isinstance(value, float) else value


#: The commands.
QUEUES, DEAD_LETTERS, CLIENTS, TOPICS = (
    brokerCommand(noun, words, partial(_prepare, noun), partial(_run, noun)) for noun, (words, _, _) in NOUNS.items()
)
