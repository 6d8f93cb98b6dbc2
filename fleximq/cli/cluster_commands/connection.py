"""The connection of a command to the NATS servers of a cluster, and the keys of its nodes."""

from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic, time
from typing import TYPE_CHECKING, Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from zope.interface import implementer

from fleximq.cli.command import Argument, Command, Work
from fleximq.cluster.interfaces import ELECTION, ClusterError, IWatcher, NodeRecord, ShardOwner, Unknown
from fleximq.cluster.node_state import NodeState
from fleximq.config.option_table import OPTIONS
from fleximq.config.option_values import read
from fleximq.config.settings import Settings
from fleximq.errors import JournalError, SettingError

if TYPE_CHECKING:
    from fleximq.cluster.nats.store import NatsCluster

T = TypeVar("T")

_SILENCE = 4.0  #: Seconds in which a living node writes its key.
_NAMES = tuple(f"cluster{end}" for end in ("", "-auth", "-ca", "-certificate", "-key", "-name", "-bytes"))


def clusterCommand(name: str, *own: Argument) -> Callable[[Work], Command]:
    """Return a decorator as :func:`command`; errors end the command with one sentence and exit code 1."""

    def run(work: Work, arguments: Namespace) -> int | None:
        try:
            return work(arguments)
        except (ClusterError, JournalError, SettingError) as error:
            raise SystemExit(f"fleximq cluster {name}: {error}") from None

    return lambda work: Command(name, work.__doc__ or "", (*own, _addClusterOptions), partial(run, work))


def _addClusterOptions(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("cluster", "as for the broker")
    group.add_argument("--config", metavar="FILE", help="a settings file of a node; the other options win over it")
    for option in OPTIONS:
        if option.name in _NAMES:
            words = option.words[0].lower() + option.words[1:].rstrip(".")
            action = "append" if option.name == "cluster" else "store"
            group.add_argument(f"--{option.name}", metavar="VALUE", action=action, help=words)


def settingsFrom(arguments: Namespace) -> Settings:
    """Return the settings of the cluster; raises SettingError if one is wrong, or no server is named."""
    values = {} if arguments.config is None else {k: v for k, v in read(arguments.config).items() if k in _NAMES}
    given = {name: getattr(arguments, name.replace("-", "_")) for name in _NAMES}
    settings = Settings.of(values | {name: value for name, value in given.items() if value is not None})
    if not settings.cluster:
        raise SettingError("name the NATS servers with --cluster URL, or a settings file with --config FILE")
    return settings


class Calls:
    """Runs the calls of the connection's thread on this one, while it waits."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[Callable[..., object], tuple[Any, ...]]] = SimpleQueue()

    def add(self, call: Callable[..., object], *arguments: Any) -> None:
        """Run a function while this thread waits; may be called from any."""
        self._queue.put((call, arguments))

    def until(self, holds: Callable[[], object], seconds: float) -> bool:
        """Wait until a condition holds, at most for so many seconds; return whether it does."""
        end = monotonic() + seconds
        while not holds():
            try:
                call, arguments = self._queue.get(timeout=max(0.0, min(0.1, end - monotonic())))
                call(*arguments)
            except Empty:
                if monotonic() >= end:
                    return False
        return True

    def result(self, waited: "Deferred[T]", seconds: float = 30.0) -> T:
        """Wait for a result; raises ClusterError for an error of the store, or if it takes too long."""
        results: list[Any] = []
        waited.addBoth(results.append)
        if not self.until(lambda: results, seconds):
            raise ClusterError("the servers of the cluster do not answer")
        found: T = results[0]
        if isinstance(found, Failure):
            found.raiseException()
        return found


@implementer(IWatcher)
class Survey:
    """The keys of a cluster; ``changes`` counts those of each node."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeRecord] = {}
        self.changes: Counter[str] = Counter()
        self.owners: dict[int, ShardOwner] = {}
        #: The seconds by which the clock of a node is ahead of that of this machine.
        self.clocks: dict[str, float] = {}
        #: The silent nodes that have answered a question.
        self.answering: set[str] = set()
        #: Why the keys cannot be read: then ``nodes`` are those last known, or none. "" if they can be read.
        self.unread = ""

    def nodeChanged(self, node: str, record: NodeRecord) -> None:
        self.nodes[node] = record
        if clock := NodeState.of(record).clock:
            self.clocks[node] = clock - time()
        self.changes[node] += 1

    def nodeForgotten(self, node: str) -> None:
        self.nodes.pop(node, None)
        self.clocks.pop(node, None)
        del self.changes[node]

    def ownerChanged(self, shard: int, owner: ShardOwner) -> None:
        self.owners[shard] = owner

    @property
    def living(self) -> dict[str, NodeRecord]:
        """The nodes that have changed their keys since the first look."""
        return {node: record for node, record in self.nodes.items() if self.changes[node] > 1}

    def setBack(self, shard: int, last: int | None) -> str:
        """Return a sentence if a stream whose last message is ``last`` has less than the copy of a living node, which
        has not noticed it yet; otherwise "".
        """
        ends = {node: record.applied.get(shard) or 0 for node, record in self.living.items()}
        longer = [node for node in sorted(ends) if last is not None and ends[node] > last]
        if not longer:
            return ""
        return (
            f"the stream of shard {shard} ends with message {last}, but the copy of {longer[0]} has {ends[longer[0]]}: "
            "it was set back, or has a new leader; ask again in 10 seconds"
        )

    @property
    def silent(self) -> list[str]:
        """The nodes that have not changed their keys since the first look."""
        return [node for node in self.nodes if self.changes[node] < 2]


def clusterNames(settings: Settings) -> Sequence[str]:
    """Return the names of all clusters on the NATS servers; raises as :func:`connected`."""
    with _cluster(settings) as (calls, cluster):
        return _reached(calls, cluster, cluster.names(), settings)


@contextmanager
def connected(
    settings: Settings, create: bool = False, lastKnown: bool = False
) -> "Iterator[tuple[Calls, NatsCluster, Survey]]":
    """Connect to a cluster, and survey it until all of its living nodes have changed their keys. Ask those that have
    not: while the NATS servers elect leaders, no node can.

    :param create: create it if it does not exist.
    :param lastKnown: if the keys cannot be read, survey those in the copy of one server.

    :raises ClusterError: it cannot be reached, or its keys cannot be read.
    :raises SettingError: nats-py is not installed, or a file with credentials cannot be used.
    """
    with _cluster(settings) as (calls, cluster):
        try:
            _reached(calls, cluster, cluster.reach(create), settings)
            survey = _surveyed(calls, cluster)
        except Unknown as error:
            if not (lastKnown and cluster.isConnected):
                raise
            survey = Survey()
            survey.unread = str(error)
            with suppress(ClusterError):
                calls.result(cluster.lastKnown(survey))
        _askSilent(calls, cluster, survey)
        if not lastKnown:  # a node that answers will change its key
            calls.until(lambda: survey.answering.isdisjoint(survey.silent), ELECTION)
        yield calls, cluster, survey


def _surveyed(calls: Calls, cluster: "NatsCluster") -> Survey:
    survey, number = Survey(), calls.result(cluster.nodes())
    stop = cluster.watch(survey)
    if not number or calls.until(lambda: survey.living, ELECTION):
        calls.until(lambda: survey.nodes and not survey.silent, _SILENCE)
    if number and not survey.nodes:
        stop()
        raise Unknown(f"the keys of {number} nodes are not delivered")
    return survey


def _askSilent(calls: Calls, cluster: "NatsCluster", survey: Survey) -> None:
    """Ask the silent nodes for their states, which may be newer than their keys."""
    asked = {node: cluster.ask(node, {"do": "state"}) for node in survey.silent}
    for node, waited in asked.items():
        with suppress(ClusterError):
            answer = calls.result(waited)
            survey.answering.add(node)
            if "about" in answer:  # not by older versions
                about = {**survey.nodes[node].about, **answer["about"]}
                survey.nodes[node] = NodeRecord({int(k): v for k, v in answer["applied"].items()}, about)


@contextmanager
def _cluster(settings: Settings) -> "Iterator[tuple[Calls, NatsCluster]]":
    try:
        from fleximq.cluster.nats.access import connectOptions  # load slowly
        from fleximq.cluster.nats.store import NatsCluster
    except ImportError as error:
        raise SettingError(f"cluster needs {error.name}: pip install '.[cluster]' in a clone adds it") from error
    calls = Calls()
    servers, tls = settings.cluster, (settings.clusterCa, settings.clusterCertificate, settings.clusterKey)
    cluster = NatsCluster(
        servers, settings.clusterName, calls.add, room=settings.clusterBytes,
        replicas=1 if len(servers) == 1 else 3, options=connectOptions(servers, settings.clusterAuth, *tls),
    )  # fmt: skip
    try:
        yield calls, cluster
    finally:
        calls.result(cluster.stop())


def _reached(calls: Calls, cluster: "NatsCluster", reaching: "Deferred[T]", settings: Settings) -> T:
    try:
        return calls.result(reaching)
    except ClusterError as error:
        # Otherwise the reason may be that of a server which failed before another one answered.
        reason = cluster.reason if isinstance(error, Unknown) else ""
        raise type(error)(f"{', '.join(settings.cluster)}: {reason or error}") from error
