"""The broker's view of a client in the process: a peer that receives FlexiMQ frames, as a connection does.

So runs of FlexiMQ publishers reach it unchanged, and it receives direct messages of all clients, in a mesh too. Frames
arrive during an operation of the broker. They only change the state of the client here; the program is called, and the
broker if necessary, in the next turn of the reactor.
"""

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from fleximq.broker.authorization import permits
from fleximq.broker.broker import Broker
from fleximq.broker.envelope import ConnectedClient
from fleximq.broker.traffic import Traffic
from fleximq.client.errors import RequestFailed
from fleximq.client.events import Notification, Reply, Request
from fleximq.client.protocol.conversation import Conversation
from fleximq.client.protocol.inbox import Box, Inbox
from fleximq.client.settings import Codec
from fleximq.dialects.connection.slow_consumer import DROPPED
from fleximq.dialects.fleximq.forms import FLEXI_FORM
from fleximq.errors import BrokerError, Conflict, SubscriptionFailed
from fleximq.in_process.direct_messages import DirectMessages
from fleximq.in_process.jobs import InProcessConsumers
from fleximq.interfaces import IConversation, IForm, IPeer, ISubscriber
from fleximq.rights import Action
from fleximq.values.connection_load import ConnectionLoad

_log = Logger()

#: Messages of clients in the process are FlexiMQ's, in the journal and in metrics too.
DIALECT = "fleximq"


@implementer(ISubscriber, IPeer, IConversation)
class InProcessPeer:
    """Decodes frames into events, and stores them until the program reads them.

    ``inbox`` has the unread messages, ``consumers`` the unread jobs, ``direct`` the open requests. ``error``
    is None until the client's end, then the error with which its methods fail.

    :param prefetch: maximum unread bytes of each subscription.
    """

    def __init__(self, broker: Broker, clock: IReactorTime, prefetch: int, codec: Codec) -> None:
        self.broker = broker
        self.clock = clock
        self.form: IForm = FLEXI_FORM
        self.traffic = Traffic()
        self.conversation = Conversation(unpack=codec.unpack)
        self.inbox = Inbox(self._relieved, self._overrun, prefetch // 2, prefetch)
        self.consumers = InProcessConsumers(broker, self.conversation)
        self.direct = DirectMessages(clock, prefetch, codec, self.answer)
        self.client: ConnectedClient
        self.error: BrokerError | None = None
        #: Each is called once, when less than half of ``prefetch`` is unread.
        self.reliefs: list[Callable[[], None]] = []
        #: Each is called once, at the client's end.
        self.ended: list[Callable[[], object]] = []

    def begin(self, client: ConnectedClient) -> None:
        """Start to work as this client, which has joined the broker."""
        self.client = client
        self.conversation.id = client.id
        self.broker.traffic.begin(DIALECT, self.traffic)

    def end(self, error: BrokerError | None) -> None:
        """Leave the broker; idempotent.

        :param error: fails open requests and subscriptions; None: the client was closed, so requests fail with Conflict
            and subscriptions end.
        """
        if self.error is not None:
            return
        self.error = error or Conflict("this client is closed")
        self.broker.leave(self.client, "client closed" if error is None else f"error {int(error.status)}")
        self.broker.traffic.end(DIALECT, self.traffic)
        self.inbox.closeAll(True if error is None else error)
        self.consumers.end(error)
        self.direct.end(self.error)
        for call in self.ended:
            call()

    def unsubscribe(self, box: Box) -> None:
        """Close the box of a subscription, and unsubscribe if no other box has its name."""
        if self.inbox.close(box):
            self.broker.unsubscribe(self.client, box.topic)

    def answer(self, request: Request, payload: bytes, status: int) -> None:
        """Answer a request, unless this client or the requester has left."""
        if self.error is None:
            frame = self.conversation.reply(request, payload, status)
            self.traffic.messagesIn += 1
            self.traffic.bytesIn += len(frame)
            try:
                self.broker.reply(self.client, request.sender, request.id, frame, request.path)
            except BrokerError as error:
                _log.debug("An answer to {path} was refused: {error}", path=request.path, error=error)

    # -- ISubscriber and IPeer ---------------------------------------------------------------------

    def deliver(self, rendered: Any, count: int) -> None:
        self.traffic.messagesOut += count
        self.take(rendered)

    def forward(self, message: Any) -> None:
        self.take(message)

    def receiveBroadcast(self, message: Any) -> None:
        self.take(message)

    def requestFailed(self, requestId: str, path: str, status: int, words: str) -> None:
        self.direct.failed(requestId, RequestFailed(status, words, path))

    def requestDone(self) -> None:
        """Ignored: the answer itself ends a request."""

    # -- IConversation -----------------------------------------------------------------------------

    def rightsChanged(self, lost: Sequence[str]) -> None:
        for name in lost:
            self.inbox.endTopic(name, SubscriptionFailed(f"subscribing to {name!r} is not permitted any more"))
        service = self.client.service
        if service and not permits(self.client, Action.SERVE, service):
            self.broker.rename(self.client, "")

    def refusal(self) -> str | None:
        return None

    def expel(self, error: BrokerError) -> None:
        self.end(error)

    def load(self) -> ConnectionLoad:
        traffic = self.traffic
        return ConnectionLoad(traffic.bytesIn, traffic.bytesOut, traffic.messagesIn, traffic.messagesOut)

    # -- frames ------------------------------------------------------------------------------------

    def take(self, frames: bytes | memoryview) -> None:
        """Decode complete frames, and pass on their messages."""
        self.traffic.bytesOut += len(frames)
        for each in self.conversation.runs(bytes(frames)):
            if isinstance(each, list):
                self.inbox.putRun(each)
            elif isinstance(each, Reply):
                self.direct.replied(each)
            elif isinstance(each, Request):
                self.direct.requested(each)
            elif isinstance(each, Notification):
                self.inbox.putDirect(each)

    def _overrun(self, box: Box) -> None:
        if box.hasStart:  # its feed pauses while too much is unread
            return
        words = f"the subscription to {box.topic!r} has ended, since {box.size} bytes were unread"
        self.inbox.endTopic(box.topic, SubscriptionFailed(words))
        self.clock.callLater(0, self._unsubscribeOverrun, box.topic)

    def _unsubscribeOverrun(self, topic: str) -> None:
        self.broker.observers.counted(DROPPED, 1)
        if self.error is None and topic not in self.inbox.boxes:
            self.broker.unsubscribe(self.client, topic)

    def _relieved(self) -> None:
        reliefs, self.reliefs = self.reliefs, []
        for call in reliefs:
            call()
