"""Shares the system's limit on open files: connections leave some of them to the journal, to reloads and to programs.

The system gives a new connection the lowest free number, so that at least as many files are open as this number says.
"""

import errno
import os
import resource
from contextlib import suppress
from dataclasses import replace
from typing import Any

from twisted.application.service import Service
from twisted.logger import Logger

from fleximq.config.settings import Settings
from fleximq.limits import Limits
from fleximq.values.log_limit import LogLimit

_log = Logger()

#: Files that the broker needs in addition to its connections, and how many of them remain free when connections took
#: all others. With a very low limit they are at most a half and a quarter of it.
OWN, FREE = 64, 32
#: Seconds without accepting while there are too few.
SHORTAGE_PAUSE = 0.1
#: The limit's name, and its value if there is none.
_NUMBER, _MANY = resource.RLIMIT_NOFILE, 1 << 30
#: The part of all connections that may wait for admission, and that is reserved to answer those beyond the maximum.
_WAITING, _ANSWERED = 4, 50


def withinOpenFiles(settings: Settings, openFiles: int | None = None) -> Limits:
    """Return the limits of these settings, with as many clients and waiting connections as the system permits.

    :param openFiles: the limit of the system after :func:`raiseLimit`; by default it is asked.
    """
    limits = settings.limits
    permitted = min(_limits()[1], _needed(limits)) if openFiles is None else openFiles
    if permitted >= _needed(limits):
        return limits
    room = permitted - min(OWN, permitted // 2)
    if settings.cluster:
        room //= 2  # a forwarded client takes two
    clients, waiting = max(1, room - max(1, room // _ANSWERED)), max(1, room // _WAITING)
    return replace(limits, clients=min(limits.clients, clients), waiting=min(limits.waiting, waiting))


def raiseLimit(limits: Limits) -> None:
    """Raise the limit of this process as far as it needs and may."""
    soft, hard = _limits()
    if soft < _needed(limits):
        with suppress(OSError, ValueError):  # a service manager may forbid it
            resource.setrlimit(_NUMBER, (min(hard, _needed(limits)), hard))


class OpenFilesService(Service):
    """Raises the limit at the start, and logs if it is too low for the settings."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def privilegedStartService(self) -> None:
        raiseLimit(self._settings.limits)

    def startService(self) -> None:
        super().startService()
        asked, limits = self._settings.limits, withinOpenFiles(self._settings)
        if limits != asked:
            _log.info(
                "The system permits {number} open files, so at most {clients} clients are admitted, and {waiting} "
                "connections wait for it: more need a higher limit (ulimit -n, LimitNOFILE= of systemd)",
                number=_limits()[0], clients=limits.clients, waiting=limits.waiting,
            )  # fmt: skip


class Shortage:
    """Shows whether connections have taken all files but :data:`FREE` of them.

    ``clock``: limits the log lines about it.
    """

    def __init__(self, clock: Any) -> None:
        self._clock = clock
        self._logLimit = LogLimit(2)
        self._isShort = False

    def left(self) -> int:
        """Return how many more connections may be accepted now, as an upper bound.

        The begin and the end of a shortage are logged.
        """
        soft = _limits()[0]
        number = min(soft, lowestFree())
        left = soft - min(FREE, soft // 4) - number
        if self._isShort != (left <= 0):
            self._isShort = left <= 0
            self._report(number, soft)
        return left

    def _report(self, number: int, limit: int) -> None:
        more = self._logLimit.ending(self._clock.seconds())
        if more is not None:
            words = "Connections are accepted again{more}"
            if self._isShort:
                words = "No connections are accepted for now: at least {number} of {limit} open files are in use{more}"
            _log.warn(words, number=number, limit=limit, more=more)


def lowestFree() -> int:
    """Return the number that the next opened file gets; a large one if there is none."""
    try:
        number = os.dup(0)
    except OSError as error:
        return 0 if error.errno == errno.EBADF else _MANY  # 0 itself is free
    os.close(number)
    return number


def _needed(limits: Limits) -> int:
    return limits.clients + limits.waiting + OWN


def _limits() -> tuple[int, int]:
    """Return the limit of this process, and the one up to which it may raise it."""
    soft, hard = (_MANY if each == resource.RLIM_INFINITY else each for each in resource.getrlimit(_NUMBER))
    return soft, hard
