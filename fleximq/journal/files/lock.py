"""One broker to a journal: the lock that the one which writes holds on DIR/lock."""

from fleximq.errors import JournalError
from fleximq.journal.files.file_system import Files, wordsOf

#: Its bytes mean nothing, only who has locked it.
LOCK = "lock"


class Lock:
    """Held from when it is made until :meth:`release`, or until the process ends, however that comes.

    :raises JournalError: somebody else holds it, or the folder cannot be written.
    """

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        try:
            self._descriptor = files.openLock(f"{folder}/{LOCK}")
        except OSError as error:
            raise JournalError(f"the journal in {folder} cannot be written: {wordsOf(error)}") from error
        if not self._taken(folder):
            files.close(self._descriptor)
            raise JournalError(f"the journal in {folder} is in use by another broker")

    def _taken(self, folder: str) -> bool:
        try:
            return self._files.lock(self._descriptor)
        except OSError as error:
            self._files.close(self._descriptor)
            raise JournalError(f"the journal in {folder} cannot be locked: {wordsOf(error)}") from error

    def release(self) -> None:
        """Give it back."""
        self._files.close(self._descriptor)
