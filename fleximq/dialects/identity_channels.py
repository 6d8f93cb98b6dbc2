"""The list of channels that Identity clients are told: on arrival, and on every change where that is set."""

from collections.abc import Iterable, Iterator

from fleximq.dialects.context import Context
from fleximq.dialects.outbox import Outbox
from fleximq.wire.identity_text import encodeChannels, isChannel
from fleximq.wire.websocket_frame import TEXT, encodeFrame


class ChannelList:
    """The CHANNELS frame, made anew only when the channels have changed, and those who are told of changes.

    Names that the dialect cannot spell are left out, as are those, in alphabetical order the last, with which the
    list would be longer than an Identity text may be.
    """

    def __init__(self, context: Context) -> None:
        self._topics = context.broker.topics
        self._turn = context.turn
        self._limit = context.settings.limits.text
        self._names: list[str] | None = None
        self._frame = b""
        self._noted = False
        self._listeners: dict[Outbox, bytes] = {}
        self._announces = context.settings.announceChannels
        if self._announces:
            context.broker.channelsChanged.append(self._changed)

    def frame(self) -> bytes:
        """Return the list as it is now, encoded as a frame; the same object as long as it reads the same."""
        names = self._topics.channels()
        if names is not self._names:
            self._names = names
            frame = encodeFrame(TEXT, encodeChannels(_fitting(filter(isChannel, names), self._limit)))
            if frame != self._frame:
                self._frame = frame
        return self._frame

    def join(self, outbox: Outbox) -> None:
        """Send the list here whenever it changes, if that is set. It was sent as it is now."""
        if self._announces:
            self._listeners[outbox] = self.frame()

    def leave(self, outbox: Outbox) -> None:
        """Send it here no more."""
        self._listeners.pop(outbox, None)

    def _changed(self) -> None:
        if not self._noted:
            self._noted = True
            self._turn.add(self)

    def flush(self) -> None:
        """Send the list to all who know another; called at the end of a turn, behind the turn's answers.

        A change may be none to them: of a topic whose name they cannot spell, or one undone in the same turn.
        """
        self._noted = False
        frame = self.frame()
        for outbox, known in self._listeners.items():
            if known is not frame:
                self._listeners[outbox] = frame
                outbox.take(frame)


def _fitting(names: Iterable[str], limit: int) -> Iterator[str]:
    left = limit - len(encodeChannels(())) + 1
    for name in names:
        left -= len(name.encode()) + 1
        if left < 0:
            return
        yield name
