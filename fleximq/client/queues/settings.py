"""What a client of a queueing dialect may be told when it connects."""

from typing import Any, TypedDict

from fleximq.client.backoff import Backoff
from fleximq.client.settings import ClientSettings, Watcher
from fleximq.client.sockets import checkTls
from fleximq.errors import SettingError
from fleximq.values.urls import Url

#: The pauses between questions to an empty queue.
IDLE = Backoff(first=0.005, most=0.5, factor=2.0, jitter=0.25)
_SCHEMES = ("tcp", "tls", "ipc")


class QueueWishes(TypedDict, total=False):
    """Keyword arguments of ``connect``, those of :class:`~fleximq.client.settings.ClientSettings` that apply here."""

    timeout: float
    tls: Any
    reconnect: Backoff | None
    buffer: int
    keepAlive: float | None
    onState: Watcher | None


def checkPlace(url: Url, settings: ClientSettings) -> None:
    """See that these dialects can be spoken there.

    :raises SettingError: otherwise.
    """
    if url.scheme not in _SCHEMES:
        raise SettingError(f"the URL is {url}, but this dialect is spoken over tcp://, tls:// and ipc:// only")
    checkTls(url, settings)
