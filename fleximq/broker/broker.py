"""The broker's facade: the operations that dialects, the web pages and extensions call.

Each method returns at once or raises a :class:`fleximq.errors.BrokerError`; results that arrive later are passed to
callbacks. The rules are in the parts that a :class:`Broker` makes. The broker never learns which dialect a client
speaks.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from zope.interface import implementer

from fleximq.broker.authorization import permit, permits
from fleximq.broker.clients import Clients
from fleximq.broker.consumer_groups import ConsumerGroups
from fleximq.broker.consumers.cancellation import Cancellation
from fleximq.broker.consumers.checkpoints import Checkpointer
from fleximq.broker.consumers.dead_letters import DeadLetters
from fleximq.broker.consumers.polled_subscription import PolledSubscription
from fleximq.broker.consumers.polled_subscriptions import PolledSubscriptions, journalFault
from fleximq.broker.consumers.queue_admin import QueueAdmin
from fleximq.broker.consumers.queue_consumer import Deliver, QueueConsumer
from fleximq.broker.consumers.queue_consumers import QueueConsumers
from fleximq.broker.consumers.queue_settings import QueueSettings
from fleximq.broker.consumers.queue_statistics import QueueAges, QueueRates
from fleximq.broker.consumers.state_log import StateLog
from fleximq.broker.consumers.takes import Takes
from fleximq.broker.consumers.work_queues import WorkQueues
from fleximq.broker.deadlines import Clock, Deadlines
from fleximq.broker.envelope import BROKER_ID, ConnectedClient, Envelope, OnDecided, QueueDelivery
from fleximq.broker.key_values.changes import Changes
from fleximq.broker.key_values.key_values import KeyValues
from fleximq.broker.key_values.value_stores import ValuesInJournal, ValuesInMemory
from fleximq.broker.observers import Counts, Observers, QueueWatchers, RecordWatchers, Wiretaps
from fleximq.broker.owners import Owners
from fleximq.broker.pending_requests import PendingRequests
from fleximq.broker.presence import Presence
from fleximq.broker.publishing.deduplication import Deduplication, recentIdsOf
from fleximq.broker.publishing.fitting import publishFitting, unfitOf
from fleximq.broker.publishing.publication_paths import FanOut, OrderedPath
from fleximq.broker.publishing.transactions import Transactions
from fleximq.broker.queues.delivery_limit import DeliveryLimit
from fleximq.broker.queues.queue_factory import QueueFactory
from fleximq.broker.replay.client_subscriptions import ClientSubscriptions
from fleximq.broker.replay.expiry import RecordExpiry
from fleximq.broker.replay.feed import IOutlet
from fleximq.broker.replay.replay import Replays, Start
from fleximq.broker.replay.searches import Searches
from fleximq.broker.rules import AgeLimits, BrokerRules
from fleximq.broker.schedules.due_messages import DuePublisher
from fleximq.broker.schedules.schedules import Schedules
from fleximq.broker.schedules.waiting_messages import OnAdded
from fleximq.broker.slices import Slices
from fleximq.broker.topics.names import isBrokerTopic
from fleximq.broker.topics.topic_table import Topic, TopicTable
from fleximq.broker.traffic import TrafficTotals
from fleximq.errors import BrokerError, ClientNotFound, Forbidden, NotImplementedByBroker, NotKept, Unfit
from fleximq.interfaces import IConversation, IJournal, IOperator, IPeer, IRights, ISubscriber
from fleximq.limits import SYSTEM
from fleximq.rights import EVERYTHING, Action
from fleximq.values.message import Message
from fleximq.values.message_cost import ANY
from fleximq.values.patterns import anyOf
from fleximq.values.printable import shortened
from fleximq.values.queue_definition import QueueDefinition


@implementer(IOperator)
class NoOperator:
    """Refuses operators' requests in a broker without a process of its own, as in tests."""

    def reload(self) -> Mapping[str, Any]:
        raise NotImplementedByBroker("this broker has no settings to read again")

    def perform(self, act: str, arguments: Mapping[str, Any], by: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        raise NotImplementedByBroker("this broker has no connections")


class Broker:
    """Has the clients, topics, queues and requests of one broker; makes the parts for them and connects them.

    ``brokerClient`` is the client that publishes the broker's own messages. ``channelsChanged`` are callbacks for
    changes of the list of topics with subscribers. ``admin`` purges queues and returns dead letters for an operator;
    ``takes`` has the deliveries that belong to principals; ``groups`` is the progress of the pipeline's consumer
    groups; ``keyValues`` has the values that clients store by their keys, and ``valueChanges`` changes them;
    ``checkpointer`` saves and restores all of these for the journal. ``operator``, an :class:`IOperator`, carries out
    operators' requests to the process, for example a reload; set it after the broker was made.

    :param clock: a monotonic clock, for all durations in seconds.
    :param journal: stores durable publications; it may be opened later, but ``onDisk`` must be right from the start.
    :param randomHex: returns a string of as many random hexadecimal digits as its argument says.
    :param idOf: returns a message's id in a work queue: its own, or a new one.
    :param onError: receives exceptions of observers and timers.
    :param afterwards: called after each batch of expired timers, to write their output to connections.
    :param publishing: called with a publisher before its publications are delivered after a commit, and with None
        after that, so that a slow subscriber can pause this publisher.
    :param dialects: the names of the installed dialects, for ``/broker/about``.
    :param implementation: the name of the implementation of the hottest loops, for ``/broker/about``.
    :param wall: returns the seconds since 1970, for times in files and for people.
    :param audit: writes an event with its fields to the audit log.
    :param nextId: returns the next client id, or raises NoCapacity; by default ids count up.
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
        dialects: Sequence[str] = (),
        implementation: str = "",
        wall: Callable[[], float] = time.time,
        audit: Callable[..., None] = lambda *arguments, **fields: None,
        nextId: Callable[[], int] | None = None,
    ) -> None:
        self.clock = clock
        self.wall = wall
        self.journal = journal
        self.rules = rules = rules or BrokerRules()
        self.dialects = tuple(dialects)
        self.implementation = implementation
        #: Seconds of the clock at which the broker was made.
        self.started = clock.seconds()
        self.brokerClient = ConnectedClient(BROKER_ID, "fleximq", f"fleximq-{BROKER_ID}")
        self.counts = Counts()
        self.observers = Observers(onError)
        self.observers.add(self.counts)
        self.recordWatchers = RecordWatchers(onError)
        self.queueWatchers = QueueWatchers(onError)
        self.traffic = TrafficTotals()
        self.channelsChanged: list[Callable[[], None]] = []
        self.operator: IOperator = NoOperator()
        self.audit = audit
        self.clients = Clients(rules.limits.clients, clock.seconds, randomHex, nextId)
        self._durable = anyOf(rules.durable + rules.retain if journal.onDisk else ())
        self.topics = TopicTable(rules.limits.topics, self._announceTopic, self._announceChannels, self._durable)
        self.timesToLive = AgeLimits(rules.timesToLive)
        self.wiretaps = Wiretaps(self.topics, onError)
        self.deadlines = Deadlines(clock, onError=onError, afterwards=afterwards)
        self.slices = Slices(clock, onError)
        self.requests = PendingRequests(self.deadlines, rules.requestTimeout, rules.limits.requests)
        self._makePublishing(publishing)
        first = int(randomHex(7), 16) << 20
        self._makeSchedules(first)
        self._makeValues(first)
        self._makeQueues(idOf)
        self.takes = Takes(self, randomHex)

    def _makePublishing(self, publishing: Callable[[ConnectedClient | None], None]) -> None:
        """Make the parts between :meth:`publish` and the subscribers, and those that replay the journal."""
        rules, journal, topics, counted = self.rules, self.journal, self.topics, self.observers.counted
        self.fanOut = FanOut(topics, self.clients)
        self._deliver = deliver = self.fanOut.deliver
        self.transactions = Transactions(journal, topics, deliver, self._readAgain, self.deadlines.onError)
        self.orderedPath = OrderedPath(
            journal, topics, self.fanOut, self.transactions, counted, publishing, self.recordWatchers
        )
        self.recentIds = recentIdsOf(rules, self.clock.seconds, self.microseconds, counted)
        self.deduplication = Deduplication(rules.idempotenceWindow > 0, self.recentIds, self.fanOut, self.orderedPath)
        self.observers.add(Presence(topics, self.brokerClient, deliver))
        retained = anyOf(rules.retain) if rules.retain else None
        self.replays = Replays(
            journal,
            topics,
            retained,
            RecordExpiry(journal, self.timesToLive, AgeLimits(rules.retentions), retained, self.microseconds),
            self.transactions.waits,
            Searches(self.slices),
            lambda client, name: self.clientSubscriptions.unsubscribe(client, name),
        )
        self.clientSubscriptions = ClientSubscriptions(topics, self.replays, rules.limits.subscriptions)

    def _makeQueues(self, idOf: Callable[[Message], str]) -> None:
        """Make the parts that store messages until clients request them, and those that save their state."""
        rules, journal, topics, counted = self.rules, self.journal, self.topics, self.observers.counted
        self.deadLetters = DeadLetters(
            self.brokerClient,
            topics,
            self.orderedPath,
            lambda name: self.queues.letterTopic(name),
            lambda name: self.queues.ensure(name),
            self.deadlines,
            rules.redelivery,
            counted,
            self.microseconds,
        )
        self._stateLog = stateLog = StateLog(journal, self.deadlines, self.deadLetters.deadLetter, self.microseconds)
        makeQueue = QueueFactory(
            deadlines=self.deadlines,
            redelivery=rules.redelivery,
            limit=DeliveryLimit(
                rules.maxDeliveries, self.deadLetters.add, self.deadLetters.withdraw, self.deadlines.onError
            ),
            maxMessages=rules.limits.queueMessages,
            maxBytes=rules.limits.queueBytes,
            counted=counted,
            timeToLiveOf=self.timesToLive.seconds,
            queueLog=stateLog if journal.onDisk else None,
            memory=rules.limits.queueMemory,
        )
        self.polledSubscriptions = PolledSubscriptions(
            makeQueue, topics, stateLog, limits=rules.limits, grace=rules.grace, durableGrace=rules.durableGrace
        )
        limit, expiry = rules.limits.queues, rules.queueExpiry
        self.queueAges, self.queueRates = QueueAges(), QueueRates()
        self.queues = WorkQueues(
            makeQueue,
            topics,
            stateLog,
            maxQueues=limit,
            expiry=expiry,
            idOf=idOf,
            lasts=self._durable,
            onLetters=self.deadLetters.arrived,
        )
        self.queueSettings = QueueSettings(self.queues, self.brokerClient, not journal.onDisk, self.deadlines.onError)
        self.queues.onRestored = self.queueSettings.opened
        self.consumers = QueueConsumers(self.queues, self.queueSettings, journal.onDisk, self.queueWatchers)
        self.admin = QueueAdmin(
            self.brokerClient, topics, self.queues, self.polledSubscriptions, self.orderedPath, self.deadlines
        )
        self.groups = ConsumerGroups(journal, stateLog.wall)
        self.checkpointer = Checkpointer(
            stateLog,
            topics,
            self.polledSubscriptions,
            self.queues,
            self.recentIds,
            self.timesToLive,
            self.groups,
            self.schedules.recovery,
            self.keyValues,
            self.transactions,
        )

    def _makeSchedules(self, first: int) -> None:
        """Make the parts that store messages until their time; ``first``: the ids of those in memory differ from those
        before a restart.
        """
        self.schedules = Schedules(
            self.journal,
            self.rules.limits,
            first,
            # What was checked when it was scheduled must not be refused later, for example after a change of a schema.
            DuePublisher(self.topics, self._publishUnchecked, self._produceUnchecked),
            self.deadlines,
            lambda: int(self.wall() * 1000),
            self.observers.counted,
        )

    def _makeValues(self, first: int) -> None:
        """Make the parts that store values; ``first``: as of :meth:`_makeSchedules`."""
        journal, limits = self.journal, self.rules.limits
        store = ValuesInJournal(journal) if journal.onDisk else ValuesInMemory(1 + first, limits.queueBytes)
        self.keyValues = KeyValues(
            store,
            Owners("values", limits.values, limits.valuesPerPrincipal),
            self.deadlines,
            lambda: int(self.wall() * 1000),
            not journal.onDisk,
        )
        self.valueChanges = Changes(self.keyValues, self.deadlines.onError)

    def _announceTopic(self, topic: Topic) -> None:
        if not topic.name.startswith(SYSTEM):
            self.observers.topicCreated(topic.name)

    def _announceChannels(self) -> None:
        for call in self.channelsChanged:
            call()

    def _readAgain(self) -> None:
        """Count a transaction that cannot be read back; subscriptions that replay the journal read it themselves."""
        self.observers.counted("not brought: the journal could not be read", 1)
        self.replays.readAgain()

    def changeRules(self, rules: BrokerRules) -> None:
        """Apply new rules, as far as they can change at run time.

        These are the timeout of requests, the maximum numbers of requests, clients, subscriptions, queues, schedules
        and values, the echo of broadcasts and the length of the history. Those over a reduced limit remain.
        """
        self.rules = rules
        limits = rules.limits
        self.clients.maximum = limits.clients
        self.requests.timeout, self.requests.maximum = rules.requestTimeout, limits.requests
        self.clientSubscriptions.most = limits.subscriptions
        self.polledSubscriptions.limits = limits
        self.queues.maxQueues = limits.queues
        self.schedules.owners.most = limits.schedules
        self.schedules.owners.mostEach = limits.schedulesPerPrincipal
        self.keyValues.owners.most, self.keyValues.owners.mostEach = limits.values, limits.valuesPerPrincipal

    def microseconds(self) -> int:
        """Return the microseconds since 1970."""
        return round(self.wall() * 1_000_000)

    def stop(self) -> None:
        """Cancel all timers."""
        self.deadlines.stop()

    # -- clients -------------------------------------------------------------------------------------

    def join(
        self,
        dialect: str,
        peer: IPeer | None = None,
        principal: str | None = None,
        address: str = "",
        user: bool = False,
        clientId: int | None = None,
        rights: IRights = EVERYTHING,
        identity: Any = None,
        conversation: IConversation | None = None,
    ) -> ConnectedClient:
        """Register a connection as a client, and return it with its id and name.

        :param peer: receives direct messages; None: the client does not accept any.
        :param principal: the authenticated name; None: anonymous.
        :param user: name it ``user-<8 hex digits>`` instead of ``<dialect>-<id>``.
        :param id: an id from :meth:`reserve`; None: a new id.
        :param identity: the result of authentication.
        :param conversation: notified when its rights change.
        :raises NoCapacity: the broker has the maximum number of clients.
        """
        client = self.clients.add(dialect, peer, principal, address, user, clientId, rights.limits.clients)
        client.rights, client.identity, client.conversation = rights.forClient(client.id), identity, conversation
        self.observers.clientJoined(client)
        return client

    def reserve(self) -> int:
        """Return an id for a later :meth:`join`; no other client gets it until :meth:`release`.

        :raises NoCapacity: a node of a mesh has no ids at the moment.
        """
        return self.clients.reserve()

    def release(self, clientId: int) -> None:
        """Cancel the reservation of an id; a no-op if it does not exist."""
        self.clients.release(clientId)

    def rename(self, client: ConnectedClient, service: str) -> None:
        """Replace the name by which direct messages reach a client; "": no name. Several clients may share one."""
        self.clients.rename(client, service)

    def changeRights(self, client: ConnectedClient, rights: IRights) -> None:
        """Change a client's rights, and notify its conversation of the subscriptions that end.

        Polled subscriptions that are not permitted any more remain for their grace time, in case the client gets the
        right again.
        """
        lost = self.clientSubscriptions.changeRights(client, rights.forClient(client.id))
        self.polledSubscriptions.narrow(client)
        self.consumers.narrow(client)
        if client.conversation is not None:
            client.conversation.rightsChanged(lost)

    def leave(self, client: ConnectedClient, reason: str) -> None:
        """Remove a client: its subscriptions end, polled ones after their grace time, and its requests fail;
        idempotent.

        :param reason: a short constant phrase, for observers and the log.
        """
        if not self.clients.remove(client):
            return
        self.clientSubscriptions.leave(client)
        self.polledSubscriptions.leave(client)
        self.consumers.leaveAll(client)
        self.requests.leave(client)
        self.keyValues.leave(client)
        self.observers.clientLeft(client, reason)
        client.peer = client.conversation = None  # reference cycles

    @property
    def ownsJournal(self) -> bool:
        """Whether the journal is this broker's; False at the other nodes of a mesh."""
        return True

    def connectToOwner(self, description: Mapping[str, Any], transport: Any) -> None:
        """Connect one of this broker's clients to the one that :attr:`ownsJournal`, which serves the client's messages
        about queues, schedules and values.

        :param description: a :class:`fleximq.dialects.fleximq.delegate.Delegate` as a map.
        :param transport: the client's side of the connection; it is closed if no broker owns the journal for a while.
        """
        raise NotImplementedByBroker("this broker has the journal itself")

    # -- publish and subscribe ---------------------------------------------------------------------

    def topicFor(self, client: ConnectedClient, name: str) -> Topic:
        """Return the topic that a client may publish to.

        :raises InvalidTopic: the name is empty or longer than 1,024 bytes.
        :raises Forbidden: its first level is ``$sys`` or ``$dead``, where only the broker publishes.
        :raises NotPermitted: the client's rights do not cover it.
        :raises NoCapacity: it does not exist, and the client's principal may make no more topics.
        """
        if isBrokerTopic(name):
            raise Forbidden("only the broker publishes to this topic")
        permit(client, Action.PUBLISH, name)
        return self.topics.find(name) or self.topics.make(name, client.principal, client.rights.limits.topics)

    def publish(self, envelope: Envelope, body: Any, count: int, onDecided: OnDecided | None = None) -> None:
        """Deliver a run of ``count`` messages to the subscribers of its topic. Hot.

        Durable messages are delivered after their commit; later publications to the same topic wait for them.

        :param onDecided: called with None and the indexes of durable messages after their commit, or with the reason
            why they are not stored; perhaps several times, and perhaps before this returns.
        :raises NotKept: a subscription that must not lose messages is full; all but ``refused`` were delivered.
        :raises NotRecorded: the journal stores nothing at present; no message was delivered.
        :raises Unfit: messages do not fit the topic's schema; all but ``refused`` were delivered.
        """
        if envelope.topic.needsOrder or envelope.durable:
            if envelope.topic.check is None and not envelope.topic.gone:
                self.orderedPath.publish(envelope, body, count, onDecided)
            else:
                publishFitting(self.fanOut.present(envelope), body, count, onDecided, self.orderedPath.publish)
        else:
            self._deliver(envelope, body, count)

    def setSchemas(self, checkOf: Callable[[str], Callable[[Message], str | None] | None]) -> None:
        """Refuse publications that do not fit from now on; ``checkOf`` returns the check of a topic's messages, which
        says why one does not fit, and None for a topic without a schema.
        """
        self.topics.setChecks(checkOf)

    def publishOnce(
        self, envelope: Envelope, body: Any, ids: Sequence[str], onDecided: OnDecided | None = None
    ) -> None:
        """Publish a run as :meth:`publish` does, without repeated messages for durable topics: those with an id that
        was published to the topic within ``idempotenceWindow``. A repeated message is committed or refused with the
        original.

        :param ids: the id of each message.
        """
        self.deduplication.publish(envelope, body, ids, onDecided, self.publish)

    def schedule(
        self,
        envelope: Envelope,
        body: Any,
        count: int,
        due: int,
        onDecided: OnDecided | None = None,
        ids: Sequence[str] | None = None,
        onAdded: Callable[[Sequence[int]], None] = lambda numbers: None,
    ) -> None:
        """Publish a run at its time, in milliseconds since 1970, as if it arrived then; at once if the time is past.

        Header keys of the publisher that ask for the schedule, ``deliver_in`` and ``deliver_at``, are not published.

        :param onDecided: called with None and the indexes of all messages when they are stored, after the commit of
            durable ones, or with the reason why they are not stored; perhaps before this returns.
        :param ids: the id of each message: those of durable messages that repeat an id are not scheduled again, as
            :meth:`publishOnce` says. The window begins when a message is scheduled, not at its time.
        :param onAdded: called before ``onDecided`` with the ids in :attr:`schedules` of the messages that wait.
        :raises BadRequest: the time is more than ten years ahead.
        :raises TooManyRequests: the client's principal has the maximum number of schedules.
        :raises NoCapacity: the broker has the maximum number.
        :raises NotKept: the memory for schedules is full.
        :raises NotRecorded: the journal stores nothing at present.
        :raises Unfit: a message does not fit the topic's schema now; none is scheduled.
        """

        def add(envelope: Envelope, body: Any, count: int, onDecided: OnDecided | None) -> None:
            def added(numbers: Sequence[int], reason: str | None) -> None:
                if reason is None:
                    onAdded(numbers)
                if onDecided is not None:
                    onDecided(reason, range(count))

            self.addSchedules(envelope, body, count, due, added)

        if ids is None:
            add(envelope, body, count, onDecided)
        else:
            self.deduplication.publish(envelope, body, ids, onDecided, add)

    def addSchedules(self, envelope: Envelope, body: Any, count: int, due: int, added: OnAdded) -> None:
        """Publish a run at its time as :meth:`schedule` does.

        :param added: called with the ids of its messages for :attr:`schedules` and None when they are stored, or with
            the reason why they are not.
        """
        envelope = self.fanOut.present(envelope)
        unfit = unfitOf(envelope, body)
        if unfit is not None:
            raise Unfit(unfit.reason, range(count))
        self.schedules.add(envelope, body, count, due, self.orderedPath.isRecorded(envelope), added)

    def publishNarrowed(self, envelope: Envelope, body: Any, count: int, audience: Iterable[int]) -> None:
        """Deliver a volatile run of ``count`` messages after earlier pending runs of its topic, only to subscribers
        that accept direct messages and have an id in ``audience``.

        :raises Unfit: a message does not fit the topic's schema; none is delivered.
        """
        unfit = unfitOf(self.fanOut.present(envelope), body)
        if unfit is not None:
            raise Unfit(unfit.reason, range(count))
        self.orderedPath.narrowed(envelope, body, count, audience)

    def checkSubscription(self, client: ConnectedClient, name: str, literal: bool = False) -> None:
        """Check that :meth:`subscribe` would succeed, for dialects that must answer before the first delivery.

        :raises InvalidTopic: the name is empty or longer than 1,024 bytes.
        :raises NotPermitted: the client may not subscribe to it, or to none of the topics that the pattern matches.
        :raises SubscriptionFailed: the client has the maximum number of subscriptions.
        :raises NoCapacity: the topic does not exist, and the client's principal may make no more topics.
        """
        self.clientSubscriptions.check(client, name, literal)

    def subscribe(self, client: ConnectedClient, subscriber: ISubscriber, name: str, literal: bool = False) -> None:
        """Subscribe a client to a name or, unless ``literal``, to a pattern; idempotent.

        :param subscriber: receives the runs; the client's connection, in most dialects.
        :raises BrokerError: as :meth:`checkSubscription`.
        """
        self.clientSubscriptions.subscribe(client, subscriber, name, literal)

    def follow(self, client: ConnectedClient, outlet: IOutlet, name: str, start: Start) -> None:
        """Deliver the journal's records of a name or pattern from a start on, then live publications, in order.

        Every message is delivered with its offset, and once, even if several of the client's subscriptions match.
        Asking for the same name again restarts it.

        :raises BrokerError: as :meth:`checkSubscription`.
        :raises SubscriptionFailed: the broker has no journal on disk, or the topic is not durable.
        :raises NoLongerKept: records that old were deleted.
        """
        self.clientSubscriptions.follow(client, outlet, name, start)

    def recall(
        self, client: ConnectedClient, outlet: IOutlet, name: str, literal: bool = False, history: int = 0
    ) -> None:
        """Deliver past messages to a new subscription before later ones: the last ``history`` messages of a durable
        topic, or the latest message of each topic with that setting.
        """
        self.replays.recall(client, outlet, name, literal, history)

    def channels(self) -> list[str]:
        """Return the names of topics that have subscribers, in a mesh at any node, sorted; the same list until a change
        (``channelsChanged``).
        """
        return self.topics.channels()

    def unsubscribe(self, client: ConnectedClient, name: str) -> None:
        """End a subscription by the name or pattern it was made with; a no-op if it does not exist."""
        self.clientSubscriptions.unsubscribe(client, name)

    def wiretap(self, subscriber: ISubscriber, pattern: str) -> None:
        """Pass a copy of matching publications to a subscriber that is not a client (:mod:`fleximq.broker.observers`),
        one if several of its patterns match.

        :raises InvalidTopic: the pattern is empty, too long or has too many levels.
        """
        self.wiretaps.add(subscriber, pattern)

    def endWiretap(self, subscriber: ISubscriber, pattern: str) -> None:
        """Remove one pattern of a wiretap; a no-op if it does not have it."""
        self.wiretaps.remove(subscriber, pattern)

    # -- commits -------------------------------------------------------------------------------------

    def whenCommitted(self, call: Callable[[], None], client: ConnectedClient | None = None) -> None:
        """Call when all publications so far of this client (None: of all clients) are committed or refused, the
        refusals reported, and the others delivered; without a journal on disk at once.

        By then, the client's acknowledgements and the records of deliveries to it are on disk as well.
        """
        consumed = client is not None and client.consumed
        if client is not None:
            client.consumed = False
        if consumed and self.queues.restoredIds.whenRead(partial(self.whenCommitted, call)):
            return
        if consumed and self._stateLog.whenLettersStored(partial(self.whenCommitted, call)):
            return
        self.checkpointer.flush()
        self.journal.whenCommitted(call, None if client is None or consumed else client.lastRun)

    def whenStored(self, call: Callable[[str | None], None], client: ConnectedClient | None = None) -> None:
        """Call as :meth:`whenCommitted` does, with None or with the reason why the journal is read-only.

        With a reason, the client's acknowledgements, or without a client an operator's act, are not on disk; the
        journal writes them when it is reopened. A client without acknowledgements gets None.
        """
        settled = client is None or client.settled

        def committed() -> None:
            reason = self.journalRefusal() if settled else None
            if client is not None and reason is not None:
                client.settled = True
            call(reason)

        if client is not None:
            client.settled = False
        self.whenCommitted(committed, client)

    def announce(self, topic: str | None, call: Callable[[], None]) -> None:
        """Call when all nodes of a mesh know the clients of this node, their subscriptions so far, and ``topic``, to
        which one of them subscribes in ``call`` (None: no topic). A broker that is not in a mesh calls at once.
        """
        call()

    def whenPublicationsDecided(self, call: Callable[[], None], client: ConnectedClient) -> None:
        """Call when all publications so far of a client are committed or refused; acknowledgements may be pending."""
        self.journal.whenCommitted(call, client.lastRun)

    def arePublicationsDecided(self, client: ConnectedClient) -> bool:
        """Return whether all publications so far of a client are committed or refused; in a mesh, also whether the
        other nodes have confirmed this node's subscriptions.
        """
        return client.lastRun <= self.orderedPath.current.decided  # type: ignore[no-any-return]

    def hasPendingPublications(self, client: ConnectedClient) -> bool:
        """Return whether publications of a client may wait for the disk, or for an earlier transaction."""
        return client.lastRun > self.orderedPath.current.decided or self.transactions.holds(client)

    @property
    def overloaded(self) -> bool:
        """Whether so many bytes wait for the disk or a transaction that publishers should not be read."""
        return self.transactions.overloaded or self.orderedPath.overloaded

    def whenRelieved(self, call: Callable[[], None]) -> None:
        """Call once, when ``overloaded`` should be checked again."""
        if self.transactions.overloaded:
            self.transactions.whenRelieved(call)
        else:
            self.orderedPath.whenRelieved(call)

    # -- direct messages ---------------------------------------------------------------------------

    def request(self, sender: ConnectedClient, target: int | str, requestId: str, path: str, message: Any) -> None:
        """Forward a request to a client and wait for its answer.

        :param target: an id, or a name: then the client of that name with the fewest open requests.
        :raises NotPermitted: the sender may not request this path.
        :raises ClientNotFound: no client with that id or name accepts requests.
        :raises TooManyRequests: the sender has the maximum number of unanswered requests.
        """
        permit(sender, Action.REQUEST, path)
        if isinstance(target, str):
            found = self.clients.leastBusy(target, self.requests.answering)
            if found is None:
                raise ClientNotFound(f"there is no client named {shortened(target)!r}")
            target = found
        responder, peer = self._peer(target)
        self.requests.open(sender, responder, requestId, path)
        peer.forward(message)

    def receiveDirect(self, client: ConnectedClient, peer: IPeer) -> None:
        """Let a client that joined without a peer accept direct messages from now on. In a mesh, other nodes know it
        after :meth:`announce`.
        """
        client.peer = peer
        self.clients.peers[client.id] = client, peer

    def forgetRequest(self, client: ConnectedClient, requestId: str) -> None:
        """Remove a client's open requests with this id; a later answer counts as a notification."""
        self.requests.forget(client, requestId)

    def reply(self, sender: ConnectedClient, target: int, requestId: str, message: Any, path: str = "") -> None:
        """Forward an answer to the requester; one without an open request is treated as a notification.

        :raises NotPermitted: the request is not open, and the sender may not notify this path.
        :raises ClientNotFound: no client with that id accepts answers.
        """
        requester, peer = self._peer(target)
        done = self.requests.close(requester, sender, requestId)
        if not done:
            permit(sender, Action.NOTIFY, path)
        peer.forward(message)
        if done:
            peer.requestDone()

    def notify(self, sender: ConnectedClient, ids: Iterable[int], paths: Iterable[str], message: Any) -> None:
        """Send a copy to each client with one of these ids that accepts direct messages; to none if NotPermitted is
        raised because the sender may not notify one of the paths.
        """
        for path in paths:
            permit(sender, Action.NOTIFY, path)
        for clientId in dict.fromkeys(ids):
            found = self.clients.peers.get(clientId)
            if found is not None:
                found[1].forward(message)

    def broadcast(self, sender: ConnectedClient, message: Any) -> None:
        """Send a copy to every client that accepts direct messages, perhaps to the sender; raises NotPermitted."""
        permit(sender, Action.BROADCAST, "")
        for client, peer in tuple(self.clients.peers.values()):
            if client is not sender or self.rules.echoBroadcast:
                peer.receiveBroadcast(message)

    def openRequests(self, requester: ConnectedClient) -> int:
        """Return the number of a client's requests to other clients that are not answered yet."""
        return self.requests.openRequests(requester)

    def checkPath(self, path: str) -> None:
        """Check that this broker can answer requests to one of its paths (:mod:`fleximq.broker.paths.path_table`).

        :raises NoCapacity: the path needs the journal, which another node of the mesh owns.
        """

    def withOtherNodes(
        self, title: str, client: ConnectedClient, arguments: Mapping[str, Any], answer: Callable[[Any], None]
    ) -> Callable[[Any], None]:
        """Return a callback for this broker's part of an answer. It calls ``answer`` with the complete answer, which in
        a mesh has the parts of the other nodes too.

        :param title: the title of a listing (:data:`fleximq.broker.paths.path_table.LISTINGS`), or the name of an
            operator's act.
        :param arguments: the arguments of the request, which are sent to the other nodes: values for MessagePack.
        """
        return answer

    def journalHealth(self) -> dict[str, Any] | None:
        """Return the journal's health, see :meth:`fleximq.interfaces.IJournal.health`; None without one on disk."""
        return dict(self.journal.health()) if self.journal.onDisk else None

    # -- queues ------------------------------------------------------------------------------------

    def journalRefusal(self) -> str | None:
        """Return the reason why the journal is read-only; None if it is writable."""
        return journalFault(self.journal)

    def produce(self, envelope: Envelope, body: Any, count: int, onDecided: OnDecided | None = None) -> None:
        """Publish a run as :meth:`publish` does, to a topic that gets a work queue if it has none.

        :raises NotKept: as :meth:`publish`; or the queue has no space for the whole run: then no message is published.
        :raises NoCapacity: the broker has the maximum number of queues.
        """
        if envelope.topic.gone:
            envelope = self.fanOut.present(envelope)
        if envelope.topic.check is None:
            self._produceUnchecked(envelope, body, count, onDecided)
        else:
            publishFitting(envelope, body, count, onDecided, self._produceUnchecked)

    def _produceUnchecked(self, envelope: Envelope, body: Any, count: int, onDecided: OnDecided | None) -> None:
        queue = self.queues.ensure(envelope.topic.name)
        if envelope.topic.gone:
            envelope = envelope._replace(topic=self.topics.get(queue.name))
        reason = self.queues.refusal(queue, envelope, body, count)
        if reason is not None:
            raise NotKept(reason, range(count))
        self._publishUnchecked(envelope, body, count, onDecided)

    def _publishUnchecked(self, envelope: Envelope, body: Any, count: int, onDecided: OnDecided | None) -> None:
        if envelope.topic.needsOrder or envelope.durable:
            self.orderedPath.publish(envelope, body, count, onDecided)
        else:
            self._deliver(envelope, body, count)

    def produceOnce(
        self, envelope: Envelope, body: Any, ids: Sequence[str], onDecided: OnDecided | None = None
    ) -> None:
        """Remove repeated messages as :meth:`publishOnce` does, and :meth:`produce` the others."""
        self.queues.ensure(envelope.topic.name)
        self.deduplication.publish(envelope, body, ids, onDecided, self.produce)

    def expectReplies(self, client: ConnectedClient, name: str) -> None:
        """Make the reply queue of a topic, so that it stores replies that arrive before its first :meth:`consume`.

        A no-op for the broker's own topics, for those from which the client may not consume, for names that are too
        long, and if the broker has the maximum number of queues.
        """
        self.queues.expectReplies(client, name)

    def consume(self, client: ConnectedClient, name: str) -> QueueDelivery | None:
        """Deliver one message of a topic's work queue, None if there is none.

        :raises BrokerError: as :meth:`consumeMany`.
        """
        deliveries = self.queues.consume(client, name, 1)
        return deliveries[0] if deliveries else None

    def consumeMany(self, client: ConnectedClient, name: str, number: int, most: int = ANY) -> Sequence[QueueDelivery]:
        """Deliver up to ``number`` messages of a topic's work queue, made if need be.

        :param most: bytes (:mod:`fleximq.values.message_cost`): no further message after so many; always at least one.
        :raises InvalidTopic: the name is empty or longer than 1,024 bytes.
        :raises NotPermitted: the client may not consume from it.
        :raises NoCapacity: the broker has the maximum number of queues.
        """
        return self.queues.consume(client, name, number, most)

    def whenAvailable(self, client: ConnectedClient, name: str, call: Callable[[], None]) -> Callable[[], None]:
        """Call once when a topic's work queue, made if need be, has a message; return a function that cancels this.

        :raises BrokerError: as :meth:`consumeMany`.
        """
        return self.queues.whenAvailable(client, name, call)

    def acknowledgeMessages(self, ids: Iterable[str], client: ConnectedClient | None = None) -> None:
        """Acknowledge consumed messages by their ids; unknown ids, and ids in queues forbidden to the client, are
        ignored.

        :param client: its :meth:`whenCommitted` waits until the acknowledgement is on disk.
        """
        self.queues.acknowledge(ids, client)

    def consumeFrom(
        self,
        client: ConnectedClient,
        name: str,
        deliver: Deliver,
        ended: Callable[[BrokerError], None],
        prefetch: int = 1,
        source: str | None = None,
    ) -> QueueConsumer:
        """Make a client a consumer of a queue, made if need be; again: change its ``prefetch`` and its callbacks.

        :param deliver: called with deliveries, at most ``prefetch`` unsettled ones in all, perhaps before this returns.
            Their tags are those of :meth:`settle`.
        :param ended: called if the client may not consume from it any more.
        :param prefetch: up to 65,535, 0: no further ones; raises BadRequest.
        :param source: the topic or pattern that a new queue receives; None: the topic of its name.
        :raises InvalidTopic: the name is empty or longer than 1,024 bytes.
        :raises NotPermitted: the client may not consume from the queue or from one of its sources.
        :raises NoCapacity: the broker has the maximum number of queues.
        """
        return self.consumers.consume(client, name, deliver, ended, prefetch, source)

    def stopConsuming(self, client: ConnectedClient, name: str) -> None:
        """End :meth:`consumeFrom`; a no-op without it. Unsettled deliveries return to the head of the queue at once."""
        self.consumers.leave(client, name)

    def pauseConsuming(self, client: ConnectedClient, name: str, isPaused: bool) -> None:
        """Give a consumer no more deliveries, or some again, for example while its client does not read its output; a
        no-op without :meth:`consumeFrom`. It may be called while deliveries are made.
        """
        self.consumers.pauseConsumer(client, name, isPaused)

    def cancelMessage(self, client: ConnectedClient, name: str, messageId: str, done: Callable[[bool], None]) -> None:
        """Remove a message that waits in a queue, by its id, also on disk and while it is delayed for a retry.

        :param done: called with False if a consumer has it, or if there is none; perhaps before this returns. A
            :meth:`whenStored` after that waits until it is on disk.
        :raises NotPermitted: the client may neither consume from the queue nor publish to its topic.
        :raises NotFound: there is no such queue.
        """
        if not permits(client, Action.PUBLISH, name):
            permit(client, Action.CONSUME, name)
        Cancellation(self.journal, self.queues.existing(name), messageId, done).begin()

    def settle(
        self,
        client: ConnectedClient,
        name: str,
        acks: Sequence[int] = (),
        retries: Sequence[tuple[int, float | None]] = (),
        rejects: Sequence[tuple[int, str]] = (),
        extends: Sequence[tuple[int, float]] = (),
    ) -> list[int]:
        """Settle deliveries of a consumer by their tags, and return the tags that were not (or not any more) its own.

        :meth:`whenCommitted` waits until all is on disk.

        :param retries: tags and after how many seconds each message is delivered again; None: as the queue's definition
            says.
        :param rejects: tags, and why each message becomes a dead letter.
        :param extends: tags, and for how many seconds from now each delivery stays the consumer's.
        """
        return self.consumers.settle(client, name, acks, retries, rejects, extends)

    def defineQueue(
        self, client: ConnectedClient, definition: QueueDefinition, replace: bool = False
    ) -> QueueDefinition:
        """Define a queue, made if need be, and return its definition; defining it equally again is a no-op.
        Whether it is paused does not count, and does not change without ``replace``.

        :param replace: replace a different definition; the caller has checked the right to.
        :raises Conflict: the queue has a different definition, the sentence contains both; or it is in the settings
            file.
        :raises BrokerError: as :meth:`consumeFrom`.
        """
        return self.consumers.define(client, definition, replace)

    def bindQueue(
        self, client: ConnectedClient, name: str, added: Sequence[str], removed: Sequence[str]
    ) -> QueueDefinition:
        """Add sources to a queue, and remove others except the topic of its name; return its definition.

        :raises NotFound: there is no such queue.
        :raises BrokerError: as :meth:`defineQueue`; the client may not consume from the queue or one of its sources.
        """
        return self.consumers.bind(client, name, added, removed)

    def deleteQueue(self, client: ConnectedClient, name: str) -> int:
        """Remove a queue with its messages, whose number is returned, and with its definition; its consumers end.

        :raises NotPermitted: the client may not consume from it.
        :raises NotFound: there is no such queue.
        :raises Conflict: it is in the settings file.
        """
        return self.consumers.delete(client, name)

    def pauseQueue(self, client: ConnectedClient, name: str, paused: bool) -> None:
        """Stop or resume the deliveries of a queue; raises NotFound if it does not exist."""
        self.consumers.pause(client, name, paused)

    # -- polled subscriptions ------------------------------------------------------------------------

    def openSubscription(self, client: ConnectedClient, owner: str | None, name: str, qos: int) -> PolledSubscription:
        """Make a polled subscription with a queue of its own.

        :param owner: the principal that may poll it from any connection; None: any anonymous client may.
        :param qos: 1 if its messages are delivered again until they are acknowledged, otherwise 0.
        :raises InvalidTopic: the name is empty or longer than 1,024 bytes.
        :raises NotPermitted: the client may not subscribe to it.
        :raises SubscriptionFailed: the client has the maximum number of subscriptions, or the journal is read-only.
        :raises NoCapacity: the broker has the maximum number, including those that outlive their connection; or the
            client's principal may make no more topics.
        """
        return self.polledSubscriptions.open(client, owner, name, qos)

    def subscription(self, client: ConnectedClient, owner: str | None, subscriptionId: int) -> PolledSubscription:
        """Return a subscription that a client may poll and acknowledge, until its rights change. Polling attaches the
        client: it lasts as long as a client is attached to it.

        :raises NotFound: the subscription does not exist, or has another owner.
        :raises NotPermitted: the client may not subscribe to its topic any more.
        """
        return self.polledSubscriptions.permitted(client, owner, subscriptionId)

    def _peer(self, clientId: int) -> tuple[ConnectedClient, IPeer]:
        found = self.clients.peers.get(clientId)
        if found is None:
            raise ClientNotFound(f"there is no client {clientId} that takes this message")
        return found
