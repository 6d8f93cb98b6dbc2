"""The one door to the broker's rules.

Dialects call these few methods; each returns or raises a :class:`fleximq.errors.BrokerError`, none waits. What the
broker has to say unasked goes through the interfaces in :mod:`fleximq.interfaces`. It never learns which dialect
it speaks to.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from fleximq.broker.authorization import permit
from fleximq.broker.clients import Clients
from fleximq.broker.consumer_groups import ConsumerGroups
from fleximq.broker.consumers.checkpoints import Checkpointer
from fleximq.broker.consumers.dead_letters import DeadLetters
from fleximq.broker.consumers.polled_subscriptions import PolledSubscription
from fleximq.broker.consumers.queue_admin import QueueAdmin
from fleximq.broker.consumers.state_log import OpeningLog, StateLog
from fleximq.broker.consumers.subscription_access import SubscriptionAccess, reasonOf
from fleximq.broker.consumers.work_queue_access import WorkQueueAccess
from fleximq.broker.consumers.work_queues import WorkQueue
from fleximq.broker.deadlines import Clock, Deadlines
from fleximq.broker.envelope import BROKER_ID, ConnectedClient, Envelope, OnDecided, QueueDelivery
from fleximq.broker.observers import Counts, Observers, RecordWatchers, Taps
from fleximq.broker.paths import path_table
from fleximq.broker.paths.arguments import SortedNames
from fleximq.broker.pending_requests import PendingRequests
from fleximq.broker.presence import Presence
from fleximq.broker.publishing.deduplication import Deduplication, idempotenceOf
from fleximq.broker.publishing.fan_out import FanOut
from fleximq.broker.publishing.pending_commits import PendingCommits
from fleximq.broker.publishing.slow_path import SlowPath
from fleximq.broker.publishing.transactions import Transactions
from fleximq.broker.queues.queue_factory import QueueFactory
from fleximq.broker.queues.waiting_messages import ANY
from fleximq.broker.replay.client_subscriptions import ClientSubscriptions
from fleximq.broker.replay.feed import Outlet
from fleximq.broker.replay.replay import Replays, Start
from fleximq.broker.rules import BrokerRules, TimesToLive
from fleximq.broker.topics.names import isOwn
from fleximq.broker.topics.topic_table import SYSTEM, Topic, TopicTable
from fleximq.broker.traffic import TrafficTotals
from fleximq.errors import ClientNotFound, Forbidden, NotImplementedByBroker, NotKept
from fleximq.interfaces import IConversation, IJournal, IPeer, IRights, ISubscriber
from fleximq.rights import EVERYTHING, Action
from fleximq.values.message import Message
from fleximq.values.patterns import anyOf

_NOBODY: tuple[None, None] = (None, None)


def _nothingToRead() -> None:
    raise NotImplementedByBroker("this broker has no settings to read again")


class Broker:
    """Clients, topics, queues and requests, and what happens between them.

    :param clock: seconds and timers (Twisted's IReactorTime, or a test's clock).
    :param journal: where durable publications go before they are delivered.
    :param randomHex: returns that many random hexadecimal digits.
    :param idOf: returns the id a message has in a work queue, a new one where it brought none.
    :param onError: is given what an observer or a timed action raised.
    :param afterwards: called after timed actions have run, so that what they said can be sent.
    :param publishing: is told whose publications are brought after their commit, and None behind them.
    """

    def __init__(
        self,
        clock: Clock,
        journal: IJournal,
        randomHex: Callable[[int], str],
        idOf: Callable[[Message], str],
        onError: Callable[[Exception], None],
        rules: BrokerRules | None = None,
        afterwards: Callable[[], None] = lambda: None,
        publishing: Callable[[ConnectedClient | None], None] = lambda client: None,
    ) -> None:
        self.clock = clock
        self.journal = journal
        self.rules = rules = rules or BrokerRules()
        self.started = clock.seconds()
        self.itself = ConnectedClient(BROKER_ID, "fleximq", f"fleximq-{BROKER_ID}")
        self.counts = Counts()
        self.observers = Observers(onError)
        self.observers.add(self.counts)
        self.traffic = TrafficTotals()
        #: The topics that the journal has, in order.
        self.keptNames = SortedNames()
        #: Those who are told what goes through the journal.
        self.records = RecordWatchers(onError)
        self.channelsChanged: list[Callable[[], None]] = []
        #: Reads the settings again, and returns what is answered to ``/broker/reload``.
        self.reload: Callable[[], Any] = _nothingToRead
        self.clients = Clients(rules.limits.clients, clock.seconds, randomHex)
        durable = anyOf(rules.durable + rules.retain if journal.onDisk else ())
        self.topics = TopicTable(rules.limits.topics, self._topicCreated, self._channelsChanged, durable)
        self.timesToLive = TimesToLive(rules.messageTtl)
        self._taps = Taps(self.topics, onError)
        self._deadlines = Deadlines(clock, onError=onError, afterwards=afterwards)
        self._requests = PendingRequests(self._deadlines, rules.requestTimeout, rules.limits.requests)
        self._beginPublishing(publishing)
        self._beginListening()
        self._beginQueues(idOf, durable)

    def _beginPublishing(self, publishing: Callable[[ConnectedClient | None], None]) -> None:
        journal, counted = self.journal, self.observers.counted
        delivering = FanOut(self.topics, self.clients)
        self._deliver = delivering.deliver
        self.transactions = Transactions(journal, self.topics, self._deliver, self._unread)
        self._recording = PendingCommits(
            journal, self.topics, self.transactions.deliver, counted, publishing, self.records
        )
        self._publishing = SlowPath(journal, delivering, self.transactions, self._recording)
        self.idempotence = idempotenceOf(self.rules, self.clock.seconds, counted)
        self._once = Deduplication(self.rules.idempotenceWindow > 0, self.idempotence, delivering, self._publishing)
        self.observers.add(Presence(self.topics, self.itself, self._deliver))

    def _beginListening(self) -> None:
        self._replays = Replays(
            self.journal,
            self.topics,
            anyOf(self.rules.retain),
            self.timesToLive,
            self.transactions.waits,
            lambda: time.time_ns() // 1000,
            self.unsubscribe,
        )
        self._listening = ClientSubscriptions(self.topics, self._replays, self.rules.limits.subscriptions)

    def _beginQueues(self, idOf: Callable[[Message], str], lasts: Callable[[str], bool]) -> None:
        rules, journal, topics, counted = self.rules, self.journal, self.topics, self.observers.counted
        self._deadLetters = DeadLetters(
            self.itself,
            topics,
            self._publishing,
            lambda name: self._workQueues.ensure(name),
            self._deadlines,
            rules.redelivery,
            counted,
        )
        noting = StateLog(journal, self._deadlines, self._deadLetters.deadLetter)
        makeQueue = QueueFactory(
            deadlines=self._deadlines,
            retryAfter=rules.redelivery,
            maxDeliveries=rules.maxDeliveries,
            maxMessages=rules.limits.queueMessages,
            maxBytes=rules.limits.queueBytes,
            onDead=self._deadLetters.add,
            counted=counted,
            livesOf=self.timesToLive.seconds,
            keeping=noting if journal.onDisk else None,
            memory=rules.limits.queueMemory,
        )
        openings = OpeningLog(journal)
        self._polling = SubscriptionAccess(rules, journal, topics, openings, makeQueue)
        self._workQueues = WorkQueueAccess(rules, journal, topics, openings, makeQueue, idOf, lasts)
        self.subscriptions = self._polling.subscriptions
        self.queues = self._workQueues.queues
        #: What an operator does to queues.
        self.admin = QueueAdmin(self.itself, topics, self._workQueues, self._publishing, self._deadlines)
        #: How far the pipeline's consumer groups are with the journal.
        self.groups = ConsumerGroups(journal, noting.wall)
        #: Brings queues and groups over a restart; the journal asks it for snapshots.
        self.keeper = Checkpointer(
            noting, openings, topics, self.subscriptions, self.queues, self.idempotence, self.timesToLive, self.groups
        )

    def changeRules(self, rules: BrokerRules) -> None:
        """Go by other rules from now on, as far as they can change.

        These are the time and the number of requests, the numbers of clients, subscriptions and queues, the echo of
        broadcasts and the history. Whoever is over a bound that has become less may stay.
        """
        self.rules = rules
        limits = rules.limits
        self.clients.maximum = limits.clients
        self._requests.timeout, self._requests.maximum = rules.requestTimeout, limits.requests
        self._listening.most = limits.subscriptions
        self._polling.limits = limits
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
        lost = self._listening.changeRights(client, rights)
        self._polling.narrow(client)
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
        self._listening.leave(client)
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
            self._publishing.publish(envelope, body, count, kept)
        else:
            self._deliver(envelope, body, count)

    def publishOnce(self, envelope: Envelope, body: Any, ids: Sequence[str], kept: OnDecided | None = None) -> None:
        """Publish those messages of a run whose ids were not published to its topic lately, if it is durable.

        A repeat is safe when its first is, and refused if that is. Else as :meth:`publish`.

        :param ids: one for each message.
        """
        self._once.publish(envelope, body, ids, kept, self.publish)

    def publishNarrowed(self, envelope: Envelope, body: Any, count: int, audience: Iterable[int]) -> None:
        """Bring a run only to those of its subscribers who take direct messages and have one of these ids.

        It is not kept anywhere, but does not overtake what was published to the topic before.
        """
        self._publishing.narrowed(envelope, body, count, audience)

    def subscribe(self, client: ConnectedClient, subscriber: ISubscriber, name: str, literal: bool = False) -> None:
        """Let a client's subscriber take what is published to a name or, unless ``literal``, a pattern.

        Asking for the same name again changes nothing. A pattern brings of what it matches what the client may have.

        :raises InvalidTopic: the name is empty or longer than 1,024 bytes.
        :raises NotPermitted: the client may not subscribe to it, or to nothing that the pattern matches.
        :raises SubscriptionFailed: the client has as many subscriptions as it may.
        """
        self._listening.subscribe(client, subscriber, name, literal)

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
        self._listening.follow(client, outlet, name, start)

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
        self._listening.check(client, name, literal)

    def unsubscribe(self, client: ConnectedClient, name: str) -> None:
        """Take a subscription back, named as it was given; nothing happens where there is none."""
        self._listening.unsubscribe(client, name)

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
        self.keeper.flush()
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
        return self.transactions.overloaded or self._recording.overloaded

    def whenRelieved(self, call: Callable[[], None]) -> None:
        """Call when it is worth looking again whether it is ``overloaded``."""
        if self.transactions.overloaded:
            self.transactions.whenRelieved(call)
        else:
            self._recording.whenRelieved(call)

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
            _, peer = self.clients.peers.get(target, _NOBODY)
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
        return path_table.argumentBytes(client, path)

    def ask(self, client: ConnectedClient, path: str, arguments: Any, answer: Callable[[Any], None]) -> None:
        """Give the broker's own answer to a path, see :mod:`fleximq.broker.paths.path_table`; perhaps before this
        returns.

        :param client: who asks: it needs the right to ``read`` the path, for some paths ``admin``.
        :param answer: given a value for MessagePack, or the :class:`~fleximq.errors.BrokerError` that stands for it.
        :raises BrokerError: there is no such path, or its arguments are wrong; ``answer`` is not called then.
        """
        path_table.answer(self, client, path, arguments, answer)

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
        return self._polling.open(client, owner, name, qos)

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
        return self._polling.poll(client, owner, id, number, most)

    def loading(self, owner: str | None, id: int) -> PolledSubscription | None:
        """Return the subscription if its next message cannot be polled before it was read from the journal.

        :raises NotFound: there is no such subscription, or it is another owner's.
        """
        return self._polling.loading(owner, id)

    def acknowledge(self, owner: str | None, id: int, tag: int, client: ConnectedClient | None = None) -> bool:
        """Be done with a message taken from a subscription; False if the tag is unknown.

        :param client: whose :meth:`whenCommitted` says when that is on disk.
        :raises NotFound: there is no such subscription, or it is another owner's.
        :raises NotPermitted: the client may not subscribe to its topic any more.
        """
        return self._polling.acknowledge(owner, id, tag, client)

    def produce(self, envelope: Envelope, body: Any, count: int, kept: OnDecided | None = None) -> None:
        """Publish a run of ``count`` messages to a topic that has a work queue from now on.

        :param kept: as for :meth:`publish`.
        :raises NotKept: the queue cannot hold all of them, then all are refused and nothing was published; or a
            subscription that loses nothing is full, see :meth:`publish`.
        :raises NoCapacity: there are as many queues as there may be.
        """
        queue = self._workQueues.ensure(envelope.topic.name)
        if envelope.topic.gone:
            envelope = envelope._replace(topic=self.topics.get(queue.name))
        reason = self._workQueues.refusal(queue, envelope, body, count)
        if reason is not None:
            raise NotKept(reason, range(count))
        self.publish(envelope, body, count, kept)

    def produceOnce(self, envelope: Envelope, body: Any, ids: Sequence[str], kept: OnDecided | None = None) -> None:
        """Produce those messages of a run whose ids were not published to its topic lately, if it is durable.

        A repeat is safe when its first is, and refused if that is. Else as :meth:`produce`.

        :param ids: one for each message.
        """
        self._workQueues.ensure(envelope.topic.name)
        self._once.publish(envelope, body, ids, kept, self.produce)

    def expectReplies(self, client: ConnectedClient, name: str) -> None:
        """Let a topic have a work queue from now on, so that a reply is kept that comes before its first CONSUME.

        Nothing happens for a topic where only the broker publishes, one from which the client may not consume, one that
        is too long, or when there are as many queues as there may be.
        """
        self._workQueues.expectReplies(client, name)

    def consume(self, client: ConnectedClient, name: str) -> QueueDelivery | None:
        """Take the next message of a topic's work queue, which exists from now on; None if there is none.

        The delivery's message carries the id it has in the queue.

        :raises InvalidTopic: the name is empty or longer than 1,024 bytes.
        :raises NotPermitted: the client may not consume from it.
        :raises NoCapacity: there are as many queues as there may be.
        """
        return self._workQueues.consume(client, name)

    def consumeMany(self, client: ConnectedClient, name: str, number: int, most: int = ANY) -> Sequence[QueueDelivery]:
        """Take up to ``number`` messages; as :meth:`consume` for each, with the same errors.

        :param most: no more are taken when these cost so many bytes.
        """
        return self._workQueues.consumeMany(client, name, number, most)

    def loadingQueue(self, name: str) -> WorkQueue | None:
        """Return a topic's work queue if its next message cannot be consumed before it was read from the journal."""
        return self._workQueues.loading(name)

    def whenAvailable(self, client: ConnectedClient, name: str, call: Callable[[], None]) -> Callable[[], None]:
        """Call once when a topic's work queue has something to take; returns what takes the wish back.

        The errors are those of :meth:`consume`.
        """
        return self._workQueues.whenAvailable(client, name, call)

    def acknowledgeMessage(self, id: str, client: ConnectedClient | None = None) -> None:
        """Be done with a message taken from a work queue, by its id; unknown ids are ignored.

        So are those of messages in queues from which the client may not consume.

        :param client: whose :meth:`whenCommitted` says when that is on disk.
        """
        self._workQueues.acknowledge(id, client)

    # -- inside ------------------------------------------------------------------------------------

    def _peer(self, id: int) -> tuple[ConnectedClient, IPeer]:
        found = self.clients.peers.get(id)
        if found is None:
            raise ClientNotFound(f"there is no client {id} that takes this message")
        return found

    def _unread(self) -> None:
        """A transaction could not be read back; those who follow the journal look for it themselves."""
        self.observers.counted("not brought: the journal could not be read", 1)
        self._replays.readAgain()

    def _topicCreated(self, topic: Topic) -> None:
        if not topic.name.startswith(SYSTEM):
            self.observers.topicCreated(topic.name)

    def _channelsChanged(self) -> None:
        for call in self.channelsChanged:
            call()
