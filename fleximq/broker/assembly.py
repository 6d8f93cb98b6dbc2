"""Makes the parts of a broker and connects them by constructor arguments and callbacks."""

import time
from collections.abc import Callable, Sequence

from fleximq.broker.broker import Broker
from fleximq.broker.clients import Clients
from fleximq.broker.consumer_groups import ConsumerGroups
from fleximq.broker.consumers.checkpoints import Checkpointer
from fleximq.broker.consumers.dead_letters import DeadLetters
from fleximq.broker.consumers.queue_admin import QueueAdmin
from fleximq.broker.consumers.state_log import OpeningLog, StateLog
from fleximq.broker.consumers.subscription_access import SubscriptionAccess
from fleximq.broker.consumers.work_queue_access import WorkQueueAccess
from fleximq.broker.deadlines import Clock, Deadlines
from fleximq.broker.envelope import BROKER_ID, ConnectedClient
from fleximq.broker.observers import Counts, Observers, RecordWatchers, Taps
from fleximq.broker.paths.path_table import PathTable
from fleximq.broker.pending_requests import PendingRequests
from fleximq.broker.presence import Presence
from fleximq.broker.publishing.deduplication import Deduplication, recentIdsOf
from fleximq.broker.publishing.fan_out import FanOut
from fleximq.broker.publishing.pending_commits import PendingCommits
from fleximq.broker.publishing.slow_path import SlowPath
from fleximq.broker.publishing.transactions import Transactions
from fleximq.broker.queues.queue_factory import QueueFactory
from fleximq.broker.replay.client_subscriptions import ClientSubscriptions
from fleximq.broker.replay.replay import Replays
from fleximq.broker.rules import BrokerRules, TimesToLive
from fleximq.broker.slices import Slices
from fleximq.broker.topics.topic_table import SYSTEM, Topic, TopicTable
from fleximq.broker.traffic import TrafficTotals
from fleximq.interfaces import IJournal
from fleximq.values.message import Message
from fleximq.values.patterns import anyOf


def assemble(
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
) -> Broker:
    """Return a broker.

    :param randomHex: returns a string of so many random hexadecimal digits.
    :param idOf: returns a message's id in a work queue: its own, or a new one.
    :param onError: receives exceptions of observers and of timed actions.
    :param afterwards: called after each batch of timed actions, to flush their output.
    :param publishing: called with the publisher before its publications are delivered after a commit, and with None
        after that.
    """
    rules = rules or BrokerRules()
    itself = ConnectedClient(BROKER_ID, "fleximq", f"fleximq-{BROKER_ID}")
    counts = Counts()
    observers = Observers(onError)
    observers.add(counts)
    counted = observers.counted
    recordWatchers = RecordWatchers(onError)
    channelsChanged: list[Callable[[], None]] = []

    def announceChannels() -> None:
        for call in channelsChanged:
            call()

    def announceTopic(topic: Topic) -> None:
        if not topic.name.startswith(SYSTEM):
            observers.topicCreated(topic.name)

    def readAgain() -> None:
        # Subscriptions that replay the journal read the transaction themselves.
        counted("not brought: the journal could not be read", 1)
        replays.readAgain()

    durable = anyOf(rules.durable + rules.retain if journal.onDisk else ())
    clients = Clients(rules.limits.clients, clock.seconds, randomHex)
    topics = TopicTable(rules.limits.topics, announceTopic, announceChannels, durable)
    timesToLive = TimesToLive(rules.timesToLive)
    deadlines = Deadlines(clock, onError=onError, afterwards=afterwards)
    slices = Slices(clock, onError)
    # from publish() to the subscribers
    fanOut = FanOut(topics, clients)
    transactions = Transactions(journal, topics, fanOut.deliver, readAgain)
    pendingCommits = PendingCommits(journal, topics, fanOut.deliver, transactions, counted, publishing, recordWatchers)
    slowPath = SlowPath(journal, fanOut, transactions, pendingCommits)
    recentIds = recentIdsOf(rules, clock.seconds, counted)
    deduplication = Deduplication(rules.idempotenceWindow > 0, recentIds, fanOut, slowPath)
    observers.add(Presence(topics, itself, fanOut.deliver))
    # subscriptions that start in the past
    replays = Replays(
        journal,
        topics,
        anyOf(rules.retain) if rules.retain else None,
        timesToLive,
        transactions.waits,
        lambda: time.time_ns() // 1000,
        slices,
        lambda client, name: clientSubscriptions.unsubscribe(client, name),
    )
    clientSubscriptions = ClientSubscriptions(topics, replays, rules.limits.subscriptions)
    # queues
    deadLetters = DeadLetters(
        itself, topics, slowPath, lambda name: consuming.ensure(name), deadlines, rules.redelivery, counted
    )
    stateLog = StateLog(journal, deadlines, deadLetters.deadLetter)
    makeQueue = QueueFactory(
        deadlines=deadlines,
        redelivery=rules.redelivery,
        maxDeliveries=rules.maxDeliveries,
        maxMessages=rules.limits.queueMessages,
        maxBytes=rules.limits.queueBytes,
        onDead=deadLetters.add,
        counted=counted,
        timeToLiveOf=timesToLive.seconds,
        queueLog=stateLog if journal.onDisk else None,
        memory=rules.limits.queueMemory,
    )
    openingLog = OpeningLog(journal)
    polling = SubscriptionAccess(rules, journal, topics, openingLog, makeQueue)
    consuming = WorkQueueAccess(rules, journal, topics, openingLog, makeQueue, idOf, durable)
    groups = ConsumerGroups(journal, stateLog.wall)
    checkpointer = Checkpointer(
        stateLog, openingLog, topics, polling.subscriptions, consuming.queues, recentIds, timesToLive, groups
    )
    return Broker(
        clock=clock,
        journal=journal,
        rules=rules,
        itself=itself,
        paths=PathTable(),
        dialects=tuple(dialects),
        implementation=implementation,
        counts=counts,
        observers=observers,
        recordWatchers=recordWatchers,
        traffic=TrafficTotals(),
        channelsChanged=channelsChanged,
        clients=clients,
        topics=topics,
        timesToLive=timesToLive,
        taps=Taps(topics, onError),
        deadlines=deadlines,
        requests=PendingRequests(deadlines, rules.requestTimeout, rules.limits.requests),
        fanOut=fanOut,
        transactions=transactions,
        pendingCommits=pendingCommits,
        slowPath=slowPath,
        recentIds=recentIds,
        deduplication=deduplication,
        replays=replays,
        clientSubscriptions=clientSubscriptions,
        polling=polling,
        consuming=consuming,
        deadLetters=deadLetters,
        admin=QueueAdmin(itself, topics, consuming, slowPath, deadlines),
        groups=groups,
        checkpointer=checkpointer,
        slices=slices,
    )
