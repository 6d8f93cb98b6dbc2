"""What is measured, with whom, and what is wanted of it. A new scene is a new line in :data:`SCENES`."""

from dataclasses import dataclass

from benchmarks.peers.bare import Bare
from benchmarks.peers.blipmq import BlipMQ
from benchmarks.peers.clients import NatsPy, OurAsyncio, OurBlocking
from benchmarks.peers.fleximq import FlexiMQ, FlexiMQBroker, tuned
from benchmarks.peers.identity import Identity
from benchmarks.peers.jetstream import JetStream, JetStreamAlways
from benchmarks.peers.journal import Durable, DurableMini, Unused, Volatile
from benchmarks.peers.minimq import MiniMQ
from benchmarks.peers.mosquitto import Mosquitto
from benchmarks.peers.nats import Nats
from benchmarks.peers.peer import Peer
from benchmarks.peers.redis import Redis
from benchmarks.peers.ws import NodeWs
from benchmarks.work.beside import Beside
from benchmarks.work.crowd import Crowd
from benchmarks.work.durable import SHARE, OneByOne, Pipelined, Produced
from benchmarks.work.effort import Work
from benchmarks.work.fan import Fan
from benchmarks.work.joining import Idle, Joining
from benchmarks.work.latency import Latency
from benchmarks.work.library import ASKED, PUBLISHED, RECEIVED, Libraries
from benchmarks.work.queued import Polled, Queued
from benchmarks.work.recovered import Replayed, Restarted
from benchmarks.work.round_trip import RoundTrip

#: The broker that all others are compared with.
OURS = "fleximq"


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound on a figure of ours, or with ``peer`` on its ratio to that peer's."""

    figure: str
    bound: float
    peer: str | None = None
    atMost: bool = False

    def isMet(self, value: float) -> bool:
        """Return whether a value is within the bound."""
        return value <= self.bound if self.atMost else value >= self.bound


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


_BROKERS: tuple[type[Peer], ...] = (FlexiMQ, Nats, Redis, Mosquitto)
_WITH_LIMIT: tuple[type[Peer], ...] = (*_BROKERS, Bare)
_POLICIES = ("disconnect", "drop", "block")
_SOCKETS: tuple[type[Peer], ...] = (Identity, NodeWs)


def _fan(name: str, title: str, work: Fan, over: float | None, peers: tuple[type[Peer], ...] = _BROKERS) -> Scene:
    """A scene of publications, with how many times nats-server's or node's rate is wanted."""
    goals = () if over is None else (Goal(work.figure, over, peers[1].broker),)
    return Scene(name, title, work, peers, goals)


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


#: What is wanted of a client library.
_LIBRARY = (
    Goal(PUBLISHED, 300_000),
    Goal(RECEIVED, 200_000),
    Goal(PUBLISHED, 3.0, "nats-py"),
    Goal(RECEIVED, 3.0, "nats-py"),
    Goal(ASKED, 1.0, "nats-py", atMost=True),
)

SCENES: tuple[Scene, ...] = (
    _fan("1-1-16b", "1 to 1, 16 B", Fan(16), 1.0),
    _fan("1-1-100b", "1 to 1, 100 B", Fan(100), 1.2, _WITH_LIMIT),
    _fan("1-1-1k", "1 to 1, 1 KB", Fan(1024), 1.0),
    _fan("1-1-10k", "1 to 1, 10 KB", Fan(10240), 1.0),
    _fan("1-10", "1 to 10, 100 B", Fan(100, subscribers=10), 3.0, _WITH_LIMIT),
    _fan("1-100", "1 to 100, 100 B", Fan(100, subscribers=100), 3.0, _WITH_LIMIT),
    _fan("4-4", "4 to 4 (pairs), 100 B", Fan(100, pairs=4), 1.0),
    _fan("mixed", "1000 topics in turn, 100 B", Fan(100, topics=1000), 1.0),
    _fan("ws-1-1", "Identity over WebSocket, 1 to 1, 100 B", Fan(100), 0.7, _SOCKETS),
    _fan("ws-1-10", "Identity over WebSocket, 1 to 10, 100 B", Fan(100, subscribers=10), 4.0, _SOCKETS),
    _fan("ws-1-100", "Identity over WebSocket, 1 to 100, 100 B", Fan(100, subscribers=100), 10.0, _SOCKETS),
    Scene(
        "reqrep",
        "Request and reply, one at a time, 100 B",
        RoundTrip(100),
        (FlexiMQ, Nats),
        (Goal("p50, us", 1.0, "nats", atMost=True),),
    ),
    Scene("latency", "Delivery at half of the top rate, 1 to 1, 100 B", Latency(100), _BROKERS),
    Scene("joining", "Connect and join", Joining(), _BROKERS),
    Scene("idle", "Idle joined connections", Idle(), _BROKERS, (Goal("bytes/connection", 15_000, atMost=True),)),
    Scene(
        "blipmq-qos0",
        "BlipMQ, QoS 0: publish, then poll, 100 B",
        Polled(0),
        (BlipMQ,),
        (Goal("in, msg/s", 600_000), Goal("out, msg/s", 400_000)),
    ),
    Scene("blipmq-qos1", "BlipMQ, QoS 1: publish, then poll and acknowledge, 100 B", Polled(1), (BlipMQ,)),
    Scene(
        "minimq",
        "MiniMQ: produce, consume, acknowledge, 100 B",
        Queued(),
        (MiniMQ,),
        tuple(Goal(figure, 200_000) for figure in ("PRODUCE/s", "CONSUME/s", "ACK/s")),
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
