"""Reads the settings again while the broker runs: all of them are taken, or none.

Who depends on settings is a *party*: it is given the new ones, reads and checks whatever else it needs (files of
credentials, certificates), and returns what puts them in force. Only when all parties have done so is any of that
called. docs/operating.rst, "Reloading".
"""

from collections.abc import Callable
from typing import Any

from twisted.logger import Logger

from fleximq.config.settings import Settings
from fleximq.errors import Conflict, SettingError
from fleximq.startup.setting_changes import Difference, Refused, dangers, difference, merged

#: Checks new settings, or raises SettingError; returns what makes a part of the broker follow them, and never fails.
Party = Callable[[Settings], Callable[[], None]]

_log = Logger("fleximq.services.reload")


class Reload:
    """Holds the settings in force, and changes them.

    ``parties`` are asked and changed in their order. ``begun`` and ``ended`` are told of each attempt.

    :param again: reads the settings as a start would; raises SettingError.
    """

    def __init__(self, settings: Settings, again: Callable[[], Settings]) -> None:
        self.settings = settings
        self.parties: list[Party] = []
        self.begun: Callable[[], object] = _nothing
        self.ended: Callable[[], object] = _nothing
        self._again = again

    def reload(self) -> Difference:
        """Read and take the settings, and return what differs from those that were in force.

        :raises Refused: something is wrong with them; nothing has changed.
        """
        self.begun()
        try:
            return self._take(self._again())
        except Refused as refused:
            for sentence in refused.sentences:
                _log.error("The settings stay as they are: {sentence}", sentence=sentence)
            raise
        except SettingError as error:
            _log.error("The settings stay as they are: {sentence}", sentence=error)
            raise Refused([str(error)]) from error
        except Exception as error:
            _log.failure("The settings stay as they are")
            raise Refused(["internal error, see the log"]) from error
        finally:
            self.ended()

    def signalled(self) -> None:
        """Reload for somebody who reads the log."""
        try:
            self.reload()
        except Refused:
            pass

    def asked(self) -> dict[str, Any]:
        """Reload for a client, and return the names of what has ``changed``, and of what needs a ``restart``.

        :raises Conflict: nothing has changed; it has all sentences, one a line.
        """
        try:
            found = self.reload()
        except Refused as refused:
            raise Conflict(str(refused)) from refused
        return {"changed": list(found.changed), "restart": list(found.waiting)}

    def _take(self, wanted: Settings) -> Difference:
        sentences = list(dangers(self.settings, wanted))
        found = difference(self.settings, wanted)
        settings = merged(self.settings, wanted)
        steps: list[Callable[[], None]] = []
        for party in self.parties:
            try:
                steps.append(party(settings))
            except Refused as refused:
                sentences += refused.sentences
            except SettingError as error:
                sentences.append(str(error))
        if sentences:
            raise Refused(sentences)
        self.settings = settings
        for step in steps:
            try:
                step()
            except Exception:
                _log.failure("A part of the broker could not follow the new settings")
        _tell(found)
        return found


def _tell(found: Difference) -> None:
    _log.info("The settings were read again; changed: {names}", names=", ".join(found.changed) or "nothing in them")
    if found.waiting:
        _log.warn("These settings need a restart to change: {names}", names=", ".join(found.waiting))


def _nothing() -> None:
    """Nobody is told."""
