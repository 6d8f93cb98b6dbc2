"""The replicated store that a cluster is built on: streams of messages, and a few keys (/explanation/cluster, Store).

A *shard* is one journal; its stream holds the journal's frames, one commit in one message, or in several that are
stored together or not at all. Everything here may fail, arrive late or twice, and reads may be old; the only rule that
the store never breaks is the expected sequence of :meth:`ICluster.append`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

#: Bytes of a message that are left for its headers.
HEADROOM = 4096
#: The largest number of pieces of one commit.
MOST_PIECES = 1000
#: Seconds within which the servers notice the loss of a leader and elect another.
ELECTION = 15.0
#: Instead of a sequence in a node's key: its copy has more than the stream, so no node may claim the shard.
AHEAD = -1


class ClusterError(Exception):
    """A request to the store failed; the text says why."""


class Refused(ClusterError):
    """The store did not carry out this request and never will. Earlier copies of it may still arrive."""


class Unknown(ClusterError):
    """The store may have carried out the request, or may do so later."""


class Deposed(ClusterError):
    """The stream shows that this node does not own the shard any more: it must stop and answer no client."""


class Piece(NamedTuple):
    """Some of the frames' bytes of one commit, as a message of a stream. ``end`` is the position after the commit's
    last frame, ``next`` the offset after its last record, ``left`` the number of its later pieces.
    """

    data: bytes
    end: int
    next: int
    left: int = 0


class StreamBounds(NamedTuple):
    """The sequences in a stream, from ``first`` to ``last``; none if ``last`` is smaller. ``created`` differs from that
    of a stream that was created in its place. ``bytes`` are those of its messages, ``limit`` the most that it may have,
    0 if there is no limit. ``lost`` is the number of messages between that the store has lost: damaged files.
    """

    created: int
    first: int
    last: int
    bytes: int = 0
    limit: int = 0
    lost: int = 0


class Replicas(NamedTuple):
    """The copies that the store's servers have of a stream, or of the keys: those that it should have, how many there
    are at present, and how many of these are up to date.
    """

    wanted: int
    made: int
    current: int


class ShardOwner(NamedTuple):
    """A shard's owner, "" for none; each has a larger ``term``, each change of the record a larger ``revision``."""

    node: str = ""
    term: int = 0
    revision: int = 0


class NodeRecord(NamedTuple):
    """The record of a node in its key. ``applied`` has, by shard, the last sequence in its copy, if usable, or AHEAD.
    ``about`` is a JSON object with further facts for the other nodes, for example the addresses of its listeners.
    """

    applied: Mapping[int, int]
    about: Mapping[str, Any] = {}


class IWatcher(Interface):
    """Learns of the keys of a cluster."""

    def nodeChanged(node: str, record: NodeRecord) -> None:
        """Learn that a node has written its key."""

    def nodeForgotten(node: str) -> None:
        """Learn that an operator has removed the key of a node."""

    def ownerChanged(shard: int, owner: ShardOwner) -> None:
        """Learn the present record of a shard's owner; older ones may be left out."""


class ICluster(Interface):
    """The connection of one node to the store. All Deferreds fail with :class:`Unknown` after some seconds."""

    maxPayload = Attribute("""The largest number of bytes of a message, headers included.""")
    reconnects = Attribute("""How often the connection to the store was lost and made again.""")
    host = Attribute("""The address of this machine in the network of the store's servers.""")

    def append(shard: int, expected: int, pieces: Sequence[Piece]) -> "Deferred[int]":
        """Append all pieces or none, if ``expected`` is the stream's last sequence; fires with the new last sequence.
        Fails with :class:`Refused` if the stream has no room, with :class:`Unknown` in all other cases; a wrong
        expectation is one of them, since an earlier copy of the same request may have been carried out.
        """

    def slot(shard: int, sequence: int) -> "Deferred[Piece | None]":
        """Read one message. None does not prove that there is none: the answer may be old."""

    def bounds(shard: int) -> "Deferred[StreamBounds]":
        """Return the sequences in the stream; the answer may be old."""

    def follow(
        shard: int, sequence: int, received: Callable[[Sequence[tuple[int, Piece]]], None]
    ) -> Callable[[], None]:
        """Call with sequences and messages from a sequence on, in order, until the returned function is called."""

    def replicas(shards: Iterable[int]) -> "Deferred[Mapping[str, Replicas]]":
        """Return the copies of the streams of these shards, as ``shard N``, and of the ``keys``."""

    def purge(shard: int, first: int) -> "Deferred[None]":
        """Remove all messages before this sequence."""

    def beat(node: str, record: NodeRecord) -> "Deferred[None]":
        """Write a node's key."""

    def forget(node: str) -> "Deferred[None]":
        """Remove a node's key; a node that lives writes it again."""

    def claim(shard: int, owner: ShardOwner) -> "Deferred[None]":
        """Write a shard's owner; fail with :class:`Refused` if ``owner.revision`` is not the present one (0: none)."""

    def ask(node: str, question: Mapping[str, Any]) -> "Deferred[Mapping[str, Any]]":
        """Ask a node a question, and return its answer; both are JSON objects. The question may arrive late."""

    def answer(node: str, answered: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
        """Answer the questions to this node, for as long as the connection exists."""

    def watch(watcher: IWatcher) -> Callable[[], None]:
        """Tell a watcher all keys, and their changes from now on, until the returned function is called."""

    def nextBlock() -> "Deferred[int]":
        """Return a number, from 0 on, that no other request gets."""


class IMeshLink(Interface):
    """Sends messages between the nodes of a cluster, at most once, in the order of each sender."""

    maxPayload = Attribute("""The largest number of bytes of a message.""")

    def start(received: Callable[[bytes], None], connected: Callable[[], None]) -> None:
        """Connect for as long as it takes, also after a loss; ``connected`` is called each time."""

    def send(node: str, data: bytes) -> None:
        """Send to a node, "" for all others; the message is lost while there is no connection."""

    def stop() -> None:
        """Disconnect."""
