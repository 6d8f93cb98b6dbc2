"""The list of channels that Identity clients are told: on arrival, and on every change where that is set."""

from collections.abc import Iterable, Iterator

from fleximq.broker.authorization import sees
from fleximq.broker.envelope import ConnectedClient
from fleximq.dialects.context import Context
from fleximq.dialects.outbox import Outbox
from fleximq.interfaces import IRights
from fleximq.wire.identity_text import encodeChannels, isChannel
from fleximq.wire.websocket_frame import TEXT, encodeFrame

#: Lists of so many different rights are remembered.
_FRAMES = 256


class ChannelList:
    """The CHANNELS frame, made anew only when the channels have changed, and those who are told of changes.

    Names that the dialect cannot spell are left out, as are those, in alphabetical order the last, with which the
    list would be longer than an Identity text may be. Who is restricted is shown only the channels that it may
    subscribe to, publish to or consume from; one frame is made for all who have the same rights.
    """

    def __init__(self, context: Context) -> None:
        self._topics = context.broker.topics
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
        """Return the list as it is now for a client, encoded as a frame."""
        names = self._topics.channels()
        if names is not self._names or len(self._frames) > _FRAMES:
            self._names = names
            self._previous, self._frames = self._frames, {}
        frame = self._frames.get(client.rights)
        if frame is None:
            frame = self._encoded([name for name in names if isChannel(name) and sees(client, name)])
            before = self._previous.get(client.rights)
            self._frames[client.rights] = frame = before if before == frame else frame
        return frame

    def _encoded(self, names: list[str]) -> bytes:
        return encodeFrame(TEXT, encodeChannels(_fitting(names, self._context.settings.limits.text)))

    def join(self, outbox: Outbox, client: ConnectedClient) -> None:
        """Send the list here whenever it changes, if that is set. It was sent as it is now."""
        if self._announces:
            self._listeners[outbox] = client, self.frame(client)

    def leave(self, outbox: Outbox) -> None:
        """Send it here no more."""
        self._listeners.pop(outbox, None)

    def _changed(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._turn.add(self)

    def flush(self) -> None:
        """Send the list to all who know another; called at the end of a turn, behind the turn's answers.

        A change may be none to them: of a topic whose name they cannot spell, or one undone in the same turn.
        """
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
