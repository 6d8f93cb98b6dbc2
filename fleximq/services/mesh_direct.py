"""Direct messages between clients at different nodes of a mesh, and listings of all nodes (/explanation/cluster).

Each node sends the ids and names of its clients that accept direct messages to all others. The others add a proxy for
each of these clients to their broker's peers, so that requests to it follow the rules of a single broker (502, 504,
600). The proxy sends a message to its client's node, where another proxy is its sender.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any

from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from fleximq.broker.authorization import sees
from fleximq.broker.broker import Broker
from fleximq.broker.envelope import BROKER_ID, ConnectedClient, Envelope
from fleximq.broker.paths.path_table import LISTINGS
from fleximq.broker.presence import Presence
from fleximq.cluster.mesh import Interest, Mesh
from fleximq.errors import BrokerError
from fleximq.interfaces import IBrokerObserver, IForm, IPeer

Answer = Callable[[Any], None]

#: Maximum seconds that a listing waits for the answers of other nodes.
LISTING = 1.0


class RemoteClient(ConnectedClient):
    """A client of another node, as publisher or sender. Its messages are not sent to further nodes."""

    __slots__ = ()


class Direct(IntEnum):
    """The kind of a direct message between nodes, its first value.

    The values after it are, for RUN, the ids of the receivers and a rendered run of a PUB with ``routing``; for others,
    the receiver's id (0: all clients), the sender's id, the request's id, its path, and the message's frame.
    """

    REQ = 0
    REP = 1
    NOTIF = 2
    BCAST = 3
    RUN = 4


@implementer(IPeer)
class RemotePeer:
    """The proxy of another node's client, as a peer of this node's broker; it has no subscriptions here."""

    def __init__(self, direct: "DirectMessages", node: str, clientId: int, form: IForm) -> None:
        self._direct, self.node, self._id, self.form = direct, node, clientId, form

    def deliver(self, rendered: Any, count: int) -> None:
        """Ignore a run; the client's node delivers it."""

    def forward(self, message: Any) -> None:
        """Send a message to the client's node."""
        self._direct.send(self.node, self._id, message)

    def receiveBroadcast(self, message: Any) -> None:
        """Ignore a broadcast, which is sent once to the whole node."""

    def requestFailed(self, requestId: str, path: str, status: int, words: str) -> None:
        """Ignore that its request failed; the client's node finds that out by itself."""

    def requestDone(self) -> None:
        """Ignore that its request was answered."""


@implementer(IBrokerObserver)
class DirectMessages:
    """Adds the clients of other nodes to a broker's peers, and sends its own clients' names to other nodes.

    :param form: renders runs for other nodes.
    """

    def __init__(self, broker: Broker, mesh: Mesh, form: IForm) -> None:
        self._broker, self._mesh, self._form = broker, mesh, form
        self._own: dict[int, str] = {}
        self._proxies: dict[int, ConnectedClient] = {}
        self._nodes: dict[int, str] = {}
        self._lost: set[int] = set()
        self._sending: tuple[int, int, str, str] = (Direct.NOTIF, 0, "", "")
        # Its events are for the clients of this node only.
        remoteBroker = RemoteClient(BROKER_ID, broker.brokerClient.dialect, broker.brokerClient.name)
        self._presence = Presence(broker.topics, remoteBroker, broker.fanOut.deliver)

    # -- the clients of this node ------------------------------------------------------------------

    def clientJoined(self, client: ConnectedClient) -> None:
        """Add a client that accepts direct messages to this node's table."""
        if client.peer is not None:
            self._own[client.id] = client.service
            self._mesh.add(client.service, client=client.id)

    def renamed(self, client: ConnectedClient) -> None:
        """Change the name of a client in this node's table."""
        before, service = self._own.get(client.id, client.service), client.service
        if before != service:
            self._mesh.remove(before, client=client.id)
            self._mesh.add(service, client=client.id)
            self._own[client.id] = service

    def clientLeft(self, client: ConnectedClient, reason: str) -> None:
        """Remove a client from this node's table."""
        if client.id in self._own:
            self._mesh.remove(self._own.pop(client.id), client=client.id)

    def topicCreated(self, name: str) -> None:
        """Ignore a new topic. :meth:`counted` ignores events."""

    def counted(self, event: str, number: int) -> None:
        pass

    # -- the clients of other nodes ----------------------------------------------------------------

    def changed(self, node: str, added: Iterable[Interest], removed: Iterable[Interest]) -> None:
        """Add and remove proxies after a change of another node's clients."""
        clients = {each.client: each.pattern for each in added}
        for clientId in {each.client for each in removed} - clients.keys():
            self._leave(clientId, node)
        for clientId, name in clients.items():
            client = self._proxies.get(clientId)
            if client is None:
                peer = RemotePeer(self, node, clientId, self._form)
                client = self._proxies[clientId] = RemoteClient(clientId, "fleximq", f"fleximq-{clientId}", peer=peer)
                self._nodes[clientId] = node
                self._broker.clients.peers[clientId] = client, peer
                if clientId in self._lost:
                    self._lost.discard(clientId)
                    self._presence.clientJoined(client)
            self._broker.clients.rename(client, name)

    def _leave(self, clientId: int, node: str) -> None:
        client = self._proxies.pop(clientId)
        del self._nodes[clientId]
        self._broker.clients.rename(client, "")
        del self._broker.clients.peers[clientId]
        self._broker.requests.leave(client)
        if node not in self._mesh.peers:
            self._lost.add(clientId)
            self._presence.clientLeft(client, "node lost")

    # -- sending -----------------------------------------------------------------------------------

    def begin(self, kind: Direct, sender: ConnectedClient, requestId: str = "", path: str = "") -> None:
        """Set the kind, sender, id and path that :meth:`send` adds to each frame until the next call.

        Call it before the broker forwards a message: peers get only its frame.
        """
        self._sending = kind, sender.id, requestId, path

    def broadcast(self, sender: ConnectedClient, message: Any) -> None:
        """Send a message to all clients of the other nodes."""
        self.begin(Direct.BCAST, sender)
        for node in self._mesh.peers:
            self.send(node, 0, message)

    def divided(self, audience: Iterable[int]) -> tuple[list[int], dict[str, list[int]]]:
        """Divide ids of clients; return those of this node's clients, and by node those of others."""
        here: list[int] = []
        others: dict[str, list[int]] = {}
        for clientId in audience:
            (others.setdefault(self._nodes[clientId], []) if clientId in self._nodes else here).append(clientId)
        return here, others

    def publish(self, envelope: Envelope, body: Any, count: int, others: Mapping[str, Sequence[int]]) -> None:
        """Send a run to these clients of other nodes."""
        if others:
            *run, size = self._form.render(envelope, body, count)
            for node, ids in others.items():
                self._mesh.queueInOrder(self._mesh.peers[node], (Direct.RUN, ids, *run), count, size)

    def send(self, node: str, receiver: int, message: Any) -> None:
        """Send a frame to a client of another node (0: all of them), with the values of :meth:`begin`."""
        kind, *rest = self._sending
        item = (kind, receiver, *rest, bytes(message))
        self._mesh.queueInOrder(self._mesh.peers[node], item, 1, len(message))

    # -- receiving ---------------------------------------------------------------------------------

    def received(self, kind: int, receiver: int, sender: int, requestId: str, path: str, message: bytes) -> None:
        """Pass a direct message of another node's client to the broker.

        A BrokerError is ignored: if the receiver has left, the sender's node learns that from this node's table.
        """
        client = self._proxies.get(sender) or RemoteClient(sender, "fleximq", f"fleximq-{sender}")
        try:
            if kind == Direct.REQ:
                self._broker.request(client, receiver, requestId, path, message)
            elif kind == Direct.REP:
                self._broker.reply(client, receiver, requestId, message, path)
            elif kind == Direct.NOTIF:
                self._broker.notify(client, (receiver,), (), message)
            else:
                self._broker.broadcast(client, message)
        except BrokerError:
            pass

    def receivedRun(self, envelope: Envelope, body: Any, count: int, audience: Sequence[int]) -> None:
        """Deliver a run of another node's client to its receivers."""
        self._broker.publishNarrowed(envelope, body, count, audience)


#: How the values of several nodes in the answer to an operator's act become one, by their name.
_JOINED: Mapping[str, Callable[[Iterable[Any]], Any]] = {"disconnected": sum, "removed": any}


class MeshListings:
    """Adds the rows of other nodes to listings, with the node's name, and performs operators' acts at all nodes."""

    def __init__(self, broker: Broker, mesh: Mesh, node: str, clock: IReactorTime) -> None:
        self._broker, self._mesh, self._node, self._clock = broker, mesh, node, clock

    def asked(self, title: str, arguments: Mapping[str, Any], answer: Answer) -> None:
        """Answer another node's question: with this node's rows of a listing, or the result of an operator's act."""
        if title in LISTINGS:
            LISTINGS[title].own(self._broker, self._broker.brokerClient, arguments, answer)
        else:
            answer(self._broker.operator.perform(title, arguments, arguments["by"])[1])

    def withOtherNodes(
        self, title: str, client: ConnectedClient, arguments: Mapping[str, Any], answer: Answer
    ) -> Answer:
        """Return a function that is called with this node's answer, and calls ``answer`` with that of all nodes."""
        return lambda page: self._gather(title, client, arguments, answer, page)

    def _gather(
        self, title: str, client: ConnectedClient, arguments: Mapping[str, Any], answer: Answer, own: Mapping[str, Any]
    ) -> None:
        pages = {self._node: own}
        asked = sorted(self._mesh.peers)

        def found(node: str, page: Mapping[str, Any]) -> None:
            pages[node] = page
            if len(pages) > len(asked):
                timer.cancel()
                done()

        def done() -> None:
            self._mesh.endAsking(number)
            if title in LISTINGS:
                key = LISTINGS[title].key
                page = _together(title, key, pages, arguments["limit"])
                if title == "topics":
                    page[title] = [row for row in page[title] if sees(client, row[key])]
            else:
                answers = pages.values()
                counts = {key: join([each[key] for each in answers]) for key, join in _JOINED.items() if key in own}
                page = {**own, **counts}
            answer({**page, "missing": [node for node in asked if node not in pages]})

        number = self._mesh.ask((title, dict(arguments)), found)
        timer = self._clock.callLater(LISTING if asked else 0, done)


def _together(title: str, key: str, pages: Mapping[str, Mapping[str, Any]], limit: int) -> dict[str, Any]:
    """Return one page with the first rows of all pages; it is longer than ``limit`` only if their keys are equal."""
    ends = [page["next"] for page in pages.values() if page["next"] is not None]
    rows = [{**row, "node": node} for node, page in pages.items() for row in page[title]]
    rows.sort(key=lambda row: (row[key], row["node"]))
    if len(rows) > limit:
        ends.append(rows[limit - 1][key])
    end = min(ends) if ends else None
    return {title: [row for row in rows if end is None or row[key] <= end], "next": end}
