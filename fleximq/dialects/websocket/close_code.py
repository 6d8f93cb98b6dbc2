"""The codes of close frames that the broker sends (RFC 6455, section 7.4.1), and the fault that leads to one."""

NORMAL, GOING_AWAY, PROTOCOL_ERROR, UNSUPPORTED = 1000, 1001, 1002, 1003
INVALID_PAYLOAD, POLICY_VIOLATION, TOO_BIG, INTERNAL_ERROR = 1007, 1008, 1009, 1011
SERVICE_RESTART, TRY_AGAIN_LATER = 1012, 1013


class WebSocketFault(Exception):
    """A message that cannot be read; the WebSocket is closed with this code and text."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code = code
        self.words = words
