"""The store on NATS: a stream for each shard and one bucket of keys (/explanation/cluster, Store).

The servers have to run with ``sync_interval: always``, or a loss of power takes confirmed messages; a client cannot see
that. The name of the cluster begins the name of each stream, subject and bucket.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar
from uuid import uuid4

from nats.aio.msg import Msg
from nats.errors import Error
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, DeliverPolicy, DiscardPolicy, StorageType, StreamConfig, StreamInfo
from nats.js.errors import APIError, KeyNotFoundError, KeyWrongLastSequenceError, NotFoundError
from nats.js.kv import KeyValue
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from zope.interface import implementer

from fleximq.cluster.interfaces import (
    ELECTION,
    ClusterError,
    ICluster,
    IWatcher,
    NodeRecord,
    Piece,
    Refused,
    Replicas,
    ShardOwner,
    StreamBounds,
    Unknown,
)
from fleximq.cluster.nats.access import SafeClient
from fleximq.cluster.nats.event_loop import EventLoop
from fleximq.cluster.nats.feed import RETRY, StoredMessage, feed

_log = Logger()

#: Seconds until a request without an answer fails.
TIMEOUT = 2.0
#: Bytes a second for which an append has more time: otherwise a large batch would fail in each attempt.
_SLOWEST = 2_000_000
#: A server that was cut off is left after 2 to 3 seconds; nats-py would wait for 4 minutes.
_RECONNECTING = {"max_reconnect_attempts": -1, "reconnect_time_wait": 1, "ping_interval": 1, "max_outstanding_pings": 2}
#: A command tries each server twice at most.
_ONCE = {"max_reconnect_attempts": 1}
#: The error of a stream without room.
_FULL = 10077
#: The errors of a server, and of a cluster of servers, that have no room for a new stream.
_NO_PLACE = 10047, 10005
#: The status after the last message of a direct read.
_END = "204"
#: Our headers: end, next and left of a :class:`Piece`.
_PLACE = "Fx-Place"
_PLACE_BYTES = f"{_PLACE}:".encode()
_EXPECTED = "Nats-Expected-Last-Sequence"
_NODE, _SHARD = "node.", "shard."
#: A message that so many consumers in succession do not deliver is passed over, so that a copy reports the gap.
_MISSED = 12
#: The key with the number of blocks of client ids that were given.
_BLOCKS = "blocks"

T = TypeVar("T")
P = ParamSpec("P")


def _asked(
    request: Callable[Concatenate["NatsCluster", P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["NatsCluster", P], "Deferred[T]"]:
    """Run a method that is called in the reactor's thread on the store's, for :data:`TIMEOUT` seconds at most."""

    @wraps(request)
    def ask(cluster: "NatsCluster", /, *arguments: P.args, **options: P.kwargs) -> "Deferred[T]":
        return cluster._ask(request(cluster, *arguments, **options))

    return ask


@implementer(ICluster)
class NatsCluster:
    """The connection of one node. It connects again for as long as it takes.

    :param name: the name of the cluster: letters, digits and hyphens.
    :param callFromThread: runs a function on the reactor's thread.
    :param room: the largest number of bytes in each stream; a full disk would end JetStream on that server.
    :param options: more arguments of ``nats.connect``, for example credentials.
    """

    maxPayload = 0
    host = ""

    def __init__(
        self,
        urls: Sequence[str],
        name: str,
        callFromThread: Callable[..., object],
        *,
        room: int,
        replicas: int = 3,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._urls = list(urls)
        self._name = name
        self._room = room
        self._replicas = replicas
        self._options = dict(options or {})
        self._loop = EventLoop(callFromThread)
        self._client = SafeClient()
        self._context: JetStreamContext = self._client.jetstream(timeout=TIMEOUT)
        self._keys: KeyValue | None = None
        #: Why the connection failed last.
        self.reason = "they do not answer"

    # -- connecting --------------------------------------------------------------------------------

    def start(self, shards: int = 1) -> "Deferred[None]":
        """Connect, and create the bucket and streams that are missing, for as long as it takes."""
        self._loop.start()
        return self._loop.ask(self._start(shards))

    async def _start(self, shards: int) -> None:
        while True:
            try:
                await _answered(self._connect(shards), 5 * TIMEOUT)
                return
            except Refused as error:
                _log.warn("the cluster cannot be created: {error}", error=error)
                await asyncio.sleep(1)
            except ClusterError as error:
                _log.warn("the cluster's servers do not answer: {error}; {reason}", error=error, reason=self.reason)
                await asyncio.sleep(1)

    def reach(self, create: bool = False) -> "Deferred[None]":
        """Connect to a cluster that exists, or create one of one shard. Fails with :class:`ClusterError` if the servers
        do not answer, or the cluster does not exist; ``reason`` says why. Asks connected servers again while they elect
        leaders.
        """
        return self._attempt(lambda: self._connect(1 if create else 0))

    def names(self) -> "Deferred[Sequence[str]]":
        """Connect, and return the names of all clusters on these servers; fails as :meth:`reach`."""

        async def find() -> Sequence[str]:
            await self._reach()
            answer = json.loads((await self._client.request("$JS.API.STREAM.NAMES", b"{}", TIMEOUT)).data)
            if "error" in answer:
                raise APIError.from_error(answer["error"])
            streams = answer.get("streams") or ()
            names = (each.removeprefix("KV_") for each in streams if each.startswith("KV_"))
            return sorted(name for name in names if f"{name}-0" in streams)

        return self._attempt(find)

    def _attempt(self, attempted: Callable[[], Awaitable[T]]) -> "Deferred[T]":
        """Carry out the first request of a command; repeat it while connected servers elect leaders."""
        self._loop.start()
        self._options |= _ONCE
        self.reason = ""
        return self._loop.ask(self._whileElecting(attempted))

    async def _whileElecting(self, attempted: Callable[[], Awaitable[T]]) -> T:
        clock = asyncio.get_running_loop()
        end = clock.time() + ELECTION
        while True:
            try:
                return await _answered(attempted(), 5 * TIMEOUT)
            except Unknown as error:
                if not self._client.is_connected:
                    raise
                if clock.time() > end:
                    self.reason = f"they elect leaders, or too few of them run ({error})"
                    raise
            await asyncio.sleep(RETRY)

    async def _reach(self) -> None:
        if not self._client.is_connected:
            self._client = SafeClient()
            self._context = self._client.jetstream(timeout=TIMEOUT)
            await self._client.connect(self._urls, error_cb=self._failed, **(_RECONNECTING | self._options))
            self.maxPayload = self._client.max_payload
            self.host = await _ownAddress(self._client.connected_url)

    @property
    def isConnected(self) -> bool:
        """Whether a server is connected; it may have no connection to the others."""
        return self._client.is_connected

    async def _connect(self, shards: int) -> None:
        await self._reach()
        context = self._context
        for shard in range(shards):
            try:
                found = await context.stream_info(self._stream(shard))
            except NotFoundError:
                await self._addStream(shard)
            else:
                await self._enlarge(found, self._room)
        try:
            if not shards:
                await self._info(f"KV_{self._name}")
            self._keys = await context.key_value(self._name)
        except NotFoundError:
            if not shards:
                raise ClusterError(f"they have no cluster named {self._name}") from None
            self._keys = await context.create_key_value(bucket=self._name, replicas=self._replicas, direct=True)
        else:
            if shards:
                await self._enlarge(await context.stream_info(f"KV_{self._name}"), 0, True)

    async def _enlarge(self, found: StreamInfo, room: int, direct: bool = False) -> None:
        """Give a stream the copies and bytes that this node is set to, if it has fewer; another node may want more. A
        stream that was made when the cluster had one server has one copy.

        :param direct: let each server answer from its own copy, for :meth:`lastKnown`.
        """
        config = found.config
        had = config.max_bytes or 0
        copies, limit = max(config.num_replicas or 1, self._replicas), max(had, room) if had > 0 else had
        direct = direct or bool(config.allow_direct)
        if (copies, limit, direct) == (config.num_replicas, had, bool(config.allow_direct)):
            return
        if (copies, limit) != (config.num_replicas, had):
            _log.info(
                "the stream {name} gets {copies} copies and at most {limit} bytes, in place of {had} and {bytes}",
                name=config.name, copies=copies, limit=limit, had=config.num_replicas, bytes=had,
            )  # fmt: skip
        try:
            await self._context.update_stream(config.evolve(num_replicas=copies, max_bytes=limit, allow_direct=direct))
        except APIError as error:
            _log.warn("the stream {name} cannot be changed: {error}", name=config.name, error=error.description)

    async def _addStream(self, shard: int) -> None:
        try:
            await self._context.add_stream(self._configuration(shard))
        except APIError as error:
            if error.err_code not in _NO_PLACE:
                raise
            raise Refused(
                f"the disks of the NATS servers, or their max_file_store, have no room for the {self._room:,} bytes of"
                f" cluster-bytes: {error.description}"
            ) from error

    def _configuration(self, shard: int) -> StreamConfig:
        return StreamConfig(
            name=self._stream(shard),
            subjects=[self._subject(shard)],
            num_replicas=self._replicas,
            storage=StorageType.FILE,
            discard=DiscardPolicy.NEW,
            max_bytes=self._room,
            allow_atomic=True,
        )

    async def _failed(self, error: Exception) -> None:
        self.reason = str(error) or type(error).__name__
        _log.warn("the connection to the cluster's servers: {error}", error=self.reason)

    def stop(self) -> "Deferred[None]":
        return self._loop.ask(_answered(self._client.close(), TIMEOUT)).addBoth(lambda _: self._loop.stop())

    def _stream(self, shard: int) -> str:
        return f"{self._name}-{shard}"

    def _subject(self, shard: int) -> str:
        return f"{self._name}.frames.{shard}"

    def _ask(self, work: Coroutine[Any, Any, T], seconds: float | None = None) -> "Deferred[T]":
        return self._loop.ask(_answered(work, seconds or TIMEOUT))

    @property
    def reconnects(self) -> int:
        return self._client.stats["reconnects"]

    # -- streams -----------------------------------------------------------------------------------

    def append(self, shard: int, expected: int, pieces: Sequence[Piece]) -> "Deferred[int]":
        """See :class:`ICluster`; so with all below."""
        seconds = TIMEOUT + sum(len(piece.data) for piece in pieces) / _SLOWEST
        return self._ask(self._append(shard, expected, pieces, seconds), seconds)

    async def _append(self, shard: int, expected: int, pieces: Sequence[Piece], seconds: float) -> int:
        subject, batch = self._subject(shard), uuid4().hex
        for number, piece in enumerate(pieces, 1):
            headers = {_PLACE: f"{piece.end} {piece.next} {piece.left}"}
            if number == 1:
                headers[_EXPECTED] = str(expected)
            if len(pieces) > 1:
                headers |= {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
            if number < len(pieces):
                await self._client.publish(subject, piece.data, headers=headers)
        if len(pieces) > 1:
            headers["Nats-Batch-Commit"] = "1"
        answer = await self._context.publish(subject, pieces[-1].data, headers=headers, timeout=seconds)
        return answer.seq

    @_asked
    async def slot(self, shard: int, sequence: int) -> Piece | None:
        try:
            found = await self._context.get_msg(self._stream(shard), sequence)
        except NotFoundError:
            return None
        return _piece(found.data or b"", (found.headers or {}).get(_PLACE, ""))

    @_asked
    async def bounds(self, shard: int) -> StreamBounds:
        found = await self._info(self._stream(shard))
        created = int(found.created.timestamp() * 1_000_000) if found.created else 0
        limit = max(0, found.config.max_bytes or 0)
        state, first = found.state, max(1, found.state.first_seq)
        lost = max(0, state.last_seq - first + 1 - state.messages)
        return StreamBounds(created, first, state.last_seq, state.bytes, limit, lost)

    async def _info(self, stream: str, subjects: str | None = None) -> StreamInfo:
        """Return the state of a stream. A server without a leader answers too, from its own copy, which may be old."""
        found = await self._context.stream_info(stream, subjects_filter=subjects)
        if found.cluster is not None and not found.cluster.leader:
            raise Error(f"{stream} has no leader")
        return found

    @_asked
    async def replicas(self, shards: Iterable[int]) -> Mapping[str, Replicas]:
        names = {f"shard {shard}": self._stream(shard) for shard in shards} | {"keys": f"KV_{self._name}"}
        return {what: self._copies(await self._info(name)) for what, name in names.items()}

    def _copies(self, found: StreamInfo) -> Replicas:
        made = found.config.num_replicas or 1
        others = (found.cluster.replicas if found.cluster is not None else None) or []
        current = 1 + sum(bool(peer.current and not peer.offline) for peer in others)
        return Replicas(max(made, self._replicas), made, current)

    @_asked
    async def purge(self, shard: int, first: int) -> None:
        await self._context.purge_stream(self._stream(shard), seq=first)

    def follow(
        self, shard: int, sequence: int, received: Callable[[Sequence[tuple[int, Piece]]], None]
    ) -> Callable[[], None]:
        stream, following, missed = self._stream(shard), sequence, 0

        async def take(messages: Sequence[StoredMessage]) -> bool:
            nonlocal following, missed
            taken: list[tuple[int, Piece]] = []
            isWhole = True
            for message in messages:
                number = message.sequence
                if number > following and (await self._info(stream)).state.first_seq < number:
                    # The connection has lost some, or the files of this consumer's server are damaged.
                    missed += 1
                    if missed < _MISSED:
                        await asyncio.sleep(RETRY)
                        isWhole = False
                        break
                if number >= following:
                    missed = 0
                    taken.append((number, _piece(message.data, _placesIn(message.headers))))
                    following = number + 1
            await self._loop.onReactor(lambda: hand(taken))
            return isWhole

        def hand(taken: Sequence[tuple[int, Piece]]) -> None:
            if taken and not run.cancelled():
                received(taken)

        def begin() -> ConsumerConfig:
            return ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=following)

        run = self._loop.run(feed(self._client, self._context, stream, self._subject(shard), begin, take))

        def stop() -> None:
            run.cancel()

        return stop

    # -- keys --------------------------------------------------------------------------------------

    @_asked
    async def beat(self, node: str, record: NodeRecord) -> None:
        value = {"applied": dict(record.applied), "about": dict(record.about)}
        await self._bucket.put(_NODE + node, json.dumps(value).encode())

    @_asked
    async def nodes(self) -> int:
        """Return the number of keys of nodes, also while none can be read."""
        found = await self._info(f"KV_{self._name}", f"$KV.{self._name}.{_NODE}*")
        return len(found.state.subjects or {})

    @_asked
    async def forget(self, node: str) -> None:
        await self._bucket.delete(_NODE + node)

    @_asked
    async def claim(self, shard: int, owner: ShardOwner) -> None:
        try:
            record = json.dumps({"node": owner.node, "term": owner.term}).encode()
            await self._bucket.update(f"{_SHARD}{shard}", record, last=owner.revision)
        except KeyWrongLastSequenceError as error:
            raise Refused("the owner has changed") from error

    @_asked
    async def nextBlock(self) -> int:
        while True:
            try:
                entry = await self._bucket.get(_BLOCKS)
                number, revision = json.loads(entry.value or b"0"), entry.revision
            except KeyNotFoundError:
                number, revision = 0, 0
            with suppress(KeyWrongLastSequenceError):  # another node counted, or the read was old
                await self._bucket.update(_BLOCKS, json.dumps(number + 1).encode(), last=revision)
                return int(number)

    def watch(self, watcher: IWatcher) -> Callable[[], None]:
        prefix = f"$KV.{self._name}."
        seen: dict[str, int] = {}

        async def take(messages: Sequence[StoredMessage]) -> bool:
            await self._loop.onReactor(lambda: hand(messages))
            return True

        def hand(messages: Sequence[StoredMessage]) -> None:
            for message in messages:
                key, revision = message.subject.removeprefix(prefix), message.sequence
                # A new consumer delivers all keys again, which are no signs of life.
                if not run.cancelled() and revision > seen.get(key, 0):
                    seen[key] = revision
                    if message.data:
                        _tell(watcher, key, json.loads(message.data), revision)
                    elif key.startswith(_NODE):  # the mark of a key that was removed
                        watcher.nodeForgotten(key.removeprefix(_NODE))

        def begin() -> ConsumerConfig:
            return ConsumerConfig(deliver_policy=DeliverPolicy.LAST_PER_SUBJECT)

        run = self._loop.run(feed(self._client, self._context, f"KV_{self._name}", f"{prefix}>", begin, take))

        def stop() -> None:
            run.cancel()

        return stop

    def lastKnown(self, watcher: IWatcher) -> "Deferred[None]":
        """Tell a watcher the keys in the copy of one server; that needs no leader, and they may be old."""
        prefix, latest = f"$KV.{self._name}.", list[Msg]()

        async def read() -> None:
            inbox = self._client.new_inbox()
            subscription = await self._client.subscribe(inbox)
            request = json.dumps({"multi_last": [f"{prefix}>"]}).encode()
            await self._client.publish(f"$JS.API.DIRECT.GET.KV_{self._name}", request, reply=inbox)
            while True:
                message = await subscription.next_msg(TIMEOUT)
                status = (message.headers or {}).get("Status")
                if status is None:
                    latest.append(message)
                elif status == _END:
                    return
                else:
                    raise Error(f"no server gives its copy of the keys (status {status})")

        def tell(_: None) -> None:
            for message in latest:
                if message.data:  # none: the mark of a key that was removed
                    headers = message.headers or {}
                    key, revision = headers["Nats-Subject"].removeprefix(prefix), int(headers["Nats-Sequence"])
                    _tell(watcher, key, json.loads(message.data), revision)

        return self._ask(read(), 2 * TIMEOUT).addCallback(tell)

    # -- questions ---------------------------------------------------------------------------------

    @_asked
    async def ask(self, node: str, question: Mapping[str, Any]) -> Mapping[str, Any]:
        answer = await self._client.request(f"{self._name}.ask.{node}", json.dumps(question).encode(), TIMEOUT)
        found: Mapping[str, Any] = json.loads(answer.data)
        return found

    def answer(self, node: str, answered: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
        async def respond(message: Msg) -> None:
            found: list[Mapping[str, Any]] = []
            question = json.loads(message.data)
            await self._loop.onReactor(lambda: found.append(answered(question)))
            await message.respond(json.dumps(found[0]).encode())

        self._ask(self._client.subscribe(f"{self._name}.ask.{node}", cb=respond)).addErrback(
            lambda failure: _log.warn("this node answers no commands: {error}", error=failure.value)
        )

    @property
    def _bucket(self) -> KeyValue:
        if self._keys is None:
            raise Unknown("the cluster's servers were never reached")
        return self._keys


async def _answered(work: Awaitable[T], seconds: float) -> T:
    """Return the answer to a request; only a stream without room is known to have refused it."""
    try:
        return await asyncio.wait_for(work, seconds)
    except APIError as error:
        if error.err_code == _FULL:
            raise Refused("the stream is full") from error
        raise Unknown(str(error)) from error
    except (TimeoutError, Error, OSError) as error:
        raise Unknown(str(error) or type(error).__name__) from error


async def _ownAddress(server: Any) -> str:
    """Return the address from which this machine reaches a server, without sending to it."""
    loop, place = asyncio.get_running_loop(), (server.hostname, server.port)
    transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=place)
    host: str = transport.get_extra_info("sockname")[0]
    transport.close()
    return host


def _piece(data: bytes, places: str | bytes) -> Piece:
    """Return a message with the value of its header :data:`_PLACE`; without one it gets places that no copy accepts."""
    try:
        end, nextOffset, left = map(int, places.split())
    except ValueError:
        end = nextOffset = left = 0
    return Piece(data, end, nextOffset, left)


def _placesIn(headers: bytes) -> bytes:
    """Return the value of :data:`_PLACE` from the bytes of all headers, no bytes without it."""
    begin = headers.find(_PLACE_BYTES)
    return headers[begin + len(_PLACE_BYTES) : headers.find(b"\r", begin)] if begin >= 0 else b""


def _tell(watcher: IWatcher, key: str, value: Any, revision: int) -> None:
    if key.startswith(_NODE):
        applied = {int(shard): sequence for shard, sequence in value["applied"].items()}
        watcher.nodeChanged(key.removeprefix(_NODE), NodeRecord(applied, value["about"]))
    elif key.startswith(_SHARD):
        owner = ShardOwner(value["node"], value["term"], revision)
        watcher.ownerChanged(int(key.removeprefix(_SHARD)), owner)
