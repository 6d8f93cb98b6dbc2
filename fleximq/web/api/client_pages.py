"""The pages of clients: list them, and one with its subscriptions; and the acts against them."""

from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any

from twisted.internet.defer import Deferred

from fleximq.broker.authorization import permitsListening, sees
from fleximq.broker.broker import Broker
from fleximq.broker.envelope import ConnectedClient
from fleximq.broker.paths.arguments import Answer, Arguments, Listing, number, page
from fleximq.broker.paths.path_table import clients, performAct
from fleximq.broker.paths.rows import clientRow, shownTo
from fleximq.errors import Conflict, Forbidden, NotFound
from fleximq.rights import Action
from fleximq.values.patterns import isPattern
from fleximq.web.api.answers import PAGED, PAGED_BY_NUMBER, actPage, pathPage
from fleximq.web.request import Argument, HttpReply, Page, PageRequest, jsonReply

_CLIENT = Argument("client_id", "The id of the client.", "integer")
_PRINCIPAL, _ADDRESS = Argument("principal", "A principal."), Argument("address", "The address of peers.")


def clientPages(broker: Broker) -> dict[str, Page]:
    """Return the pages by path."""
    act: Callable[[str], Any] = lambda name: partial(_perform, broker, name)  # noqa: E731
    return {
        "/api/clients": pathPage(
            broker,
            clients,
            "Connected clients by id, with what they have sent and received, and what holds up slow ones.",
            (
                *PAGED_BY_NUMBER,
                Argument("dialect", "Only those of this dialect."),
                _PRINCIPAL._replace(words="Only those of this principal."),
                Argument("contains", "A part of the name, the principal or the address."),
                Argument("slow", "Only those that something holds up.", "boolean"),
            ),
        ),
        "/api/clients/detail": pathPage(
            broker, _detail, "One client of this node: its row, and its subscriptions by name.", (_CLIENT, *PAGED)
        ),
        "/api/bans": Page(act("bans"), Action.ADMIN, words="Banned principals and addresses.", arguments=PAGED),
        "/api/clients/disconnect": actPage(
            partial(_disconnect, broker), "Disconnect a client with an error in its dialect.", (_CLIENT,)
        ),
        "/api/clients/kick": actPage(
            act("kick"), "Disconnect a client, or those of a principal or an address.", (_CLIENT, _PRINCIPAL, _ADDRESS)
        ),
        "/api/bans/add": actPage(
            act("ban"),
            "Ban a principal or an address, and disconnect its clients.",
            (
                _PRINCIPAL,
                _ADDRESS,
                Argument("seconds", "The duration of the ban.", "integer"),
                Argument("reason", "Why, for the list of bans."),
            ),
        ),
        "/api/bans/remove": actPage(act("unban"), "End the ban of a principal or an address.", (_PRINCIPAL, _ADDRESS)),
    }


def _detail(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer with the row of a client and a page of its subscriptions to topics and patterns that may be shown."""
    clientId, some = number(arguments, "client_id"), page(arguments, str, "")
    found = broker.clients.find(clientId)
    if found is None:
        raise NotFound(f"there is no client {clientId} at this node")
    rows = [
        (name, not held.literal and isPattern(name)) for name, held in found.subscriptions.items() if name > some[0]
    ]

    def shows(row: tuple[str, bool]) -> bool:
        return permitsListening(client, row[0]) if row[1] else sees(client, row[0])

    listed = Listing("subscribed", rows, itemgetter(0), itemgetter(0), *some, shows)
    row = shownTo(client, clientRow(broker, found))
    listed.answer(broker, lambda names: answer({**row, **names}))


async def _disconnect(broker: Broker, request: PageRequest) -> HttpReply:
    """Disconnect the client with this ``client_id``, with an error in its dialect."""
    clientId = number(request.arguments, "client_id")
    client = broker.clients.find(clientId)
    if client is None:
        asked, answered = {"client_id": clientId, "by": request.who}, Deferred[Any]()
        broker.withOtherNodes("kick", broker.brokerClient, asked, answered.callback)({"disconnected": 0})
        if not (await answered)["disconnected"]:
            raise NotFound(f"there is no client {clientId}")
    elif client.conversation is None:
        raise Conflict(f"client {clientId} cannot be disconnected")
    else:
        client.conversation.expel(Forbidden("disconnected by the operator"))
    return jsonReply({"disconnected": clientId})


async def _perform(broker: Broker, act: str, request: PageRequest) -> HttpReply:
    """Perform an act of :class:`fleximq.services.operator.Operator` with the arguments of the request."""
    answered: Deferred[Any] = Deferred()
    performAct(broker, act, request.arguments, request.who, answered.callback)
    return jsonReply(await answered)
