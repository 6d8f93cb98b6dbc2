"""A complete dialect in one page.

A client sends lines of UTF-8, which end with LF or CRLF::

    +TOPIC          subscribes to a topic
    TOPIC TEXT      publishes a text to it

and receives ``TOPIC TEXT`` for every publication to its topics, its own included, and ``! WORDS`` after an error.
Success is silent. Topics contain no blank; their names are literal.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from twisted.internet.interfaces import IAddress
from zope.interface import implementer

from fleximq.api import (
    Admitted,
    BadRequest,
    BrokerError,
    ConnectedClient,
    ConnectionState,
    Content,
    Envelope,
    Forbidden,
    IForm,
    ISubscriber,
    LineScanner,
    ListenerContext,
    Message,
    MessageSource,
    Outbox,
    StreamFactory,
    StreamSession,
    toText,
)

LINE_BYTES = 64 * 1024  #: Maximum length of a line in bytes.


# A source returns the messages of our runs, a form renders every run for our subscribers.
@implementer(IForm)
class LineForm(MessageSource):
    """Bodies are lists of messages, deliveries are lines. One instance for all, so each run is rendered once."""

    def render(self, envelope: Envelope, body: Any, count: int) -> bytes:
        """Return the lines for a run of any dialect. A line break in a text becomes a blank."""
        texts = (" ".join(toText(message).splitlines()) for message in envelope.source.messages(body))
        return "".join(f"{envelope.topic.name} {text}\n" for text in texts).encode()


LINES = LineForm()


class NotAdmitted(Forbidden):
    """This peer is refused regardless of its credentials."""

    closes = True


@implementer(ISubscriber)
class LineSession(StreamSession):
    """One client's conversation."""

    dialect = "line_echo"
    form = LINES
    _me: ConnectedClient

    def __init__(self, context: ListenerContext, outbox: Outbox, address: IAddress) -> None:
        super().__init__(context, outbox, address)
        self._scanner = LineScanner(LINE_BYTES)
        self._lines: Iterator[bytes] = iter(())

    def received(self, data: bytes) -> None:
        """Execute the lines in order. A line that is too long ends the connection."""
        self._lines = self._scanner.feed(data)
        self.resume()

    def resume(self) -> None:
        """Continue until there are no more lines, or the client must be authenticated first."""
        for line in self._lines:
            if self.state is ConnectionState.WAITING:  # the first line is the handshake
                self._comeIn(line)
            else:
                self._take(line)
            if self.state is not ConnectionState.OPEN:
                return

    def _comeIn(self, line: bytes) -> None:
        refusal = self.refusal()
        if refusal is not None:
            raise NotAdmitted(refusal)
        self.admit(self.certificate(), partial(self._welcome, line), self._turnAway)

    def _welcome(self, line: bytes, admitted: Admitted) -> None:
        self._me = self.letIn(admitted)
        self._take(line)

    def _turnAway(self, error: BrokerError) -> None:
        self.failed(error)
        self.end(f"error {int(error.status)}")

    def _take(self, line: bytes) -> None:
        try:
            topic, blank, text = line.decode().partition(" ")
            if topic.startswith("+") and not blank:
                self.broker.subscribe(self._me, self, topic[1:], literal=True)
            elif blank:
                envelope = Envelope(self.broker.topicFor(self._me, topic), self._me, LINES)
                self.broker.publish(envelope, [Message(text.encode(), Content.TEXT)], 1)
            else:
                raise BadRequest("say +TOPIC, or TOPIC TEXT")
        except UnicodeDecodeError:
            self.failed(BadRequest("the line is not UTF-8"))
        except BrokerError as error:
            self.failed(error)

    def deliver(self, rendered: bytes, count: int) -> None:
        self.outbox.deliver(rendered, count)

    def answerError(self, error: BrokerError) -> None:
        self.outbox.take(f"! {error}\n".encode())


class LineFactory(StreamFactory):
    """Builds the connections of a listener."""

    def __init__(self, context: ListenerContext) -> None:
        super().__init__(context, LineSession)
