"""The broker's facade: the operations that dialects, the web pages and extensions call.

Each method returns at once or raises a :class:`fleximq.errors.BrokerError`; results that arrive later are passed to
callbacks. The broker never learns which dialect a client speaks. :mod:`fleximq.broker.assembly` makes its parts and
connects them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from fleximq.broker.authorization import permit
from fleximq.broker.clients import Clients
from fleximq.broker.consumer_groups import ConsumerGroups
from fleximq.broker.consumers.checkpoints import Checkpointer
from fleximq.broker.consumers.dead_letters import DeadLetters
from fleximq.broker.consumers.polled_subscriptions import PolledSubscription
from fleximq.broker.consumers.queue_admin import QueueAdmin
from fleximq.broker.consumers.subscription_access import SubscriptionAccess, reasonOf
from fleximq.broker.consumers.work_queue_access import WorkQueueAccess
from fleximq.broker.consumers.work_queues import WorkQueue
from fleximq.broker.deadlines import Clock, Deadlines
from fleximq.broker.envelope import BROKER_ID, ConnectedClient, Envelope, OnDecided, QueueDelivery
from fleximq.broker.observers import Counts, Observers, RecordWatchers, Taps
from fleximq.broker.pending_requests import PendingRequests
from fleximq.broker.publishing.deduplication import Deduplication, RecentIds
from fleximq.broker.publishing.fan_out import FanOut
from fleximq.broker.publishing.pending_commits import PendingCommits
from fleximq.broker.publishing.slow_path import SlowPath
from fleximq.broker.publishing.transactions import Transactions
from fleximq.broker.queues.waiting_messages import ANY
from fleximq.broker.replay.client_subscriptions import ClientSubscriptions
from fleximq.broker.replay.feed import Outlet
from fleximq.broker.replay.replay import Replays, Start
from fleximq.broker.rules import BrokerRules, TimesToLive
from fleximq.broker.topics.names import SortedNames, isOwn
from fleximq.broker.topics.topic_table import Topic, TopicTable
from fleximq.broker.traffic import TrafficTotals
from fleximq.errors import ClientNotFound, Forbidden, NotImplementedByBroker, NotKept
from fleximq.interfaces import IConversation, IJournal, IPeer, IRights, ISubscriber
from fleximq.rights import EVERYTHING, Action

_NO_PEER: tuple[None, None] = (None, None)


class IPathTable(Protocol):
    """Answers the broker's own request paths, such as ``/broker/about``."""

    def argumentBytes(self, client: ConnectedClient, path: str) -> int:
        """See :meth:`Broker.argumentBytes`."""

    def answer(
        self, broker: "Broker", client: ConnectedClient, path: str, arguments: Any, answer: Callable[[Any], None]
    ) -> None:
        """See :meth:`Broker.ask`."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The connected parts of a broker.

    ``channelsChanged`` are the callbacks for changes of the list of topics with subscribers. ``dialects`` are the names
    of all installed dialects, as ``/broker/about`` lists them.
    """

    clock: Clock
    journal: IJournal
    rules: BrokerRules
    itself: ConnectedClient
    paths: IPathTable
    dialects: Sequence[str]
    counts: Counts
    observers: Observers
    recordWatchers: RecordWatchers
    traffic: TrafficTotals
    channelsChanged: list[Callable[[], None]]
    clients: Clients
    topics: TopicTable
    timesToLive: TimesToLive
    taps: Taps
    deadlines: Deadlines
    requests: PendingRequests
    fanOut: FanOut
    transactions: Transactions
    pendingCommits: PendingCommits
    slowPath: SlowPath
    recentIds: RecentIds
    deduplication: Deduplication
    replays: Replays
    clientSubscriptions: ClientSubscriptions
    subscriptionAccess: SubscriptionAccess
    workQueueAccess: WorkQueueAccess
    deadLetters: DeadLetters
    admin: QueueAdmin
    groups: ConsumerGroups
    checkpointer: Checkpointer


def _noSettings() -> None:
    raise NotImplementedByBroker("this broker has no settings to read again")


class Broker:
    """Clients, topics, queues and requests; :func:`fleximq.broker.assembly.assemble` makes one."""

    def __init__(self, parts: Parts) -> None:
        self.clock = parts.clock
        self.journal = parts.journal
        self.rules = parts.rules
        self.dialects = parts.dialects
        #: Seconds of the clock at which the broker was made.
        self.started = parts.clock.seconds()
        #: The client that publishes the broker's own messages.
        self.itself = parts.itself
        self.counts = parts.counts
        self.observers = parts.observers
        self.recordWatchers = parts.recordWatchers
        self.traffic = parts.traffic
        #: Callbacks for changes of the list of topics with subscribers.
        self.channelsChanged = parts.channelsChanged
        #: Reads the settings again and returns the answer to ``/broker/reload``.
        self.reload: Callable[[], Any] = _noSettings
        self.clients = parts.clients
        self.topics = parts.topics
        self.timesToLive = parts.timesToLive
        #: The topics of the journal in order, for pages of ``/journal/bounds``.
        self.journalTopics = SortedNames()
        self.transactions = parts.transactions
        self.recentIds = parts.recentIds
        self.subscriptions = parts.subscriptionAccess.subscriptions
        self.queues = parts.workQueueAccess.queues
        #: Purges queues and returns dead letters for an operator.
        self.admin = parts.admin
        #: Progress of the pipeline's consumer groups.
        self.groups = parts.groups
        #: Saves and restores queues and groups; the journal asks it for snapshots.
        self.checkpointer = parts.checkpointer
        self._paths = parts.paths
        self._taps = parts.taps
        self._deadlines = parts.deadlines
        self._requests = parts.requests
        self._deliver = parts.fanOut.deliver
        self._pendingCommits = parts.pendingCommits
        self._slowPath = parts.slowPath
        self._deduplication = parts.deduplication
        self._replays = parts.replays
        self._clientSubscriptions = parts.clientSubscriptions
        self._subscriptionAccess = parts.subscriptionAccess
        self._workQueueAccess = parts.workQueueAccess
        self._deadLetters = parts.deadLetters

    def changeRules(self, rules: BrokerRules) -> None:
        """Go by other rules from now on, as far as they can change.

        These are the time and the number of requests, the numbers of clients, subscriptions and queues, the echo of
        broadcasts and the history. Whoever is over a bound that has become less may stay.
        """
        self.rules = rules
        limits = rules.limits
        self.clients.maximum = limits.clients
        self._requests.timeout, self._requests.maximum = rules.requestTimeout, limits.requests
        self._clientSubscriptions.most = limits.subscriptions
        self._subscriptionAccess.limits = limits
        self.queues.maxQueues = limits.queues

    def stop(self) -> None:
        """Cancel everything timed."""
        self._deadlines.stop()

    # -- who is here -------------------------------------------------------------------------------

    def join(
        self,
        dialect: str,
        peer: IPeer | None = None,
        principal: str | None = None,
        address: str = "",
        user: bool = False,
        id: int | None = None,
        rights: IRights = EVERYTHING,
        identity: Any = None,
        conversation: IConversation | None = None,
    ) -> ConnectedClient:
        """Let a connection in and return it with its id and name.

        :param user: name it ``user-<8 hex digits>`` instead of ``<dialect>-<id>``.
        :param id: the one that was reserved for it.
        :param rights: what it may do, until :meth:`changeRights`.
        :param identity: what authentication said of it.
        :param conversation: hears when its rights change.
        :raises NoCapacity: there are as many clients as there may be.
        """
        client = self.clients.add(dialect, peer, principal, address, user, id)
        client.rights, client.identity, client.conversation = rights, identity, conversation
        self.observers.clientJoined(client)
        return client

    def changeRights(self, client: ConnectedClient, rights: IRights) -> None:
        """Let a client have other rights from now on.

        Subscriptions that it may not have any more end; what is polled waits for their grace time whether it gets the
        right again. Its conversation is told the names of those that ended, and forgets what was allowed before.
        """
        lost = self._clientSubscriptions.changeRights(client, rights)
        self._subscriptionAccess.narrow(client)
        if client.conversation is not None:
            client.conversation.rightsChanged(lost)

    def reserve(self) -> int:
        """Return a client id for somebody who is still to come; nobody else gets it until it is released."""
        return self.clients.reserve()

    def release(self, id: int) -> None:
        """Take a reservation back; nothing happens if it was used."""
        self.clients.release(id)

    def leave(self, client: ConnectedClient, reason: str) -> None:
        """Forget a connection: its subscriptions end or begin their grace time, its requests fail.

        :param reason: a short constant phrase for the count of leaves.
        """
        if not self.clients.remove(client):
            return
        self._clientSubscriptions.leave(client)
        self.subscriptions.leave(client)
        self._requests.leave(client)
        self.observers.clientLeft(client, reason)

    # -- publish and subscribe ---------------------------------------------------------------------

    def topicFor(self, client: ConnectedClient, name: str) -> Topic:
        """Return the topic that a client may publish to.

        :raises InvalidTopic: the name is empty or longer than 1,024 bytes.
        :raises Forbidden: its first level is ``$sys`` or ``$dead``, where only the broker publishes.
        :raises NotPermitted: the client's rights do not cover it.
        """
        if isOwn(name):
            raise Forbidden("only the broker publishes to this topic")
        permit(client, Action.PUBLISH, name)
        return self.topics.get(name)

    def publish(self, envelope: Envelope, body: Any, count: int, kept: OnDecided | None = None) -> None:
        """Bring a run of ``count`` messages to everybody who subscribed to its topic. Hot.

        What goes through the journal is brought when it is committed; what is published to the same topic meanwhile
        waits behind it.

        :param kept: told the places in the run of messages that went through the journal, once they are committed
            (None), or the reason why they are not; perhaps several times, and perhaps before this returns. Those that
            do not go through the journal it is not told of.
        :raises NotKept: a subscription that loses nothing is full; ``refused`` says which messages reached nobody,
            all others were taken.
        :raises NotRecorded: the journal takes nothing at present; nobody got anything.
        """
        if envelope.topic.needsSlowPath or envelope.durable:
            self._slowPath.publish(envelope, body, count, kept)
        else:
            self._deliver(envelope, body, count)

    def publishOnce(self, envelope: Envelope, body: Any, ids: Sequence[str], kept: OnDecided | None = None) -> None:
        """Publish those messages of a run whose ids were not published to its topic lately, if it is durable.

        A repeat is safe when its first is, and refused if that is. Else as :meth:`publish`.

        :param ids: one for each message.
        """
        self._deduplication.publish(envelope, body, ids, kept, self.publish)

    def publishNarrowed(self, envelope: Envelope, body: Any, count: int, audience: Iterable[int]) -> None:
        """Bring a run only to those of its subscribers who take direct messages and have one of these ids.

        It is not kept anywhere, but does not overtake what was published to the topic before.
        """
        self._slowPath.narrowed(envelope, body, count, audience)

    def subscribe(self, client: ConnectedClient, subscriber: ISubscriber, name: str, literal: bool = False) -> None:
        """Let a client's subscriber take what is published to a name or, unless ``literal``, a pattern.

        Asking for the same name again changes nothing. A pattern brings of what it matches what the client may have.

        :raises InvalidTopic: the name is empty or longer than 1,024 bytes.
        :raises NotPermitted: the client may not subscribe to it, or to nothing that the pattern matches.
        :raises SubscriptionFailed: the client has as many subscriptions as it may.
        """
        self._clientSubscriptions.subscribe(client, subscriber, name, literal)

    def follow(self, client: ConnectedClient, outlet: Outlet, name: str, start: Start) -> None:
        """Let a client have what the journal has of a name or pattern from a place on, and all that comes, in order.

        Every message comes with its offset, and once, whichever of the client's subscriptions match. Asking for the
        same name again begins anew.

        :raises InvalidTopic: the name is empty or too long, or has too many levels for a pattern.
        :raises NotPermitted: as for :meth:`subscribe`.
        :raises SubscriptionFailed: the client has as many subscriptions as it may; there is no journal, or nothing of
            this topic goes there.
        :raises NoLongerKept: the journal has nothing as old.
        """
        self._clientSubscriptions.follow(client, outlet, name, start)

    def recall(
        self, client: ConnectedClient, outlet: Outlet, name: str, literal: bool = False, history: int = 0
    ) -> None:
        """Give a client that has just subscribed what a new subscriber gets of the past, before all that comes.

        :param history: so many messages of a durable topic. Without it, or with a pattern, the latest message of each
            topic for which that is set.
        """
        self._replays.recall(client, outlet, name, literal, history)

    def checkSubscription(self, client: ConnectedClient, name: str, literal: bool = False) -> None:
        """See that :meth:`subscribe` would succeed, for dialects whose answer must stand before all deliveries.

        :raises InvalidTopic: the name is empty or longer than 1,024 bytes.
        :raises NotPermitted: as for :meth:`subscribe`.
        :raises SubscriptionFailed: the client has as many subscriptions as it may.
        """
        self._clientSubscriptions.check(client, name, literal)

    def unsubscribe(self, client: ConnectedClient, name: str) -> None:
        """Take a subscription back, named as it was given; nothing happens where there is none."""
        self._clientSubscriptions.unsubscribe(client, name)

    def whenCommitted(self, call: Callable[[], None], client: ConnectedClient | None = None) -> None:
        """Call when what this client has published so far is kept or refused, and brought; None: what anybody has.

        At once without a journal on disk. What it is told of refusals comes before. What this client has acknowledged
        is on disk then, too, and what it was handed is known to be.
        """
        consumed = client is not None and client.consumed
        if client is not None:
            client.consumed = False
        if consumed and self.queues.whenLearnt(partial(self.whenCommitted, call)):
            return
        self.checkpointer.flush()
        self.journal.whenCommitted(call, None if client is None or consumed else client.lastRun)

    def whenPublicationsDecided(self, call: Callable[[], None], client: ConnectedClient) -> None:
        """Call when what this client has published so far is kept or refused, and brought; wait for no more."""
        self.journal.whenCommitted(call, client.lastRun)

    def arePublicationsDecided(self, client: ConnectedClient) -> bool:
        """Tell whether :meth:`whenPublicationsDecided` would call at once."""
        return client.lastRun <= self.journal.decided  # type: ignore[no-any-return]

    def hasPendingPublications(self, client: ConnectedClient) -> bool:
        """Tell whether something that a client has published may wait for the disk, or for a transaction before it."""
        return client.lastRun > self.journal.decided or self.transactions.holds(client)

    @property
    def overloaded(self) -> bool:
        """Whether so much waits, for the disk or a transaction, that those who publish such should not be read."""
        return self.transactions.overloaded or self._pendingCommits.overloaded

    def whenRelieved(self, call: Callable[[], None]) -> None:
        """Call when it is worth looking again whether it is ``overloaded``."""
        if self.transactions.overloaded:
            self.transactions.whenRelieved(call)
        else:
            self._pendingCommits.whenRelieved(call)

    def tap(self, subscriber: ISubscriber, pattern: str) -> None:
        """Bring a copy of what is published to topics that match to somebody who is no client, see :class:`Taps`.

        :raises InvalidTopic: the pattern is empty or too long.
        """
        self._taps.add(subscriber, pattern)

    def untap(self, subscriber: ISubscriber, pattern: str) -> None:
        """Take a tap back; nothing happens where there is none."""
        self._taps.remove(subscriber, pattern)

    # -- direct messages ---------------------------------------------------------------------------

    def request(self, sender: ConnectedClient, target: int, id: str, path: str, message: Any) -> None:
        """Send a request to a client and remember that its answer is due.

        :raises NotPermitted: the sender may not ask this path.
        :raises ClientNotFound: nobody with that id takes requests.
        :raises TooManyRequests: the sender waits for as many answers as it may.
        """
        permit(sender, Action.REQUEST, path)
        responder, peer = self._peer(target)
        self._requests.open(sender, responder, id, path)
        peer.forward(message)

    def reply(self, sender: ConnectedClient, target: int, id: str, message: Any, path: str = "") -> None:
        """Send an answer to whoever asked.

        To answer is permitted to everybody; one that nobody waits for is as good as a notification.

        :raises NotPermitted: nobody waits for it, and the sender may not notify this path.
        :raises ClientNotFound: nobody with that id takes answers.
        """
        requester, peer = self._peer(target)
        done = self._requests.close(requester, sender, id)
        if not done:
            permit(sender, Action.NOTIFY, path)
        peer.forward(message)
        if done:
            peer.requestDone()

    def notify(self, sender: ConnectedClient, targets: Iterable[tuple[int, str | None]], message: Any) -> None:
        """Send one copy to each client that is there, of those that stand with the path that they are told.

        :raises NotPermitted: the sender may not notify one of the paths; then nobody was told.
        """
        ways = tuple(targets)
        for target, path in ways:
            if target != BROKER_ID:
                permit(sender, Action.NOTIFY, path or "")
        for target in dict.fromkeys(target for target, _ in ways):
            _, peer = self.clients.peers.get(target, _NO_PEER)
            if peer is not None:
                peer.forward(message)

    def acceptsDirect(self, target: int) -> bool:
        """Tell whether a client with this id is there and takes direct messages."""
        return target in self.clients.peers

    def broadcast(self, sender: ConnectedClient, message: Any) -> None:
        """Send a copy to every client that takes direct messages, the sender only if so set.

        :raises NotPermitted: the sender may not.
        """
        permit(sender, Action.BROADCAST, "")
        for client, peer in tuple(self.clients.peers.values()):
            if client is not sender or self.rules.echoBroadcast:
                peer.receiveBroadcast(message)

    def waiting(self, client: ConnectedClient) -> int:
        """Return how many answers a client waits for."""
        return self._requests.waiting(client)

    def argumentBytes(self, client: ConnectedClient, path: str) -> int:
        """Return how long the arguments of a path may be as MessagePack, 0 if any message that comes is good.

        :raises NotFound: the broker does not answer this path.
        :raises NotPermitted: not to this client.
        """
        return self._paths.argumentBytes(client, path)

    def ask(self, client: ConnectedClient, path: str, arguments: Any, answer: Callable[[Any], None]) -> None:
        """Give the broker's own answer to a path, see :mod:`fleximq.broker.paths.path_table`; perhaps before this
        returns.

        :param client: who asks: it needs the right to ``read`` the path, for some paths ``admin``.
        :param answer: given a value for MessagePack, or the :class:`~fleximq.errors.BrokerError` that stands for it.
        :raises BrokerError: there is no such path, or its arguments are wrong; ``answer`` is not called then.
        """
        self._paths.answer(self, client, path, arguments, answer)

    def journalHealth(self) -> dict[str, Any] | None:
        """Return how the journal is, see :meth:`fleximq.interfaces.IJournal.health`; None if all lives in memory."""
        return dict(self.journal.health()) if self.journal.onDisk else None

    # -- queues ------------------------------------------------------------------------------------

    def openSubscription(self, client: ConnectedClient, owner: str | None, name: str, qos: int) -> PolledSubscription:
        """Make a subscription that is polled, with a queue of its own.

        :param owner: who may poll it, from whichever connection.
        :raises InvalidTopic: the name is empty or longer than 1,024 bytes.
        :raises NotPermitted: the client may not subscribe to it.
        :raises SubscriptionFailed: the client has as many as it may.
        :raises NoCapacity: there are as many as there may be, those included that outlive their connection.
        """
        return self._subscriptionAccess.open(client, owner, name, qos)

    def journalRefusal(self) -> str | None:
        """Return why the journal keeps nothing at present; None if it does."""
        return reasonOf(self.journal)

    def poll(
        self, client: ConnectedClient, owner: str | None, id: int, number: int, most: int = ANY
    ) -> Sequence[QueueDelivery]:
        """Take up to ``number`` messages that are due on a subscription.

        :param most: no more are taken when these cost so many bytes.
        :raises NotFound: there is no such subscription, or it is another owner's.
        :raises NotPermitted: the client may not subscribe to its topic any more.
        """
        return self._subscriptionAccess.poll(client, owner, id, number, most)

    def loading(self, owner: str | None, id: int) -> PolledSubscription | None:
        """Return the subscription if its next message cannot be polled before it was read from the journal.

        :raises NotFound: there is no such subscription, or it is another owner's.
        """
        return self._subscriptionAccess.loading(owner, id)

    def acknowledge(self, owner: str | None, id: int, tag: int, client: ConnectedClient | None = None) -> bool:
        """Be done with a message taken from a subscription; False if the tag is unknown.

        :param client: whose :meth:`whenCommitted` says when that is on disk.
        :raises NotFound: there is no such subscription, or it is another owner's.
        :raises NotPermitted: the client may not subscribe to its topic any more.
        """
        return self._subscriptionAccess.acknowledge(owner, id, tag, client)

    def produce(self, envelope: Envelope, body: Any, count: int, kept: OnDecided | None = None) -> None:
        """Publish a run of ``count`` messages to a topic that has a work queue from now on.

        :param kept: as for :meth:`publish`.
        :raises NotKept: the queue cannot hold all of them, then all are refused and nothing was published; or a
            subscription that loses nothing is full, see :meth:`publish`.
        :raises NoCapacity: there are as many queues as there may be.
        """
        queue = self._workQueueAccess.ensure(envelope.topic.name)
        if envelope.topic.gone:
            envelope = envelope._replace(topic=self.topics.get(queue.name))
        reason = self._workQueueAccess.refusal(queue, envelope, body, count)
        if reason is not None:
            raise NotKept(reason, range(count))
        self.publish(envelope, body, count, kept)

    def produceOnce(self, envelope: Envelope, body: Any, ids: Sequence[str], kept: OnDecided | None = None) -> None:
        """Produce those messages of a run whose ids were not published to its topic lately, if it is durable.

        A repeat is safe when its first is, and refused if that is. Else as :meth:`produce`.

        :param ids: one for each message.
        """
        self._workQueueAccess.ensure(envelope.topic.name)
        self._deduplication.publish(envelope, body, ids, kept, self.produce)

    def expectReplies(self, client: ConnectedClient, name: str) -> None:
        """Let a topic have a work queue from now on, so that a reply is kept that comes before its first CONSUME.

        Nothing happens for a topic where only the broker publishes, one from which the client may not consume, one that
        is too long, or when there are as many queues as there may be.
        """
        self._workQueueAccess.expectReplies(client, name)

    def consume(self, client: ConnectedClient, name: str) -> QueueDelivery | None:
        """Take the next message of a topic's work queue, which exists from now on; None if there is none.

        The delivery's message carries the id it has in the queue.

        :raises InvalidTopic: the name is empty or longer than 1,024 bytes.
        :raises NotPermitted: the client may not consume from it.
        :raises NoCapacity: there are as many queues as there may be.
        """
        return self._workQueueAccess.consume(client, name)

    def consumeMany(self, client: ConnectedClient, name: str, number: int, most: int = ANY) -> Sequence[QueueDelivery]:
        """Take up to ``number`` messages; as :meth:`consume` for each, with the same errors.

        :param most: no more are taken when these cost so many bytes.
        """
        return self._workQueueAccess.consumeMany(client, name, number, most)

    def loadingQueue(self, name: str) -> WorkQueue | None:
        """Return a topic's work queue if its next message cannot be consumed before it was read from the journal."""
        return self._workQueueAccess.loading(name)

    def whenAvailable(self, client: ConnectedClient, name: str, call: Callable[[], None]) -> Callable[[], None]:
        """Call once when a topic's work queue has something to take; returns what takes the wish back.

        The errors are those of :meth:`consume`.
        """
        return self._workQueueAccess.whenAvailable(client, name, call)

    def acknowledgeMessage(self, id: str, client: ConnectedClient | None = None) -> None:
        """Be done with a message taken from a work queue, by its id; unknown ids are ignored.

        So are those of messages in queues from which the client may not consume.

        :param client: whose :meth:`whenCommitted` says when that is on disk.
        """
        self._workQueueAccess.acknowledge(id, client)

    # -- inside ------------------------------------------------------------------------------------

    def _peer(self, id: int) -> tuple[ConnectedClient, IPeer]:
        found = self.clients.peers.get(id)
        if found is None:
            raise ClientNotFound(f"there is no client {id} that takes this message")
        return found
