"""The channel list sent to Identity clients: when they join, and on each change if so configured."""

from collections.abc import Iterable, Iterator

from fleximq.broker.authorization import sees
from fleximq.broker.envelope import ConnectedClient
from fleximq.dialects.context import ListenerContext
from fleximq.dialects.outbox import Outbox
from fleximq.interfaces import IRights
from fleximq.wire.identity_text import encodeChannels, isChannel
from fleximq.wire.websocket_frame import TEXT, encodeFrame

#: Number of different rights for which a list is cached.
_FRAMES = 256


class ChannelList:
    """The CHANNELS frame, encoded only after changes and shared by clients with the same rights, and its subscribers.

    Omitted are names that the dialect cannot represent, channels that a restricted client may not use, and the last
    names in alphabetical order if the list exceeds the maximum size of a text.
    """

    def __init__(self, context: ListenerContext) -> None:
        self._broker = context.broker
        self._turn = context.turn
        self._context = context
        self._names: list[str] | None = None
        self._frames: dict[IRights, bytes] = {}
        self._previous: dict[IRights, bytes] = {}
        self._scheduled = False
        self._listeners: dict[Outbox, tuple[ConnectedClient, bytes]] = {}
        self._announces = context.settings.announceChannels
        if self._announces:
            context.broker.channelsChanged.append(self._changed)

    def frame(self, client: ConnectedClient) -> bytes:
        """Return the current list for a client, encoded as a frame."""
        names = self._broker.channels()
        if names is not self._names or len(self._frames) > _FRAMES:
            self._names = names
            self._previous, self._frames = self._frames, {}
        frame = self._frames.get(client.rights)
        if frame is None:
            frame = self._encoded(name for name in names if isChannel(name) and sees(client, name))
            before = self._previous.get(client.rights)
            self._frames[client.rights] = frame = before if before == frame else frame
        return frame

    def _encoded(self, names: Iterable[str]) -> bytes:
        return encodeFrame(TEXT, encodeChannels(_fitting(names, self._context.settings.limits.text)))

    def join(self, outbox: Outbox, client: ConnectedClient) -> None:
        """Send each new list to this outbox, if so configured. The current one was sent already."""
        if self._announces:
            self._listeners[outbox] = client, self.frame(client)

    def leave(self, outbox: Outbox) -> None:
        """Send no more lists to this outbox."""
        self._listeners.pop(outbox, None)

    def _changed(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._turn.add(self)

    @property
    def pendingBytes(self) -> int:
        """The size of a list, a guess: lists are made when they are sent."""
        return self._context.settings.limits.text

    def flush(self) -> None:
        """Send the list to clients with an older one, after the answers of the turn."""
        self._scheduled = False
        for outbox, (client, known) in self._listeners.items():
            frame = self.frame(client)
            if known is not frame and known != frame:
                self._listeners[outbox] = client, frame
                outbox.take(frame)


def _fitting(names: Iterable[str], limit: int) -> Iterator[str]:
    left = limit - len(encodeChannels(())) + 1
    for name in names:
        left -= len(name.encode()) + 1
        if left < 0:
            return
        yield name
