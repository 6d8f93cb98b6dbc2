"""The interfaces through which the rooms meet, kept to the few methods that are really called."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from zope.interface import Attribute, Interface

from fleximq.values.message import Message


class ISource(Interface):
    """Knows how to take the messages out of a run's body; one per envelope, made by the publisher's dialect."""

    def messages(body: Any) -> Sequence[Message]:
        """Return the messages of a run, in order. ``body`` is what the dialect gave to ``Broker.publish``."""

    def pick(body: Any, places: Sequence[int]) -> Any:
        """Return a body that holds only the messages at these places (ascending, at least one)."""


class IRunSource(ISource):
    """A source with something quicker for the journal than its messages; one that is none is asked for those."""

    def run(body: Any) -> Any:
        """Return a run as a :class:`fleximq.values.records.Run`: payloads in the publisher's form, and headers.

        A header is a MessagePack map without the topic, or no bytes where nothing else is to be kept.
        """


class IForm(Interface):
    """The shape in which a group of subscribers takes its deliveries. A run is rendered once per form."""

    def render(envelope: Any, body: Any, count: int) -> Any:
        """Return what each subscriber of this form is handed for this run.

        :param envelope: the :class:`fleximq.broker.envelope.Envelope` that all messages of the run share.
        :param body: the run as its publisher's dialect gave it.
        :param count: the number of messages in it, at least 1.
        """


class ISubscriber(Interface):
    """Somebody who takes the publications of a topic: a connection or a queue."""

    form = Attribute("""The :class:`IForm` in which it takes them; subscribers are grouped by its identity.""")

    def deliver(rendered: Any, count: int) -> None:
        """Take one run in the subscriber's form. Never raises, never waits, never calls the broker."""


class ISubscriberProxy(ISubscriber):
    """A subscriber that takes another's place in some topics."""

    def accepts(topic: Any) -> bool:
        """Tell whether what is published to this topic comes this way, instead of to the one whose place it takes."""


class IGuard(Interface):
    """A subscriber that may refuse a publication, because it must not lose one."""

    def admits(count: int, size: int) -> str | None:
        """Return None if so many messages with so many bytes in them fit, else a short reason."""


class IPeer(ISubscriber):
    """A connection that takes direct messages: REQ, REP, NOTIF and BCAST (the FlexiMQ dialect)."""

    def forward(message: Any) -> None:
        """Send on a message that another peer's dialect made; the broker does not look inside."""

    def receiveBroadcast(message: Any) -> None:
        """Send on a broadcast; a peer that reads too slowly may miss it."""

    def requestFailed(id: str, path: str, status: int, words: str) -> None:
        """Say that this peer's request ``id`` to ``path`` will not be answered (502, 504)."""

    def requestDone() -> None:
        """Say that one of this peer's requests was answered or given up, after its answer was sent."""


class IBrokerObserver(Interface):
    """Is told what happens in the broker: metrics, audit, presence. What it raises is logged and hurts nobody."""

    def clientJoined(client: Any) -> None:
        """A :class:`fleximq.broker.envelope.ConnectedClient` was given its id."""

    def clientLeft(client: Any, reason: str) -> None:
        """A client is gone; ``reason`` is a short constant phrase, fit for counting."""

    def topicCreated(name: str) -> None:
        """A topic came into being with its first use."""

    def counted(event: str, number: int) -> None:
        """Something worth counting happened ``number`` times, e.g. ``"dropped: queue full"``."""


class IRecordWatcher(Interface):
    """Is told what goes through the journal, run by run. What it raises is logged and hurts nobody."""

    def appended(envelope: Any, body: Any, count: int) -> None:
        """A run is about to be given to the journal."""

    def decided(envelope: Any, body: Any, count: int, reason: str | None) -> None:
        """It was committed, and will be delivered next (None), or it was not.

        :param envelope: with the offset of the first message, if it was.
        :param body: the very object that ``appended`` was given.
        """


class IRights(Interface):
    """What a client may do. The words for ``action`` are those of :class:`fleximq.rights.Action`."""

    def may(action: str, name: str) -> bool:
        """Tell whether this may be done to a topic or path of this very name. Called often, so answers are kept."""

    def mayMatch(action: str, pattern: str) -> bool:
        """Tell whether a subscription to a pattern is worth making: something it can match may be subscribed to."""

    def mayAll(action: str) -> bool:
        """Tell whether this may be done to every name there can be, but for those that begin with ``$``."""


class IConversation(Interface):
    """A client's side of the broker that hears what becomes of its rights: the session of its connection."""

    def rightsChanged(lost: Sequence[str]) -> None:
        """Forget what was allowed before, and tell the client of the subscriptions that it has just lost."""

    def refusal() -> str | None:
        """Return why the peer may not be here at all today, whatever it shows, or None."""

    def expel(error: Any) -> None:
        """Answer a :class:`fleximq.errors.BrokerError` in the dialect's words and close the connection."""


class IAdmission(Interface):
    """Decides who may come in by one listener, and as whom. Its answers change when the settings are read again."""

    required = Attribute("""Whether nobody comes in without credentials.""")

    def refusal(address: Any) -> str | None:
        """Return the sentence with which a peer at this address is turned away whatever it shows, or None."""

    def admit(credentials: Any, address: Any) -> Any:
        """Return a Deferred of :class:`fleximq.security.principal.Admitted`.

        :param credentials: one of :mod:`fleximq.security.credentials`, or None if the peer showed none.
        :param address: where it comes from; its wrong attempts are counted.

        It fails with Unauthorized (none, or wrong ones), AuthenticationFailed (of a kind that nothing here checks),
        JoinRejected (kept out by policy) or NoCapacity (they cannot be checked now).
        """

    def renewed(admitted: Any) -> Any:
        """Return who was admitted a while ago as it would be admitted now.

        :raises Unauthorized: it would not be any more.
        """


class IJournal(Interface):
    """What keeps durable publications. The volatile one lives in memory; the one on disk takes its place.

    All methods are called on the reactor's thread, and call back on it. Offsets count messages from 1.
    """

    onDisk = Attribute("""Whether what is kept outlives the process.""")
    id = Attribute("""What tells it from other journals, hexadecimal; "" in memory.""")
    appended = Attribute("""The number of the last run that was appended; they count up from 1.""")
    decided = Attribute("""The number of the last run that was committed or refused; all before it were too.""")
    overloaded = Attribute("""Whether so much waits for the disk that those who publish should not be read.""")
    end = Attribute("""The offset behind the last message that was committed.""")

    def append(envelope: Any, body: Any, count: int, committed: Callable[[int, str | None], None]) -> int:
        """Keep a run, and return its number.

        ``committed(offset, None)`` is called when it is safe, with the offset of its first message (0 in memory), or
        ``committed(0, reason)`` when it is not, perhaps before this returns. Runs are committed in the order in which
        they were appended.

        :raises NotKept: nothing can be kept now; then ``committed`` is not called.
        """

    def whenCommitted(call: Callable[[], None], number: int | None = None) -> None:
        """Call when the run of this number, or all so far, and what was noted before, is committed or refused.

        At once if nothing is pending. Calls come in order with those of ``committed``.
        """

    def whenRelieved(call: Callable[[], None]) -> None:
        """Call once ``overloaded`` is False; at once if it is."""

    def appendState(event: Any) -> None:
        """Keep one of the notes of :mod:`fleximq.values.records`, behind what was appended so far; nobody waits for
        it."""

    def fetch(offsets: Sequence[int], most: int, found: Callable[[list[Message]], None]) -> None:
        """Read messages back, in order, until they have about ``most`` bytes, at least one.

        Those that are lost are left out: an empty list says that all of these offsets are.
        """

    def read(
        offset: int, wanted: Callable[[str], bool], most: int, found: Callable[[Sequence[Any], int], None]
    ) -> None:
        """Read what was committed from an offset on, of topics that are wanted, about ``most`` bytes.

        ``found`` is given :class:`fleximq.values.records.StoredBatch` objects and the offset to go on from: ``end``
        after the last one, the same offset again if the journal could not be read.
        """

    def bounds() -> Mapping[str, Any]:
        """Return the :class:`fleximq.values.records.TopicBounds` of each topic that has messages."""

    def backlogFrom(offset: int) -> Any:
        """Return how much stands from an offset on, about: :class:`fleximq.values.records.BacklogSize`."""

    def offsetAt(time: int, found: Callable[[int], None]) -> None:
        """Find the first offset that was appended at this time (microseconds since 1970) or later, else ``end``."""

    def advance(
        start: int, end: int, records: int | None, size: int | None, found: Callable[[int, int, int], None]
    ) -> None:
        """Find how far so many records and so many bytes go from an offset on, at least one record; None: all.

        Gives the offset up to which they go, how many records and how many bytes these are; the same offset again if
        the journal could not be read. It may be less than what was asked for, but never nothing before ``end``.
        """

    def readBytes(position: int, most: int, found: Callable[[int, bytes | memoryview, int], None]) -> None:
        """Read whole frames: gives the position of the first, their bytes, and the position where all ends.

        The bytes may be a view of more, so that they need not be copied.
        """

    def stage(query: str, batch: int, part: str, run: Any, found: Callable[[str | None, str | None], None]) -> None:
        """Keep messages that nobody sees yet; gives a token, or None and the reason."""

    def commitStaged(
        query: str, batch: int, tokens: Sequence[str], committed: Callable[[int, str | None], None]
    ) -> None:
        """Publish what was staged under these tokens, once for each query and batch; gives the first offset."""

    def abortStaged(query: str, batch: int) -> None:
        """Forget what was staged for a batch."""

    def stagedTopics(query: str, batch: int) -> set[str]:
        """Return the topics of what is staged for a batch."""

    def reopen(found: Callable[[str | None], None]) -> None:
        """Try to keep things again after a fault; gives None, or why that cannot be."""

    def health() -> Mapping[str, Any]:
        """Return ``state`` ("ok" or "read-only"), ``reason``, and what was lost or cut off when it was opened."""


class IDialect(Interface):
    """A dialect that listeners can speak; found as a plug-in of Twisted. :class:`fleximq.plugin.Dialect` is one.

    A connection on a port that several dialects share is given to a plug-in if it begins with one of ``beginnings``.
    They may not be what the dialects of the broker itself, HTTP included, can begin with.
    """

    name = Attribute("""What stands before the ``+`` in ``--listen``: lower-case letters, digits and underscores.""")
    beginnings = Attribute("""First bytes, as a tuple of bytes; empty: it is only spoken where a listener names it.""")
    title = Attribute("""Its name on the welcome page, "" to stay off that page.""")
    purpose = Attribute("""What it is for, in a few words for the welcome page.""")
    reach = Attribute("""How to reach it, for the same page; ``{stream}`` and ``{web}`` stand for addresses.""")

    def stream(context: Any) -> Any:
        """Return the factory of its connections on byte streams, None if it is not spoken there.

        :param context: a :class:`fleximq.dialects.context.Context`, one for each listener.
        """

    def webSocket(context: Any) -> Any:
        """Return the factory of its WebSockets, None if it has none; they are asked for by its name as subprotocol."""


class IExtensionContext(Interface):
    """What an extension is given of the broker. What it registers here is taken back when it stops."""

    broker = Attribute("""The :class:`fleximq.broker.broker.Broker`, to join it as a client or to ask it.""")
    settings = Attribute("""The :class:`fleximq.config.settings.Settings` in effect.""")
    reactor = Attribute("""The reactor, for its timers and threads.""")

    def observe(observer: Any) -> None:
        """Tell an :class:`IBrokerObserver` what happens from now on; what it raises is logged."""

    def tap(subscriber: Any, pattern: str) -> None:
        """Bring a copy of what is published to an :class:`ISubscriber`, see ``Broker.tap``."""

    def watch(watcher: Any) -> None:
        """Tell an :class:`IRecordWatcher` what goes through the journal from now on; what it raises is logged."""


class IBrokerExtension(Interface):
    """A service that runs beside the broker; found as a plug-in of Twisted, turned on by ``--extension NAME``.

    :class:`fleximq.plugin.Extension` is one.
    """

    name = Attribute("""What turns it on: lower-case letters, digits and underscores.""")
    words = Attribute("""What it does, in one sentence.""")

    def configure(options: Mapping[str, object]) -> Any:
        """Check the options that were written for it, and return them in a form of its own.

        Options of the command line are text (True where they have no value), those of a TOML file are its values.
        Nothing is opened or begun here.

        :raises fleximq.errors.SettingError: with one sentence that says what is wrong.
        """

    def makeService(context: Any, configuration: Any) -> Any:
        """Return the service, an ``IService``, which begins its work when it is started.

        If it raises :exc:`fleximq.errors.SettingError` when it is started, the broker does not start either; after
        any other exception the broker runs without it.

        :param context: an :class:`IExtensionContext`.
        :param configuration: what :meth:`configure` returned.
        """
