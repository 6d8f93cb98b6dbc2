"""The broker of a node of a mesh, in which each node serves its own clients (/guides/cluster).

It overrides three groups of operations of a single broker:

- An operation that affects clients of other nodes is sent to those nodes too.
- An operation by which a client waits for its publications also waits until the other nodes have confirmed the
  subscriptions of this node.
- An operation that needs the journal raises NotOwner at a node that does not own the journal. FlexiMQ sessions then
  send the message to the owner, over a connection of their own (:mod:`fleximq.dialects.fleximq.owner_link`).

A publisher or sender may be a :class:`RemoteClient`, a client of another node. Its node has sent the message to all
nodes, so this node does not send it again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fleximq.broker.broker import Broker
from fleximq.broker.consumers.polled_subscription import PolledSubscription
from fleximq.broker.consumers.queue_consumer import Deliver, QueueConsumer
from fleximq.broker.envelope import ConnectedClient, Envelope, OnDecided, QueueDelivery
from fleximq.broker.schedules.waiting_messages import OnAdded
from fleximq.errors import BrokerError, NotOwner
from fleximq.interfaces import IPeer
from fleximq.services.mesh_direct import Direct, RemoteClient
from fleximq.services.mesh_node import IdBlocks, Membership, MeshNode
from fleximq.values.message_cost import ANY
from fleximq.values.queue_definition import QueueDefinition

#: Beginnings of the paths of requests that need the journal.
_OWNERS_PATHS = (
    "/sink/",
    "/pipeline/",
    "/broker/queues",
    "/broker/subscriptions",
    "/broker/dead-letters",
    "/broker/schedules",
    "/broker/values",
    "/broker/groups",
    "/queue/",
    "/schedule/",
    "/value/",
)


class MeshedBroker(Broker):
    """A broker with operations that reach the other nodes of its mesh; overridden methods are described in
    :class:`Broker`. ``node`` exchanges subscriptions and messages with the other nodes.

    :param membership: the mesh and this node's name in it.
    :param parts: the arguments of a :class:`Broker`, except ``nextId``.
    """

    def __init__(self, membership: Membership, **parts: Any) -> None:
        ids = IdBlocks(membership.nextBlock, membership.clock)
        super().__init__(nextId=ids.next, **parts)
        self.replays.mayLag = True
        self.node = MeshNode(self, membership, ids)
        self._connectToOwner = membership.connectToOwner
        self.topics.watcher = self.node
        self.observers.add(self.node.direct)

    # -- operations that are sent to other nodes -----------------------------------------------------

    def rename(self, client: ConnectedClient, service: str) -> None:
        super().rename(client, service)
        self.node.direct.renamed(client)

    def channels(self) -> list[str]:
        return self.node.channels(super().channels())

    def withOtherNodes(
        self, title: str, client: ConnectedClient, arguments: Mapping[str, Any], answer: Callable[[Any], None]
    ) -> Callable[[Any], None]:
        return self.node.listings.withOtherNodes(title, client, arguments, answer)

    def request(self, sender: ConnectedClient, target: int | str, requestId: str, path: str, message: Any) -> None:
        self.node.direct.begin(Direct.REQ, sender, requestId, path)
        super().request(sender, target, requestId, path, message)

    def receiveDirect(self, client: ConnectedClient, peer: IPeer) -> None:
        super().receiveDirect(client, peer)
        self.node.direct.clientJoined(client)

    def reply(self, sender: ConnectedClient, target: int, requestId: str, message: Any, path: str = "") -> None:
        self.node.direct.begin(Direct.REP, sender, requestId, path)
        super().reply(sender, target, requestId, message, path)

    def notify(self, sender: ConnectedClient, ids: Iterable[int], paths: Iterable[str], message: Any) -> None:
        self.node.direct.begin(Direct.NOTIF, sender)
        super().notify(sender, ids, paths, message)

    def broadcast(self, sender: ConnectedClient, message: Any) -> None:
        super().broadcast(sender, message)
        if type(sender) is not RemoteClient:
            self.node.direct.broadcast(sender, message)

    def publishNarrowed(self, envelope: Envelope, body: Any, count: int, audience: Iterable[int]) -> None:
        if type(envelope.publisher) is RemoteClient:
            super().publishNarrowed(envelope, body, count, audience)
            return
        here, others = self.node.direct.divided(audience)
        super().publishNarrowed(envelope, body, count, here)
        self.node.direct.publish(envelope, body, count, others)

    # -- operations that wait for other nodes --------------------------------------------------------

    def whenCommitted(self, call: Callable[[], None], client: ConnectedClient | None = None) -> None:
        mesh = self.node.mesh
        super().whenCommitted(lambda: mesh.whenConfirmed(call), client)

    def arePublicationsDecided(self, client: ConnectedClient) -> bool:
        return self.node.mesh.isConfirmed and super().arePublicationsDecided(client)

    def announce(self, topic: str | None, call: Callable[[], None]) -> None:
        mesh = self.node.mesh
        if topic is None:
            mesh.whenConfirmed(call)
            return

        def announced() -> None:
            call()  # subscribes; from then on the subscription itself is known to the other nodes
            mesh.remove(topic)

        mesh.add(topic)
        mesh.whenConfirmed(announced)

    # -- operations that need the journal ------------------------------------------------------------

    @property
    def ownsJournal(self) -> bool:
        return self.node.isOwner

    def connectToOwner(self, description: Mapping[str, Any], transport: Any) -> None:
        self._connectToOwner(description, transport)

    def _checkOwner(self) -> None:
        """Raise NotOwner, with the address of the owner, if another node owns the journal."""
        if not self.node.isOwner:
            raise NotOwner(self.node.refusal())

    def checkPath(self, path: str) -> None:
        if path.startswith(_OWNERS_PATHS):
            self._checkOwner()

    def openSubscription(self, client: ConnectedClient, owner: str | None, name: str, qos: int) -> PolledSubscription:
        self._checkOwner()
        return super().openSubscription(client, owner, name, qos)

    def produce(self, envelope: Envelope, body: Any, count: int, onDecided: OnDecided | None = None) -> None:
        self._checkOwner()
        super().produce(envelope, body, count, onDecided)

    def produceOnce(
        self, envelope: Envelope, body: Any, ids: Sequence[str], onDecided: OnDecided | None = None
    ) -> None:
        self._checkOwner()
        super().produceOnce(envelope, body, ids, onDecided)

    def addSchedules(self, envelope: Envelope, body: Any, count: int, due: int, added: OnAdded) -> None:
        if self.orderedPath.isRecorded(envelope):
            self._checkOwner()
        super().addSchedules(envelope, body, count, due, added)

    def expectReplies(self, client: ConnectedClient, name: str) -> None:
        self._checkOwner()
        super().expectReplies(client, name)

    def consume(self, client: ConnectedClient, name: str) -> QueueDelivery | None:
        self._checkOwner()
        return super().consume(client, name)

    def consumeMany(self, client: ConnectedClient, name: str, number: int, most: int = ANY) -> Sequence[QueueDelivery]:
        self._checkOwner()
        return super().consumeMany(client, name, number, most)

    def consumeFrom(
        self,
        client: ConnectedClient,
        name: str,
        deliver: Deliver,
        ended: Callable[[BrokerError], None],
        prefetch: int = 1,
        source: str | None = None,
    ) -> QueueConsumer:
        self._checkOwner()
        return super().consumeFrom(client, name, deliver, ended, prefetch, source)

    def stopConsuming(self, client: ConnectedClient, name: str) -> None:
        self._checkOwner()
        super().stopConsuming(client, name)

    def defineQueue(
        self, client: ConnectedClient, definition: QueueDefinition, replace: bool = False
    ) -> QueueDefinition:
        self._checkOwner()
        return super().defineQueue(client, definition, replace)

    def bindQueue(
        self, client: ConnectedClient, name: str, added: Sequence[str], removed: Sequence[str]
    ) -> QueueDefinition:
        self._checkOwner()
        return super().bindQueue(client, name, added, removed)

    def deleteQueue(self, client: ConnectedClient, name: str) -> int:
        self._checkOwner()
        return super().deleteQueue(client, name)

    def pauseQueue(self, client: ConnectedClient, name: str, paused: bool) -> None:
        self._checkOwner()
        super().pauseQueue(client, name, paused)
