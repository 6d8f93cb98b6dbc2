"""Notes that wait for the next commit, put together so that a thousand acknowledgements are one."""

from array import array

from fleximq.values.records import Acknowledged, Closed, Forgotten, HandedOut, Note, Opened, Reached


class Noted:
    """The notes of one commit, in order, but of each queue all that was handed out is one, as is all acknowledged.

    Only notes that open or close a queue stand between what came before and what came after them. Of a consumer group
    the last word counts.
    """

    __slots__ = ("_acknowledged", "_handedOut", "_notes", "_words")

    def __init__(self) -> None:
        self._notes: list[Note | None] = []
        self._handedOut: dict[str, tuple[int, HandedOut]] = {}
        self._acknowledged: dict[str, tuple[int, array[int]]] = {}
        self._words: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._notes)

    def add(self, note: Note) -> None:
        """Take one more; an array that is in it may be changed by its owner afterwards."""
        if type(note) is Acknowledged:
            gathered = self._acknowledged.get(note.key)
            if gathered is None:
                gathered = self._acknowledged[note.key] = len(self._notes), array("Q")
                self._notes.append(None)
            gathered[1].extend(note.offsets)
        elif type(note) is HandedOut:
            known = self._handedOut.get(note.key)
            if known is None:
                self._handedOut[note.key] = len(self._notes), note._replace(again=array("Q", note.again))
                self._notes.append(None)
            else:
                self._handedOut[note.key] = known[0], _together(known[1], note)
        elif isinstance(note, Reached | Forgotten):
            before = self._words.pop(note.group, None)
            if before is not None:
                self._notes[before] = None
            self._words[note.group] = len(self._notes)
            self._notes.append(note)
        else:
            if isinstance(note, Opened | Closed):
                self._settle(note.key)
            self._notes.append(note)

    def _settle(self, key: str) -> None:
        """Put what was gathered of a queue in its place; what comes of it now comes later."""
        handedOut = self._handedOut.pop(key, None)
        if handedOut is not None:
            self._notes[handedOut[0]] = handedOut[1]
        acknowledged = self._acknowledged.pop(key, None)
        if acknowledged is not None:
            self._notes[acknowledged[0]] = Acknowledged(key, acknowledged[1])

    def take(self) -> list[Note]:
        """Return all of them, once."""
        for key in {*self._handedOut, *self._acknowledged}:
            self._settle(key)
        return [note for note in self._notes if note is not None]


def _together(first: HandedOut, then: HandedOut) -> HandedOut:
    again = array("Q", first.again)
    again.extend(then.again)
    return then._replace(count=max(first.count, then.count), again=again, time=max(first.time, then.time))
