"""The FlexiMQ dialect (specification: the FlexiMQ document and docs/reference/dialects.rst).

A session is composed of a read loop (:mod:`fleximq.dialects.fleximq.read_loop`), the actions of each message type
(:mod:`fleximq.dialects.fleximq.messages`), the broker's answers (:mod:`fleximq.dialects.fleximq.replies`) and a writer
for the form that the client reads (:mod:`fleximq.dialects.fleximq.writers`).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from twisted.internet.interfaces import IAddress
from zope.interface import implementer

from fleximq.broker.envelope import ConnectedClient
from fleximq.dialects.answers import Answers
from fleximq.dialects.connection.connection_state import ConnectionState
from fleximq.dialects.context import ListenerContext
from fleximq.dialects.fleximq.forms import FLEXI_FORM
from fleximq.dialects.fleximq.join import JoinRequest
from fleximq.dialects.fleximq.joining import Joining, announce
from fleximq.dialects.fleximq.messages import FlexiMessages
from fleximq.dialects.fleximq.read_loop import ReadLoop
from fleximq.dialects.fleximq.replies import FlexiReplies
from fleximq.dialects.fleximq.writers import AnyWriter, Writer
from fleximq.dialects.outbox import Chunk, Outbox
from fleximq.dialects.session import NamedLogger, StreamSession
from fleximq.dialects.stream import StreamFactory
from fleximq.errors import BrokerError, NotPermitted
from fleximq.interfaces import IForm, IPeer, ISubscriber
from fleximq.rights import UNRESTRICTED, Action
from fleximq.security.principal import Admitted
from fleximq.values.printable import shortened
from fleximq.wire.fleximq_header import MessageType, OpenHeader, peekId, peekPath, reportsError
from fleximq.wire.fleximq_layout_b import Layout

#: Seconds from the end of a client's input to PINGs, if an answer is pending for so long.
_PROBES = 1.0, 2.0


@implementer(ISubscriber, IPeer)
class FlexiSession(StreamSession):
    """One FlexiMQ client's conversation. ``deliver``, ``forward`` and ``receiveBroadcast`` are those of its writer."""

    __slots__ = (
        "_joining", "_messages", "_replies", "answers", "deliver", "forward", "reads", "receiveBroadcast",
    )  # fmt: skip

    _log = NamedLogger(__name__)
    dialect = "fleximq"
    mayFinish = True
    joinsFirst = True
    form: IForm = FLEXI_FORM

    def __init__(self, context: ListenerContext, outbox: Outbox, address: IAddress) -> None:
        super().__init__(context, outbox, address)
        self.answers: Answers = Answers(outbox)
        writer = Writer(outbox)
        self._replies = FlexiReplies(self.answers, writer)
        self.use(writer)
        self.reads = ReadLoop(self, self._replies, self._join)
        self._messages: FlexiMessages  # from the JOIN to the end
        self._joining = Joining()

    def use(self, writer: AnyWriter) -> None:
        """Write in another form from now on."""
        self._replies.writer = writer
        self.deliver, self.forward, self.receiveBroadcast = writer.deliver, writer.forward, writer.receiveBroadcast
        self.outbox.messagesWithin = writer.framesWithin

    # -- input -------------------------------------------------------------------------------------

    @property
    def buffered(self) -> int:
        """Bytes buffered of an incomplete frame."""
        return 0 if self.state is ConnectionState.CLOSED else self.reads.buffered

    def receiver(self) -> Callable[[bytes], None]:
        """Return the function of the read loop."""
        return self.reads.received

    def received(self, data: bytes) -> None:
        """Process a read."""
        self.reads.received(data)

    def resume(self) -> None:
        """Continue after the JOIN."""
        self.reads.resume()

    # -- the JOIN ----------------------------------------------------------------------------------

    def _join(self, opened: OpenHeader, frame: bytes) -> None:
        self._joining.read(self, self._replies, opened)

    def joined(self, request: JoinRequest, admitted: Admitted) -> None:
        """Join the broker with the name of the request, and answer as soon as other nodes know the name."""
        name = request.name
        if name and admitted.rights not in UNRESTRICTED and not admitted.rights.may(Action.SERVE, name):
            raise NotPermitted(f"joining as {shortened(name)!r} is not permitted")
        me = self.letIn(admitted, peer=self)
        self.beginAs(me, name is not None)
        self.broker.rename(me, name or "")
        if name:
            announce(self, self._replies, partial(self._welcome, request.id))
        else:
            self._welcome(request.id)

    def beginAs(self, me: ConnectedClient, isNamed: bool) -> None:
        """Process messages of this client from now on; ``isNamed``: it joined with a name."""
        del self._joining  # a second JOIN is refused
        self._messages = FlexiMessages(self, self, me, self._replies, self.reads)
        self._replies.id, self._replies.isNamed = me.id, isNamed
        self.reads.joined(me, self._messages.act)

    def _welcome(self, requestId: str | None) -> None:
        self._replies.sendSuccess(requestId)
        keepAlive = self.startKeepAlive()
        if self.reads.layout is Layout.B:
            # Its revision of the document has no PING.
            keepAlive.mayBeSilent = True
            self.outbox.probe(max(1, int(keepAlive.interval)))

    # -- a mesh ------------------------------------------------------------------------------------

    def passOn(self, frames: Chunk) -> None:
        """Send messages to the owner of the journal."""
        self._messages.passOn(frames)

    def linkEnded(self) -> None:
        """End with the connection to the owner; after the last answer, if the client has ended its input."""
        self._messages.link = None
        if self._inputEnded:
            self.requestDone()
        else:
            self.end("owner lost")

    # -- output ------------------------------------------------------------------------------------

    def requestFailed(self, requestId: str, path: str, status: int, reason: str) -> None:
        """Report that a request will not be answered."""
        self._replies.sendFailure(status, reason, path, requestId)

    def requestDone(self) -> None:
        """Close a connection whose input has ended, after its last answer and its pending PONGs."""
        if not self._inputEnded or self.state is ConnectionState.CLOSED:
            return
        if self.client is None or not (self._messages.questions or self.broker.openRequests(self.client)):
            self.whenDecided(lambda: self.end("client closed"))

    def refused(self, error: BrokerError, kind: int | None, fields: Mapping[Any, Any], topic: str = "") -> None:
        """Answer an error for a message with this type and header, unless it reports one itself."""
        if kind in (MessageType.REP, MessageType.NOTIF) and reportsError(fields):
            self.failed(error, silently=True)
        else:
            self.failed(error, requestId=peekId(fields), path=topic or peekPath(fields))

    def failed(self, error: BrokerError, requestId: str | None = None, path: str = "", silently: bool = False) -> None:
        """Answer a client's error; before the JOIN every error closes the connection."""
        joined = self.state is not ConnectionState.WAITING
        self.counted(error)
        if not silently:
            self.answerError(error, requestId, path)
        if error.closes or not joined:
            self.end(f"error {int(error.status)}")

    def answerError(self, error: BrokerError, requestId: str | None = None, path: str = "") -> None:
        """Send an error as a REP: with the broker's id after the JOIN, with client id 0 before it."""
        self._replies.sendError(error, path, requestId)

    def warn(self) -> None:
        """Send a NOTIF with status 503 from :data:`DRAINING`, unless the client has not joined."""
        if self.state is ConnectionState.OPEN:
            self.outbox.take(self._replies.warning())

    def ping(self) -> None:
        """Send a PING with the interval of the keep-alive."""
        self.outbox.take(self._replies.ping(0 if self.keepAlive is None else self.keepAlive.interval))

    def silent(self) -> None:
        """End, as the peer was silent for too long. Its unsettled deliveries return to their queues at once, since
        pending output may delay the end.
        """
        if self.client is not None:
            self._messages.inputEnded()
        super().silent()

    def rightsChanged(self, lost: Sequence[str]) -> None:
        """Clear cached envelopes, and answer for each lost subscription as for a refused one."""
        self._messages.rightsChanged(lost)

    # -- the end -----------------------------------------------------------------------------------

    def inputEnded(self) -> None:
        """Send pending answers, then close.

        The end of input does not say whether the peer still reads. If it does not, its system answers our next bytes
        with a reset, and those after it fail: PINGs find that out, and the client is not listed until an answer.
        """
        self._inputEnded = True
        if self.state is ConnectionState.OPEN and self.client is not None:
            self._messages.inputEnded()
        self.requestDone()
        for delay in _PROBES if self.state is ConnectionState.OPEN else ():
            self.broker.deadlines.callLater(delay, self._probe)

    def _probe(self) -> None:
        if self.state is ConnectionState.OPEN:
            self.ping()

    def left(self) -> None:
        """Drop caches and pending input."""
        if self.client is not None:
            self._messages.left()
            del self._messages
        self.reads.left()
        del self.reads  # these were reference cycles


class FlexiFactory(StreamFactory):
    """Builds FlexiMQ connections on streams."""

    def __init__(self, context: ListenerContext) -> None:
        super().__init__(context, FlexiSession)
