"""The Identity dialect over WebSocket: protocol and factory."""

from functools import partial

from fleximq.dialects.context import ListenerContext
from fleximq.dialects.identity.channel_list import ChannelList
from fleximq.dialects.identity.form import RecordTexts
from fleximq.dialects.identity.session import IdentitySession
from fleximq.dialects.session import NamedLogger
from fleximq.dialects.websocket.session_protocol import WebSocketFactory, WebSocketSessionProtocol
from fleximq.wire.websocket_frame import BINARY, TEXT


class IdentityWebSocketProtocol(WebSocketSessionProtocol):
    """Passes texts to an Identity session; binary messages are read as text, or ignored if they are not UTF-8."""

    _log = NamedLogger(__name__)
    kinds = frozenset({TEXT, BINARY})
    session: IdentitySession

    def messagesReceived(self, messages: list[bytes]) -> None:
        """Pass on these texts."""
        self.session.receivedAll(messages)


class IdentityFactory(WebSocketFactory):
    """Builds Identity connections, which share one channel list and one cache of converted records."""

    protocolClass = IdentityWebSocketProtocol
    subprotocol = "identity"

    def __init__(self, context: ListenerContext) -> None:
        makeSession = partial(IdentitySession, channels=ChannelList(context), recordTexts=RecordTexts())
        super().__init__(context, makeSession, lambda: context.settings.limits.text)
