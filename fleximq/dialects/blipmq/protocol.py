"""BlipMQ on byte streams: protocol and factory.

TCP acknowledges at once (measured: 1,000 messages polled and acknowledged one by one in 1.2 s instead of 13.9 s).
"""

from collections.abc import Callable

from fleximq.dialects.blipmq.session import BlipSession
from fleximq.dialects.connection.read_pauses import ReadPause
from fleximq.dialects.connection.tcp_socket import quickAcks
from fleximq.dialects.context import ListenerContext
from fleximq.dialects.pull_stream import PullState, PullStreamProtocol
from fleximq.dialects.stream import StreamFactory


class BlipProtocol(PullStreamProtocol):
    """Passes input to a BlipMQ session, and requests immediate TCP acknowledgements after every read."""

    session: BlipSession

    def connectionMade(self) -> None:
        """Start the session."""
        super().connectionMade()
        self.session.onReady = self._loaded
        self._quickAck = quickAcks(self.transport)

    def dataReceived(self, data: bytes) -> None:
        """Process a read."""
        super().dataReceived(data)
        self._quickAck()

    def receiver(self) -> Callable[[bytes], None]:
        """Return a function that also pauses reading while the session waits."""
        received, stopWhereStuck = self.session.received, self._stopWhereStuck

        def receive(data: bytes) -> None:
            received(data)
            stopWhereStuck()

        return receive

    def resume(self) -> None:
        """Resume the session after an AUTH, and pause reading while it waits."""
        super().resume()
        self._stopWhereStuck()

    def _stopWhereStuck(self) -> None:
        state = self.session.pullState
        if state is PullState.LOADING:
            self.readPauses.pause(ReadPause.UNANSWERED)
        elif state is PullState.AWAITING_READER:
            self.waitForReader()
        elif state is PullState.AWAITING_TURN:
            self.readPauses.pause(ReadPause.UNANSWERED)
            self._context.clock.callLater(0, self._loaded)

    def _loaded(self) -> None:
        self.readPauses.resume(ReadPause.UNANSWERED)
        self._continue()


class BlipFactory(StreamFactory):
    """Builds BlipMQ connections on streams."""

    protocolClass = BlipProtocol

    def __init__(self, context: ListenerContext) -> None:
        super().__init__(context, BlipSession)
