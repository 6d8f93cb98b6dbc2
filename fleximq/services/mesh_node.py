"""A node of a mesh: exchanges subscriptions and volatile messages with the other nodes (/guides/cluster).

Each other node is a subscriber in this node's topic table, so it gets a run once, even if several of its patterns
match. A run of a FlexiMQ client is sent as its frames, any other run in the form that the journal stores. Durable
messages are not sent: each node delivers them from its copy of the journal.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from zope.interface import implementer

from fleximq.broker.broker import Broker
from fleximq.broker.clients import BLOCK
from fleximq.broker.envelope import FIRST_CLIENT_ID, LAST_CLIENT_ID, Envelope
from fleximq.broker.publishing.transactions import RecordSource
from fleximq.broker.topics.topic_table import ISubscriptionWatcher
from fleximq.cluster.interfaces import ClusterError, IMeshLink
from fleximq.cluster.mesh import IMeshUser, Interest, Mesh, Peer, Reading
from fleximq.dialects.connection.read_pauses import ReadPauses
from fleximq.dialects.connection.write_turn import WriteTurn
from fleximq.dialects.fleximq.forms import FlexiSource
from fleximq.errors import BrokerError, InvalidTopic, NoCapacity, NotKept
from fleximq.interfaces import IForm, ISubscriber
from fleximq.journal.files.frame_scan import CompleteFrame
from fleximq.journal.format.frame import FrameKind
from fleximq.journal.format.record_columns import decodeRecords
from fleximq.services.mesh_direct import Direct, DirectMessages, MeshListings, RemoteClient
from fleximq.values.counted_event import CountedEvent, EventFamily
from fleximq.values.header_pairs import SENDER, runWithSender
from fleximq.values.patterns import isPattern
from fleximq.values.records import OTHER_DIALECT, PUBLISHER_CODES, StoredBatch
from fleximq.wire.fleximq_header import MessageType, checkHeader, openHeader
from fleximq.wire.fleximq_scanner import FIXED_BYTES

_log = Logger()

#: Seconds in which a new node waits for the subscriptions of the other nodes, before it serves clients.
SETTLING = 1.0
#: The number of blocks of client ids that a node fetches before it needs them.
AHEAD = 5
#: Seconds until another attempt to get a block of client ids.
_RETRY = 0.5
#: The maximum number of cached envelopes of other nodes.
_REMEMBERED = 10_000


@implementer(IForm)
class RemoteForm:
    """Renders runs for other nodes. A run of another node and a durable run become None, which is not sent: the other
    nodes have the first from that node, and the second in their copies of the journal.
    """

    def render(self, envelope: Envelope, body: Any, count: int) -> Any:
        """Return the run as MeshNode._opened reads it, and its size in bytes as the last value.

        The values are the topic, the publisher's id, name and dialect, the QoS, the number of messages, ``head`` and
        the content. ``head`` is the number of bytes before the payload in each frame, or 0 if the content is not frames
        but a tuple of headers, payloads and types of content.
        """
        publisher, source = envelope.publisher, envelope.source
        if type(publisher) is RemoteClient or envelope.offset:
            return None
        if type(source) is FlexiSource:
            head, content, size = source.envelopeBytes, body, len(body)
        else:
            run = source.run(body)
            if publisher.sender:
                run = runWithSender(run, publisher.sender)
            headers = run.headers if isinstance(run.headers, bytes) else list(run.headers)
            contents = run.contents if isinstance(run.contents, int) else list(run.contents)
            payloads = list(run.payloads)
            head, content, size = 0, (headers, payloads, contents), source.size(body, count)
        who = publisher.id, publisher.name, publisher.dialect
        return (envelope.topic.name, *who, envelope.qos, count, head, content, size)


REMOTE_FORM = RemoteForm()


@implementer(ISubscriber)
class RemoteNode:
    """Another node as a subscriber of this node's topics. ``names`` are its topics with more levels than a pattern may
    have, which are subscribed by name.
    """

    form = REMOTE_FORM

    def __init__(self, mesh: Mesh, peer: Peer) -> None:
        self.names: set[str] = set()
        self._mesh = mesh
        self._peer = peer

    def deliver(self, rendered: Any, count: int) -> None:
        if rendered is not None:
            self._mesh.queue(self._peer, rendered[:-1], count, rendered[-1])


class RemoteReader:
    """Represents all publishers of another node. While a slow client of this node pauses it, this node does not
    confirm that node's messages, so that it pauses its publishers.
    """

    outbox: Any = None

    def __init__(self, mesh: Mesh, node: str) -> None:
        self._mesh, self._node = mesh, node
        self.readPauses = ReadPauses(self, lambda isRead: None)

    def pauseProducing(self) -> None:
        """Stop confirming messages of the node."""
        self._mesh.hold(self._node)

    def resumeProducing(self) -> None:
        """Confirm the messages received so far, and each later one."""
        self._mesh.release(self._node)


class IdBlocks:
    """Client ids that no other node assigns. They are taken in blocks, of which :data:`AHEAD` are fetched in advance:
    all clients of another node may come at once, while the store chooses another leader.

    :param take: gets the number of a block that belongs to this node from now on.
    """

    def __init__(self, take: "Callable[[], Deferred[int]]", clock: IReactorTime) -> None:
        self._take = take
        self._clock = clock
        self._next = self._end = 0
        self._ahead: list[int] = []
        self._isFetching = False
        self._waiting: list[Callable[[], None]] = []

    def fetch(self) -> "Deferred[None]":
        """Fetch a block, and repeat failed attempts until one succeeds; fires when the block can be used."""
        done: Deferred[None] = Deferred()

        def attempt() -> None:
            self._take().addCallbacks(got, failed)

        def got(number: int) -> None:
            self._isFetching = False
            blocks = (LAST_CLIENT_ID + 1 - FIRST_CLIENT_ID) // BLOCK
            self._ahead.append(FIRST_CLIENT_ID + number % blocks * BLOCK)
            waiting, self._waiting = self._waiting, []
            for call in waiting:
                call()
            done.callback(None)
            self._fetchAhead()

        def failed(failure: Any) -> None:
            failure.trap(ClusterError)
            self._clock.callLater(_RETRY, attempt)

        self._isFetching = True
        attempt()
        return done

    def _fetchAhead(self) -> None:
        if len(self._ahead) < AHEAD and not self._isFetching:
            self.fetch()

    def whenFetched(self, call: Callable[[], None]) -> None:
        """Call as soon as there is an unused id."""
        if self._ahead or self._next < self._end:
            call()
        else:
            self._waiting.append(call)

    def next(self) -> int:
        """Return an unused id; raises NoCapacity while the next block is not fetched yet."""
        if self._next == self._end:
            if not self._ahead:
                raise NoCapacity("the cluster has no client ids for this node at the moment")
            self._next = self._ahead.pop(0)
            self._end = self._next + BLOCK
            self._fetchAhead()
        self._next += 1
        return self._next - 1


class Membership(NamedTuple):
    """The mesh, and one node's name and resources in it.

    :param link: the connection to the other nodes.
    :param node: the name of this node.
    :param session: a random text that differs at each start of the node.
    :param nextBlock: gets the number of an unused block of client ids.
    :param refusal: returns the sentence with which this node refuses operations that need the journal.
    :param connectToOwner: see :meth:`fleximq.broker.broker.Broker.connectToOwner`.
    """

    turn: WriteTurn
    link: IMeshLink
    node: str
    session: str
    clock: IReactorTime
    nextBlock: "Callable[[], Deferred[int]]"
    refusal: Callable[[], str]
    connectToOwner: Callable[[Mapping[str, Any], Any], object] = lambda description, transport: None


@implementer(IMeshUser, ISubscriptionWatcher)
class MeshNode:
    """Connects one node's broker to the mesh: sends changes of its subscriptions, and delivers runs of other nodes.

    ``mesh`` sends and receives packets, ``direct`` are the direct messages, ``listings`` the rows of all nodes.
    ``isOwner``: this node owns the journal. ``ids`` are those of its clients.
    """

    def __init__(self, broker: Broker, membership: Membership, ids: IdBlocks) -> None:
        turn, link, node, session, clock, _, self.refusal, _ = membership
        self.mesh = Mesh(link, node, session, clock, self, turn.later)
        self.direct = DirectMessages(broker, self.mesh, REMOTE_FORM)
        self.listings = MeshListings(broker, self.mesh, node, clock)
        self.isOwner = False
        self._broker, self._turn, self._clock, self.ids = broker, turn, clock, ids
        self._remotes: dict[str, RemoteNode] = {}
        self._readers: dict[str, RemoteReader] = {}
        self._known: dict[tuple[Any, ...], Envelope] = {}
        self._records = RecordSource()
        self._otherChannels: Counter[str] = Counter()
        self._channels: tuple[list[str], list[str]] | None = None

    def start(self) -> "Deferred[None]":
        """Join the mesh; fires :data:`SETTLING` seconds after this node got client ids: then it may serve clients."""
        self.mesh.start()
        return self.ids.fetch().addCallback(lambda _: deferLater(self._clock, SETTLING))

    def stop(self) -> None:
        """Leave the mesh."""
        self.mesh.stop()

    def own(self) -> None:
        """Become the owner of the journal until this node stops."""
        self.isOwner = True
        self._broker.replays.mayLag = False

    # -- subscriptions -----------------------------------------------------------------------------

    def interestChanged(self, node: str, added: Sequence[Interest], removed: Sequence[Interest]) -> None:
        """See :class:`IMeshUser`."""
        topics, peer = self._broker.topics, self.mesh.peers.get(node)
        remote = self._remotes.get(node)
        if remote is None:
            if peer is None:
                return
            remote = self._remotes[node] = RemoteNode(self.mesh, peer)
            topics.others.add(remote)
        self._otherChannels.update(_names(added))
        for name in _names(removed):
            self._otherChannels[name] -= 1
            if not self._otherChannels[name]:
                del self._otherChannels[name]
        self._channels = None
        clients = [[each for each in some if each.client] for some in (added, removed)]
        if any(clients):
            self.direct.changed(node, *clients)
            added, removed = ([each for each in some if not each.client] for some in (added, removed))
        for pattern, durable, _ in added:
            if durable and isPattern(pattern):
                topics.subscribePattern(remote, pattern, queue=True, durable=True)
                continue
            if durable:
                topics.subscribe(remote, pattern, queue=True, durable=True)
                continue
            try:
                topics.subscribePattern(remote, pattern)
            except InvalidTopic:
                topics.subscribe(remote, pattern, queue=True)
                remote.names.add(pattern)
        for pattern, durable, _ in removed:
            if durable and isPattern(pattern):
                topics.unsubscribePattern(remote, pattern, queue=True)
            elif durable or pattern in remote.names:
                remote.names.discard(pattern)
                topics.unsubscribe(remote, pattern, queue=True)
            else:
                topics.unsubscribePattern(remote, pattern)
        if peer is None:
            del self._remotes[node]
            topics.others.discard(remote)

    def channels(self, own: list[str]) -> list[str]:
        """Return the names of topics that have a subscriber at any node, sorted; ``own`` are those of this node."""
        if self._channels is None or self._channels[0] is not own:
            self._channels = own, sorted({*own, *self._otherChannels})
        return self._channels[1]

    def subscribed(self, subscriber: ISubscriber, name: str, durable: bool) -> None:
        """Send a new subscription of this node to the others; subscriptions of other nodes are ignored."""
        if type(subscriber) is not RemoteNode:
            self.mesh.add(name, durable)

    def unsubscribed(self, subscriber: ISubscriber, name: str, durable: bool) -> None:
        """Send the end of a subscription of this node to the others; those of other nodes are ignored."""
        if type(subscriber) is not RemoteNode:
            self.mesh.remove(name, durable)

    def asked(self, question: Any, answer: Callable[[Any], None]) -> None:
        """See :class:`IMeshUser`."""
        title, arguments = question
        try:
            self.listings.asked(title, arguments, answer)
        except BrokerError as error:
            _log.warn("another node asked what cannot be answered: {error}", error=error)

    def counted(self, event: str, number: int) -> None:
        """See :class:`IMeshUser`."""
        family = EventFamily.DROPPED if event == "lost" else EventFamily.ERROR
        label = "lost between nodes" if event == "lost" else "subscription not confirmed by all nodes"
        self._broker.observers.counted(CountedEvent(family, label), number)

    # -- publications ------------------------------------------------------------------------------

    def stored(self, frames: Sequence[CompleteFrame]) -> None:
        """Deliver records to the clients of this node; ``frames`` are those that its copy of the journal has got."""
        transactions, topics = self._broker.transactions, self._broker.topics
        self._turn.open = True
        try:
            for header, frame in frames:
                if header.kind == FrameKind.RECORDS:
                    batch = decodeRecords(header, frame)
                    transactions.deliverRecords(batch.only(topics.hasSubscribers))
                elif header.kind == FrameKind.TRANSACTION and header.count:
                    transactions.deliverTransaction(header.baseOffset, header.baseOffset + header.count)
        finally:
            self._turn.flush()

    def reading(self) -> Reading | None:
        """See :class:`IMeshUser`."""
        return None if self._turn.reader is None else self._turn.reader.readPauses

    def received(self, node: str, runs: Sequence[Any]) -> None:
        """See :class:`IMeshUser`."""
        self._turn.open = True
        self._turn.reader = self._readers.setdefault(node, RemoteReader(self.mesh, node))
        try:
            for run in runs:
                try:
                    if run[0] == Direct.RUN:
                        self.direct.receivedRun(*self._opened(*run[2:]), run[1])
                    elif isinstance(run[0], int):
                        self.direct.received(*run)
                    else:
                        publish = self._broker.publish if self.isOwner else self._broker.fanOut.deliver
                        publish(*self._opened(*run))
                except NotKept as error:
                    self.counted("lost", len(error.refused))
                except BrokerError as error:
                    _log.warn("a run of another node cannot be delivered: {error}", error=error)
        finally:
            self._turn.flush()

    def _opened(
        self, topic: str, publisherId: int, name: str, dialect: str, qos: int, count: int, head: int, content: Any
    ) -> tuple[Envelope, Any, int]:
        """Return the arguments of ``Broker.publish`` for a run of another node, as :class:`RemoteForm` rendered it."""
        key = (topic, publisherId, qos, content[FIXED_BYTES:head] if head else b"")
        envelope = self._known.get(key)
        if envelope is None or envelope.topic.gone:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            source: Any = self._records
            publisher = RemoteClient(publisherId, dialect, name)
            if head:
                header = checkHeader(MessageType.PUB, openHeader(key[-1])[0])
                source = FlexiSource(head, header, publisherId)
                publisher.sender = header.fields.get(SENDER, "")
            envelope = self._known[key] = Envelope(self._broker.topics.get(topic), publisher, source, qos)
        return envelope, content if head else _batch(envelope, count, *content), count


def _batch(envelope: Envelope, count: int, headers: Any, payloads: list[bytes], contents: Any) -> StoredBatch:
    publisher, none = envelope.publisher, [0] * count
    dialects = [PUBLISHER_CODES.get(publisher.dialect, OTHER_DIALECT)] * count
    contents = [contents] * count if isinstance(contents, int) else contents
    headers = [headers] * count if isinstance(headers, bytes) else headers
    publishers = [(publisher.id, publisher.name)]
    return StoredBatch(none, none, [envelope.topic.name], none, publishers, none, dialects, contents, headers, payloads)


def _names(interest: Sequence[Interest]) -> list[str]:
    """Return the subscribed topics; patterns, durable queues and names of clients are left out."""
    return [each.pattern for each in interest if not (each.durable or each.client or isPattern(each.pattern))]
