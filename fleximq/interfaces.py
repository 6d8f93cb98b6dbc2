"""The interfaces through which the rooms call each other, limited to the methods that are really called."""

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from zope.interface import Attribute, Interface

from fleximq.values.message import Message

if TYPE_CHECKING:  # a plug-in file loads this module, and should load no more than it needs
    from fleximq.values.connection_load import ConnectionLoad
    from fleximq.values.records import (
        BacklogSize,
        OnCommitted,
        OnStaged,
        PublishedRun,
        Run,
        SegmentState,
        StoredBatch,
        TopicBounds,
    )
    from fleximq.values.state_records import StateRecord


class ISource(Interface):
    """Extracts the messages from a run's body; one per envelope, made by the publisher's dialect, such as
    :class:`fleximq.broker.envelope.MessageSource`.
    """

    def messages(body: Any) -> Sequence[Message]:
        """Return the messages of a run, in order."""

    def queued(body: Any, first: int) -> Sequence[Message]:
        """Return the same messages for a queue, with neighbouring offsets from ``first`` on, unless it is 0."""

    def size(body: Any, count: int) -> int:
        """Return the bytes of the ``count`` messages of a run, as the bounds of queues count them."""

    def run(body: Any) -> "Run":
        """Return the run as the journal stores it: payloads in the publisher's form, and headers."""

    def pick(body: Any, places: Sequence[int]) -> Any:
        """Return a body with only the messages at these indexes (ascending, at least one)."""


class IForm(Interface):
    """The form in which a group of subscribers receives deliveries. A run is rendered once per form."""

    def render(envelope: Any, body: Any, count: int) -> Any:
        """Return the object that each subscriber of this form receives for a run of ``count`` messages.

        ``envelope`` is the :class:`fleximq.broker.envelope.Envelope` that they share, ``body`` is as in
        :class:`ISource`.
        """


class ISubscriber(Interface):
    """Receives the publications of a topic: a connection or a queue."""

    form = Attribute("""The :class:`IForm` of its deliveries; subscribers are grouped by its identity.""")

    def deliver(rendered: Any, count: int) -> None:
        """Receive one run in the subscriber's form. Never raises, never waits, never calls the broker."""


class ISubscriberProxy(ISubscriber):
    """A subscriber that replaces another one in some topics."""

    def accepts(topic: Any) -> bool:
        """Return whether publications to this topic go to this proxy instead of the subscriber it replaces."""


class IGuard(Interface):
    """A subscriber that may refuse a publication because it must not lose one."""

    def admits(count: int, size: int) -> str | None:
        """Return None if this many messages and bytes fit, else a short reason."""


class IPeer(ISubscriber):
    """A connection that receives direct messages: REQ, REP, NOTIF and BCAST (the FlexiMQ dialect)."""

    def forward(message: Any) -> None:
        """Send a message made by another peer's dialect; the broker does not read it."""

    def receiveBroadcast(message: Any) -> None:
        """Send a broadcast; a peer that reads too slowly may miss it."""

    def requestFailed(requestId: str, path: str, status: int, words: str) -> None:
        """Report that this peer's request ``requestId`` to ``path`` will not be answered (502, 504)."""

    def requestDone() -> None:
        """Report that one of this peer's requests was answered or given up, after its answer was sent."""


class IBrokerObserver(Interface):
    """Receives the events of the broker: for metrics, audit, presence. Its exceptions are logged and ignored."""

    def clientJoined(client: Any) -> None:
        """A :class:`fleximq.broker.envelope.ConnectedClient` was given its id."""

    def clientLeft(client: Any, reason: str) -> None:
        """A client disconnected; ``reason`` is a short constant phrase, suitable as a counter's label."""

    def topicCreated(name: str) -> None:
        """A topic was created by its first use."""

    def counted(event: str, number: int) -> None:
        """An event occurred ``number`` times, e.g. ``"dropped: queue full"``."""


class IOperator(Interface):
    """What the process of a broker does for its operators, whose requests arrive by the broker's paths and the web."""

    def reload() -> Mapping[str, Any]:
        """Read the settings again, and return the names of ``changed`` ones and of those that need a ``restart``.

        :raises Conflict: they are invalid; nothing changed.
        """

    def perform(act: str, arguments: Mapping[str, Any], by: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Perform ``kick``, ``ban`` or ``unban`` against clients, or list the ``bans``.

        Return the arguments that the act has read, checked, for other nodes of a mesh, and its answer.

        :param by: the name of the operator.
        :raises BadRequest: an argument is wrong.
        :raises NoCapacity: there are too many bans.
        """


class IRecordWatcher(Interface):
    """Receives each run that passes through the journal. Its exceptions are logged and ignored."""

    def appended(envelope: Any, body: Any, count: int) -> None:
        """A run is about to be appended to the journal."""

    def decided(envelope: Any, body: Any, count: int, reason: str | None) -> None:
        """The run was committed and will be delivered next (reason None), or it was refused.

        A committed run's envelope has the offset of its first message; ``body`` is the object given to ``appended``.
        """


class IQueueWatcher(Interface):
    """Learns of the deliveries of named queues to consumers with a prefetch, and of their ends. Its exceptions are
    logged and ignored.
    """

    def delivered(queue: str, client: Any, deliveries: Any) -> None:
        """Deliveries are about to be sent to a client: a sequence of
        :class:`~fleximq.broker.envelope.QueueDelivery`.
        """

    def settled(queue: str, client: Any, acks: Any, retries: Any, rejects: Any) -> None:
        """A client has settled deliveries: tags, pairs of tag and delay, and pairs of tag and words; perhaps some that
        were not its own.
        """

    def leaseEnded(queue: str, client: Any, tag: int) -> None:
        """The lease of a client's delivery has ended; it has returned to the queue, or is a dead letter."""

    def left(queue: str, client: Any) -> None:
        """A client consumes no longer; its unsettled deliveries have returned to the queue."""


class IRights(Interface):
    """The rights of a client. The values of ``action`` are those of :class:`fleximq.rights.Action`."""

    limits = Attribute("""The :class:`fleximq.limits.OwnLimits` of its principal.""")

    def may(action: str, name: str) -> bool:
        """Return whether the action is permitted on exactly this topic or path. Called often, so results are cached."""

    def mayMatch(action: str, pattern: str) -> bool:
        """Return whether the action is permitted on at least one topic that the pattern can match."""

    def mayAll(action: str) -> bool:
        """Return whether the action is permitted on all names except those that begin with ``$``."""

    def forClient(clientId: int) -> "IRights":
        """Return these rights for the client with this id; mostly this object itself."""


class IConversation(Interface):
    """The session of a connection, as far as changes of a client's rights and operators concern it."""

    def rightsChanged(lost: Sequence[str]) -> None:
        """Discard cached permissions, and notify the client of the subscriptions it has just lost."""

    def refusal() -> str | None:
        """Return why the peer may not connect at all, with any credentials, or None."""

    def expel(error: Any) -> None:
        """Answer a :class:`fleximq.errors.BrokerError` in the dialect's words and close the connection."""

    def load() -> "ConnectionLoad":
        """Return the traffic of the connection, and the reasons for which it is slow."""


class IAdmission(Interface):
    """Decides who may connect to one listener, and as which principal. Its answers change on reload."""

    required = Attribute("""Whether credentials are required.""")

    def refusal(address: Any) -> str | None:
        """Return the sentence that refuses a peer at this address, whatever its credentials; None if it may try."""

    def admit(credentials: Any, address: Any) -> Any:
        """Return a :class:`fleximq.security.principal.Admitted`, or a Deferred of one if credentials must be checked;
        count wrong attempts of the peer's address.

        ``credentials`` are one of :mod:`fleximq.security.credentials`, or None if the peer sent none. It raises, or the
        Deferred fails with, Unauthorized (none, or wrong ones), AuthenticationFailed (a kind that no method checks),
        JoinRejected (refused by a policy) or NoCapacity (they cannot be checked now).
        """

    def renewed(admitted: Any) -> Any:
        """Return an earlier admission with today's roles and rights; raises Unauthorized if it would be refused now."""


class IJournalAppend(Interface):
    """The part of a journal that stores runs and state records.

    All methods of a journal are called on the reactor's thread, and call back on it.
    """

    appended = Attribute("""The number of the last appended run; they count from 1.""")
    decided = Attribute("""The number of the last run that was committed or refused; all before it were too.""")
    time = Attribute("""When the last run was appended, in microseconds since 1970; 0 in memory.""")
    overloaded = Attribute("""Whether so many bytes wait for the disk that publishers should not be read.""")

    def append(topic: str, publisher: int, name: str, dialect: str, run: "Run", committed: "OnCommitted") -> int:
        """Append a run, and return its number.

        ``committed(offset, None)`` is called after the commit, with the offset of its first message (0 in memory), or
        ``committed(0, reason)`` after a failure, perhaps before this returns. Runs are committed in order.

        :param publisher: the publisher's client id; ``name`` is its sender name.
        :raises NotKept: the journal accepts nothing at present; then ``committed`` is not called.
        """

    def tellCurrent(use: Callable[["IJournalAppend"], None]) -> None:
        """Call with the journal that stores runs, now and after each change of it: the hot path appends there directly.
        It is this journal, or the one to which this journal passes its calls.
        """

    def whenCommitted(call: Callable[[], None], number: int | None = None) -> None:
        """Call when this run, or all so far, with all earlier state records, is committed or refused, at once if none
        is pending. Calls are in order with those of ``committed``.
        """

    def whenRelieved(call: Callable[[], None]) -> None:
        """Call when ``overloaded`` is False, perhaps at once."""

    def appendState(event: "StateRecord") -> None:
        """Append a state record after the runs so far, without a report of its commit."""


class IJournalRead(Interface):
    """The part of a journal that reads committed records. Offsets count messages from 1."""

    end = Attribute("""The offset after the last committed message.""")

    def fetch(offsets: Sequence[int], most: int, found: Callable[[Sequence[Message]], None]) -> None:
        """Read messages with these offsets, in order, up to about ``most`` bytes, at least one, without lost messages:
        an empty list means that all of them are lost.
        """

    def fetchRecords(offsets: Sequence[int], most: int, found: Callable[["Sequence[StoredBatch]", int], None]) -> None:
        """Read the records with these ascending offsets, up to about ``most`` bytes, at least one, without lost ones.

        ``found`` receives them, and how many of the offsets were read.
        """

    def read(
        offset: int, wanted: Callable[[str], bool], most: int, found: Callable[["Sequence[StoredBatch]", int], None]
    ) -> None:
        """Read committed records from an offset on, about ``most`` bytes, of the topics that ``wanted`` selects.

        ``found`` receives them and the offset for the next call: ``end`` after the last one, the same offset again if
        the journal could not be read.
        """

    removals = Attribute("""The number of entries of :meth:`removedSince` so far.""")

    def bounds() -> "Mapping[str, TopicBounds]":
        """Return the bounds of each topic that has messages: always the same mapping, for look-ups."""

    def segmentStates() -> "Sequence[SegmentState]":
        """Return the state of each file, oldest first."""

    def topics(limit: int, start: str = "", before: str = "") -> list[str]:
        """Return the first topics with messages, in order, from ``start`` on and less than ``before`` if given."""

    def removedSince(number: int, limit: int) -> tuple[int, Sequence[tuple[str, int]]]:
        """Return topics that lost their oldest messages, each with the last removed offset, in order of removal.

        At most ``limit`` from this number on, and the number of the next; the first is 0. An empty name means any
        topic: the list is bounded.
        """

    def backlogFrom(offset: int) -> "BacklogSize":
        """Return the approximate number of records and bytes from an offset on."""

    def offsetAt(time: int, found: Callable[[int], None]) -> None:
        """Find the first offset that was appended at this time (microseconds since 1970) or later, else ``end``."""

    def advance(
        start: int, end: int, records: int | None, size: int | None, found: Callable[[int, int, int], None]
    ) -> None:
        """Find the offset after at most so many records and bytes from ``start``, at least one record; None: unlimited.

        ``found`` receives the offset and the numbers of records and bytes; the same offset again if the journal could
        not be read. The result may be smaller than requested.
        """

    def readBytes(position: int, most: int, found: Callable[[int, bytes | memoryview, int], None]) -> None:
        """Read complete frames: ``found`` gets the position of the first, their bytes, perhaps a view, and the
        journal's end.
        """


class IJournalStage(Interface):
    """The part of a journal that stores records invisibly until a transaction publishes them."""

    def stage(query: str, batch: int, part: str, runs: "Sequence[PublishedRun]", found: "OnStaged") -> None:
        """Stage runs; ``found`` receives a token, or None and the reason. Tokens joined by commas are one token."""

    def commitStaged(query: str, batch: int, tokens: Sequence[str], committed: "OnCommitted") -> None:
        """Publish staged records once per query and batch, and report the first offset; raises NotKept."""

    def abortStaged(query: str, batch: int) -> None:
        """Discard the staged records of a batch."""

    def stagedTopics(query: str, batch: int) -> set[str]:
        """Return the topics of a batch's staged records."""


class IJournal(IJournalAppend, IJournalRead, IJournalStage):
    """Stores durable publications: on disk, or volatile in memory."""

    onDisk = Attribute("""Whether its records survive the process.""")
    id = Attribute("""The journal's unique id, hexadecimal; "" in memory.""")
    commits = Attribute("""The :class:`fleximq.journal.writing.commit.Commits`: durations and sizes of its commits.""")

    def reopen(found: Callable[[str | None], None]) -> None:
        """Try to accept runs again after a fault; ``found`` receives None, or the reason of a failure."""

    def health() -> Mapping[str, Any]:
        """Return ``state`` ("ok" or "read-only"), ``reason``, and the losses found at opening."""


class IQueueState(Interface):
    """The broker's side of a journal's checkpoints and retention."""

    def snapshot() -> Any:
        """Return the state for a restart after the commits so far, as values of MessagePack that never change."""

    def lags() -> bool:
        """Tell whether committed records have yet to be delivered to the queues: a snapshot would lack them."""

    def needed() -> "Mapping[str, int | array[int]]":
        """Return, by topic, the lowest offset that a queue still needs, or an ``array("Q")`` of the offsets of single
        records, in any order.
        """

    def reading() -> Mapping[str, int]:
        """Return the next offset of each consumer group; these do not delay retention."""

    def begun() -> None:
        """The journal stores records from now on."""


class IRecoveredState(Interface):
    """The state of the broker that a journal has when it is opened: the last snapshot, and access to the later log."""

    snapshot = Attribute("""The last snapshot, None if there is none.""")
    clean = Attribute("""Whether the last stop was orderly, so that all state records were written.""")

    def replay(batches: Callable[["StoredBatch"], None], notes: Callable[["StateRecord"], None]) -> None:
        """Pass all records and state records after the snapshot, in order."""


class IDialect(Interface):
    """A dialect for listeners, a plug-in of Twisted, such as :class:`fleximq.plugin.Dialect`.

    A connection on a port that several dialects share belongs to a plug-in if it begins with one of ``beginnings``.
    These must differ from the first bytes of the broker's own dialects, HTTP included.
    """

    name = Attribute("""The part before the ``+`` in ``--listen``: lower-case letters, digits and underscores.""")
    beginnings = Attribute("""First bytes, as a tuple of bytes; empty: only for listeners that name the dialect.""")
    title = Attribute("""Its name on the welcome page, "" to stay off that page.""")
    purpose = Attribute("""Its purpose, in a few words for the welcome page.""")
    reach = Attribute("""How to reach it, for the same page; ``{stream}`` and ``{web}`` stand for addresses.""")

    def stream(context: Any) -> Any:
        """Return the factory of byte streams for a :class:`fleximq.dialects.context.ListenerContext`, or None."""

    def webSocket(context: Any) -> Any:
        """Return the factory of its WebSockets, None if it has none; clients select it by its name as subprotocol."""


class IExtensionContext(Interface):
    """The parts of the broker that an extension may use. Its registrations end when it stops."""

    broker = Attribute("""The :class:`fleximq.broker.broker.Broker`, to join it as a client or to ask it.""")
    settings = Attribute("""The :class:`fleximq.config.settings.Settings` in effect.""")
    reactor = Attribute("""The reactor, for its timers and threads.""")

    def observe(observer: Any) -> None:
        """Register an :class:`IBrokerObserver`; its exceptions are logged."""

    def wiretap(subscriber: Any, pattern: str) -> None:
        """Deliver a copy of matching publications to an :class:`ISubscriber`, see ``Broker.wiretap``."""

    def watch(watcher: Any) -> None:
        """Register an :class:`IRecordWatcher`; its exceptions are logged."""

    def watchQueues(watcher: Any) -> None:
        """Register an :class:`IQueueWatcher` for consumers from now on; its exceptions are logged."""

    def connect(rights: Any, name: str | None = None, prefetch: int = 64 << 20, codec: Any = None) -> Any:
        """Return a :class:`fleximq.in_process.client.InProcessClient`, which ends when the extension stops.

        :param rights: the name of a principal, whose permissions it has, also after a reload; or an :class:`IRights`,
            :data:`fleximq.rights.EVERYTHING` for all.
        :param name: the name by which others can reach the client, and all others of that name.
        :param prefetch: bytes that may be unread in each subscription.
        :param codec: how values are encoded, a :class:`fleximq.client.settings.Codec`; MessagePack by default.
        :raises SettingError: the principal or the client cannot have this name; or NotPermitted: the client may not.
        :raises NoCapacity: the broker or the principal has the maximum number of clients; JoinRejected: it is banned.
        """

    def factory(dialect: str = "") -> Any:
        """Return a factory of connections (``IProtocolFactory``) for any server endpoint of Twisted.

        Its clients are admitted, limited and counted as those of the option ``listen``. Without a dialect's name it
        accepts all dialects, and HTTP. The caller opens the port and closes it.

        :raises SettingError: the dialect does not exist.
        """


class IBrokerExtension(Interface):
    """A service that runs with the broker, such as :class:`fleximq.plugin.Extension`; a plug-in for ``--extension``."""

    name = Attribute("""The name that enables it: lower-case letters, digits and underscores.""")
    words = Attribute("""Its purpose, in one sentence.""")

    def configure(options: Mapping[str, object]) -> Any:
        """Check the options written for the extension, and return them in a form of its own.

        Options of the command line are text (True where they have no value), those of a TOML file are its values. It
        opens and starts no resource.

        :raises fleximq.errors.SettingError: with one sentence that names the fault.
        """

    def makeService(context: Any, configuration: Any) -> Any:
        """Return the service, an ``IService``, which begins its work when it is started.

        If starting it raises :exc:`fleximq.errors.SettingError`, the broker does not start either; after any other
        exception the broker runs without it. ``context`` is an :class:`IExtensionContext`.
        """
