"""What is measured, with whom, and what is wanted of it. A new scene is a new line in :data:`SCENES`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.peers.bare import Bare
from benchmarks.peers.beanstalkd import Beanstalkd
from benchmarks.peers.blipmq import BlipMQ
from benchmarks.peers.clients import NatsPy, OurAsyncio, OurBlocking
from benchmarks.peers.cluster import ClusterOwner, ClusterStandby
from benchmarks.peers.events import Events
from benchmarks.peers.fitted import CheckedAvro, CheckedElsewhere, CheckedJson, CheckedProtobuf, Unchecked
from benchmarks.peers.fleximq import FlexiMQ, FlexiMQBroker, LayoutB, pure, tuned
from benchmarks.peers.fleximq_queue import DurableQueue, FlexiQueue
from benchmarks.peers.http import HttpFlexiMQ, Nchan
from benchmarks.peers.identity import Identity
from benchmarks.peers.jetstream import JetStream, JetStreamAlways
from benchmarks.peers.jetstream_queue import JetStreamQueue
from benchmarks.peers.journal import Durable, DurableMini, Journaled, Unused, Volatile
from benchmarks.peers.minimq import MiniMQ
from benchmarks.peers.mosquitto import Mosquitto
from benchmarks.peers.nats import Nats
from benchmarks.peers.peer import Peer
from benchmarks.peers.rabbitmq import RabbitMQ
from benchmarks.peers.redis import Redis
from benchmarks.peers.redis_queue import RedisLists, RedisStreams
from benchmarks.peers.secured import SecuredFlexiMQ, SecuredNats
from benchmarks.peers.work_queue import WorkQueue, synced
from benchmarks.peers.ws import NodeWs
from benchmarks.work.beside import Beside
from benchmarks.work.crowd import Crowd
from benchmarks.work.durable import SHARE, OneByOne, Pipelined, Produced
from benchmarks.work.effort import Work
from benchmarks.work.fan import Fan
from benchmarks.work.fitting import Fitting
from benchmarks.work.jobs import Jobs, JobStart
from benchmarks.work.joining import Idle, Joining
from benchmarks.work.latency import TAILS, Latency
from benchmarks.work.library import ASKED, PUBLISHED, RECEIVED, Libraries
from benchmarks.work.posts import POSTED, Posts
from benchmarks.work.queued import Polled, Queued
from benchmarks.work.recovered import Replayed, Restarted
from benchmarks.work.round_trip import RoundTrip
from benchmarks.work.waiting import Scheduled, Waiting

#: The broker that all others are compared with, and the same in pure Python.
OURS, PURE = "fleximq", "fleximq-pure"


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound on a figure of ours, or with ``peer`` on its ratio to that peer's."""

    figure: str
    bound: float
    peer: str | None = None
    atMost: bool = False
    of: str = OURS

    def share(self, value: float) -> float:
        """Return how much of the goal a value reaches; 1 and more meets it."""
        if not self.atMost:
            return value / self.bound
        return self.bound / value if value > 0 else math.inf

    def __str__(self) -> str:
        words = f"{'at most' if self.atMost else 'at least'} {self.bound:,.10g}"
        return f"{words} x {self.peer}" if self.peer else words


@dataclass(frozen=True, slots=True)
class Scene:
    """One row of measurements: a kind of work, the peers that do it (ours first), and its goals."""

    name: str
    title: str
    work: Work
    peers: tuple[type[Peer], ...]
    goals: tuple[Goal, ...] = ()
    #: Whether it has to be asked for by name.
    onRequest: bool = False

    @property
    def table(self) -> str:
        """The file of docs/measurements that has it."""
        return "journal.txt" if issubclass(self.peers[0], Journaled) else "brokers.txt"


_BROKERS: tuple[type[Peer], ...] = (Nats, Redis, Mosquitto)
_POLICIES = ("disconnect", "drop", "block")
#: Sizes as they are drawn: 712 bytes on the average.
_SIZES = (16,) * 8 + (100,) * 8 + (1024,) * 3 + (10240,)


def _goals(figure: str, bound: float, before: float, peer: str | None = None, atMost: bool = False) -> tuple[Goal, ...]:
    """Return what is wanted of ours, and of pure Python: as much as ``before`` anything was compiled."""
    return Goal(figure, bound, peer, atMost), Goal(figure, before, peer, atMost, PURE)


def _fan(
    name: str,
    title: str,
    work: Fan,
    over: float,
    before: float,
    *peers: type[Peer],
    ours: type[FlexiMQBroker] = FlexiMQ,
) -> Scene:
    """A scene of publications, with how many times the first peer's rate is wanted."""
    return Scene(name, title, work, (ours, pure(ours), *peers), _goals(work.figure, over, before, peers[0].broker))


def _slow(dialect: type[FlexiMQBroker], policy: str) -> Scene:
    """A scene with a reader of one dialect that never reads, under one policy for such readers.

    What waits for it counts against the budget of a connection, and where there is a queue against the queue's.
    Under ``block`` the others are slowed down by choice.
    """
    mebibytes = 64 if dialect in (FlexiMQ, Identity) else 128
    goals = (Goal("growth, MiB", mebibytes, atMost=True), Goal("with/without", 1.2, atMost=True))
    options = ("--outbox-bytes", "64MiB", "--queue-bytes", "64MiB")
    return Scene(
        f"slow-{dialect.__name__.lower()}-{policy}",
        f"20 readers beside one that never reads ({dialect.__name__}, {policy})",
        Beside(dialect),
        (tuned(FlexiMQ, *options, *(() if policy == "disconnect" else ("--slow-consumer", policy))),),
        goals[: 1 if policy == "block" else 2],
        onRequest=True,
    )


#: The peers that have work queues.
_QUEUES: tuple[type[WorkQueue], ...] = (RedisStreams, RedisLists, RabbitMQ, Beanstalkd, JetStreamQueue)


def _jobs(name: str, words: str, ours: type[FlexiMQBroker], least: float, peers: Sequence[type[WorkQueue]]) -> Scene:
    """A scene of work queues at full speed, with twice the rate of every peer wanted."""
    goals = (Goal("jobs/s", least), *(Goal("jobs/s", 2.0, peer.broker) for peer in peers))
    title = f"Work queue, {words}: confirmed, delivered, acknowledged, 1 to 4, 100 B"
    return Scene(f"jobs-{name}", title, Jobs(), (ours, pure(ours), *peers), goals)


_FAN = Fan().figure
#: What is wanted of a client library.
_LIBRARY = (
    Goal(PUBLISHED, 300_000),
    Goal(RECEIVED, 200_000),
    Goal(PUBLISHED, 3.0, "nats-py"),
    Goal(RECEIVED, 3.0, "nats-py"),
    Goal(ASKED, 1.0, "nats-py", atMost=True),
)

SCENES: tuple[Scene, ...] = (
    _fan("1-1-16b", "1 to 1, 16 B", Fan(16), 2.5, 1.54, *_BROKERS),
    _fan("1-1-100b", "1 to 1, 100 B", Fan(100), 3.0, 1.75, *_BROKERS, Bare),
    _fan("1-1-1k", "1 to 1, 1 KB", Fan(1024), 1.5, 1.11, *_BROKERS),
    _fan("1-1-10k", "1 to 1, 10 KB", Fan(10240), 1.2, 0.98, *_BROKERS),
    _fan("1-1-sizes", "1 to 1, 16 B to 10 KB mixed", Fan(sizes=_SIZES), 1.5, 0.75, Nats),
    _fan("1-1-b", "1 to 1, layout B, 100 B", Fan(), 3.0, 0.2, Nats, ours=LayoutB),
    _fan("1-1-tls", "1 to 1 inside TLS, 100 B", Fan(), 1.0, 1.0, SecuredNats, ours=SecuredFlexiMQ),
    _fan("1-10", "1 to 10, 100 B", Fan(subscribers=10), 6.0, 4.28, *_BROKERS, Bare),
    _fan("1-100", "1 to 100, 100 B", Fan(subscribers=100), 6.0, 7.08, *_BROKERS, Bare),
    _fan("4-4", "4 to 4 (pairs), 100 B", Fan(pairs=4), 2.0, 1.33, *_BROKERS),
    _fan("random-10", "10 topics at random, 100 B", Fan(topics=10), 2.0, 0.73, Nats),
    _fan("random-1k", "1,000 topics at random, 100 B", Fan(topics=1000), 2.0, 0.91, *_BROKERS),
    _fan("random-100k", "100,000 topics at random, 100 B", Fan(topics=100_000), 1.0, 0.2, Nats),
    _fan("wild-10", "10 topics at random, by a wildcard, 100 B", Fan(topics=10, by="wildcard"), 2.0, 0.73, Nats),
    _fan("wild-1k", "1,000 topics at random, by a wildcard, 100 B", Fan(topics=1000, by="wildcard"), 2.0, 0.91, Nats),
    _fan("wild-100k", "100,000 topics, by a wildcard, 100 B", Fan(topics=100_000, by="wildcard"), 1.0, 0.1, Nats),
    _fan("each-1k", "1,000 topics, each with a subscriber, 100 B", Fan(topics=1000, by="one"), 2.0, 0.3, Nats),
    _fan("ws-1-1", "Identity over WebSocket, 1 to 1, 100 B", Fan(), 6.0, 3.95, NodeWs, ours=Identity),
    _fan("ws-1-10", "Identity over WebSocket, 1 to 10, 100 B", Fan(subscribers=10), 6.0, 19.9, NodeWs, ours=Identity),
    _fan("ws-1-100", "Identity over WebSocket, 1 to 100, 100 B", Fan(subscribers=100), 10, 91, NodeWs, ours=Identity),
    Scene("sse-1-1", "Server-Sent Events, 1 to 1, 100 B", Fan(), (Events, pure(Events)), (Goal(_FAN, 200_000),)),
    Scene(
        "sse-1-100", "Server-Sent Events, 1 to 100, 100 B", Fan(subscribers=100), (Events,), (Goal(_FAN, 1_000_000),)
    ),
    Scene(
        "http-posts",
        "Publishing by HTTP, 32 connections, one request at a time on each, 100 B",
        Posts(),
        (HttpFlexiMQ, pure(HttpFlexiMQ), Nchan),
        (Goal(POSTED, 20_000),),
    ),
    Scene(
        "reqrep",
        "Request and reply, one at a time, 100 B",
        RoundTrip(100),
        (FlexiMQ, pure(FlexiMQ), Nats),
        _goals("p50, us", 0.9, 1.12, "nats", atMost=True),
    ),
    Scene(
        "latency",
        "Delivery at half of the top rate, 1 to 1, 100 B",
        Latency(100),
        (FlexiMQ, *_BROKERS),
        tuple(Goal(figure, 1.0, peer, atMost=True) for figure in TAILS for peer in ("nats", "redis")),
    ),
    Scene(
        "joining",
        "Connect and join",
        Joining(),
        (FlexiMQ, pure(FlexiMQ), *_BROKERS),
        _goals("connections/s", 0.95, 0.52, "nats"),
    ),
    Scene(
        "idle", "Idle joined connections", Idle(), (FlexiMQ, *_BROKERS), (Goal("bytes/connection", 6_500, atMost=True),)
    ),
    *(
        Scene(
            f"blipmq-qos{qos}",
            f"BlipMQ, QoS {qos}: publish, then poll{words}, 100 B",
            Polled(qos),
            (BlipMQ, pure(BlipMQ)),
            _goals("in, msg/s", 1_000_000, inward) + _goals("out, msg/s", 1_000_000, outward),
        )
        for qos, words, inward, outward in ((0, "", 1_159_297, 712_260), (1, " and acknowledge", 1_036_866, 638_482))
    ),
    Scene(
        "minimq",
        "MiniMQ: produce, consume, acknowledge, 100 B",
        Queued(),
        (MiniMQ, pure(MiniMQ)),
        _goals("PRODUCE/s", 600_000, 272_329)
        + _goals("CONSUME/s", 600_000, 394_210)
        + _goals("ACK/s", 540_000, 544_364),
    ),
    Scene(
        "durable-100b",
        "Durable publications, confirmed, 1 connection, 100 B",
        Pipelined(100),
        (Durable, JetStream),
        (Goal("kept msg/s", 2.0, "jetstream"),),
    ),
    Scene(
        "durable-1k",
        "Durable publications, confirmed, 1 connection, 1 KB",
        Pipelined(1024),
        (Durable, JetStream),
        (Goal("kept msg/s", 1.0, "jetstream"), Goal(SHARE, 0.8)),
    ),
    *(
        Scene(
            f"cluster-{name}",
            f"Durable publications in a cluster of three nodes, confirmed, 1 connection, {words}",
            Pipelined(size),
            (ClusterOwner, ClusterStandby),
            (Goal("kept msg/s", least), Goal("kept msg/s", 0.7, OURS, of=ClusterStandby.broker)),
        )
        for name, words, size, least in (("100b", "100 B", 100, 200_000), ("1k", "1 KB", 1024, 30_000))
    ),
    Scene(
        "cluster-64",
        "Durable publications in a cluster of three nodes, 64 connections, each waits for every confirmation, 100 B",
        OneByOne(64),
        (ClusterOwner,),
        (),
    ),
    Scene("durable-latency", "Durable delivery at half of the top rate, 1 to 1, 1 KB", Latency(1024), (Durable,)),
    Scene(
        "durable-64",
        "Durable publications, 64 connections, each waits for every confirmation, 100 B",
        OneByOne(64),
        (Durable, JetStreamAlways),
        (Goal("kept msg/s", 1.0, "jetstream-sync"),),
    ),
    Scene(
        "minimq-durable",
        "MiniMQ with a journal: PRODUCE pipelined, then one at a time, 100 B",
        Produced(),
        (DurableMini,),
        (Goal("PRODUCE/s", 200_000), Goal("over bare sync, us", 200, atMost=True)),
    ),
    Scene(
        "restart",
        "Start with 1 M messages in the journal, 100,000 of them unacknowledged",
        Restarted(),
        (Durable,),
        (Goal("ready, s", 2.0, atMost=True),),
    ),
    Scene(
        "replay",
        "Replay of 1 M messages of 100 B to one subscriber",
        Replayed(),
        (Durable,),
        (Goal("replayed msg/s", 500_000),),
    ),
    Scene(
        "journal-cost",
        "What a journal costs those who do not use it: 1 to 1, 100 B",
        Fan(100, topics=2),
        (Unused, Volatile),
        (Goal("deliveries/s", 0.97, "volatile"),),
    ),
    Scene(
        "schemas",
        "What a schema costs: publications without subscribers, a document of 100 B in JSON",
        Fitting(),
        (Unchecked, CheckedElsewhere, CheckedJson, CheckedAvro, CheckedProtobuf),
        onRequest=True,
    ),
    _jobs("durable", "synced", DurableQueue, 300_000, [synced(peer) for peer in _QUEUES]),
    _jobs("volatile", "in memory", FlexiQueue, 800_000, _QUEUES),
    Scene(
        "jobs-latency",
        "Work queue, synced: enqueue to the start of the job at 1,000 a second, 100 B",
        JobStart(),
        (DurableQueue, pure(DurableQueue), *map(synced, _QUEUES)),
        (
            Goal("p50, us", 1_000, atMost=True),
            Goal("p99, us", 3_000, atMost=True),
            *(Goal(f"p{at}, us", 1.0, peer.broker, atMost=True) for peer in _QUEUES for at in (50, 99)),
        ),
    ),
    Scene(
        "schedules",
        "1 M schedules in the journal, each due at another time, 100 B",
        Scheduled(),
        (DurableQueue,),
        (
            Goal("p99 late, ms", 100, atMost=True),
            Goal("bytes/schedule", 32, atMost=True),
            Goal("ready, s", 1.0, atMost=True),
            Goal("fired msg/s", 100_000),
        ),
        onRequest=True,
    ),
    Scene(
        "waiting",
        "100 M jobs in one durable queue, 16 B",
        Waiting(),
        (DurableQueue,),
        (Goal("memory, MB", 100, atMost=True), Goal("ready, s", 3.0, atMost=True)),
        onRequest=True,
    ),
    Scene("client-asyncio", "Client library on asyncio, 100 B", Libraries(), (OurAsyncio, NatsPy), _LIBRARY),
    Scene("client-blocking", "Client library, blocking, 100 B", Libraries(), (OurBlocking, NatsPy), _LIBRARY),
    Scene(
        "crowd",
        "10,000 idle connections for a minute, then each publishes; then all reconnect",
        Crowd(),
        (FlexiMQ,),
        (Goal("reconnect, s", 30, atMost=True),),
        onRequest=True,
    ),
    *(_slow(dialect, policy) for policy in _POLICIES for dialect in (FlexiMQ, BlipMQ, MiniMQ, Identity)),
)
