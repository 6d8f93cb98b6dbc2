"""The parts of reconnecting that threads and event loops share."""

import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from itertools import cycle
from logging import Logger

from fleximq.client.errors import ConnectionLost, JoinRefused, isTransient
from fleximq.client.settings import TIMEOUT, ClientSettings, State
from fleximq.client.sockets import checkTls
from fleximq.errors import SettingError
from fleximq.values.urls import Url

#: Most subscriptions to name in a log line.
_NAMED = 5
#: Limit in seconds for connecting and for joining at an address, while others have not been tried.
_ADDRESS_SECONDS = 5.0


class Reconnecting(ABC):
    """A client that reconnects by itself; raises SettingError for TLS settings and a URL without TLS."""

    #: Whether a loss was logged that has not ended.
    _isMissed = False

    def __init__(self, urls: Sequence[Url], settings: ClientSettings, log: Logger) -> None:
        checkTls(urls[0], settings.tls)
        #: In random order, so that clients spread over the addresses, also after the loss of one.
        self._urls = random.sample(urls, len(urls))
        self._nextUrls = cycle(self._urls)
        #: The address of this connection or of the last attempt.
        self._url = self._urls[0]
        self._settings = settings
        #: The settings of this connection or of the last attempt.
        self._attempt = settings
        self._log = log
        #: The program at the other end of standard input and output is started once.
        self._reconnects = settings.reconnect is not None and self._url.scheme != "stdio"

    @property
    def url(self) -> str:
        """The URL of this connection, one of several, without its query, which may contain a secret."""
        return self._url.withoutQuery

    @property
    @abstractmethod
    def state(self) -> State:
        """The state of the connection."""

    @abstractmethod
    async def ping(self, timeout: float | None = TIMEOUT) -> float:
        """Return the round-trip time in seconds, which includes processing everything sent before.

        :raises ConnectionLost: the connection ended, or the client is closed.
        :raises TimeoutError: no connection or no answer within ``timeout`` seconds.
        """

    @abstractmethod
    async def close(self, timeout: float | None = TIMEOUT) -> None:
        """Flush messages and ACKs, and end the connection; iterations end.

        The connection ends even if the flush fails. Closing again has no effect. Errors as those of the flush.
        """

    def hang_up(self) -> None:
        """End the connection at once, without a flush."""
        self._end(None)

    @abstractmethod
    async def _join(self) -> None:
        """Connect to ``_url``, and join."""

    @abstractmethod
    def _sleep(self, seconds: float) -> Awaitable[None]:
        """Wait, at most until the client is closed."""

    @abstractmethod
    def _end(self, why: Exception | None) -> None:
        """Close for good; ``why`` is None if the program has closed the client."""

    @property
    def _isEnding(self) -> bool:
        """Whether the client is being closed, although its state does not show it yet."""
        return False

    async def _joinAny(self) -> None:
        """Join at the first address that admits the client, beginning with the one after the last.

        :raises ConnectionLost: or JoinRefused: none does; transient errors take precedence.
        """
        errors: list[ConnectionLost | JoinRefused] = []
        for left in reversed(range(len(self._urls))):
            self._url = next(self._nextUrls)
            timeout = self._settings.timeout
            self._attempt = replace(self._settings, timeout=min(timeout, _ADDRESS_SECONDS) if left else timeout)
            try:
                await self._join()
                return
            except (ConnectionLost, JoinRefused) as error:
                if self.state is State.CLOSED:
                    raise
                errors.append(error)
        if len(errors) > 1 and all(type(each) is ConnectionLost for each in errors):
            raise ConnectionLost("; ".join(map(str, errors)))
        raise next(filter(isTransient, errors), errors[-1])

    async def _reconnect(self, why: Exception) -> None:
        assert self._settings.reconnect is not None
        for pause in self._settings.reconnect.pauses():
            await self._sleep(pause)
            if self.state is not State.AWAY:
                return
            try:
                await self._joinAny()
                return
            except Exception as error:
                if self._isEnding:
                    return  # Some loops raise an error then.
                why = error
                if not isinstance(error, ConnectionLost | JoinRefused | SettingError):
                    self._log.exception("Reconnecting failed")
                    break
                if not isTransient(error):
                    break
        self._end(why)

    def _report(self, state: State, why: Exception | None) -> None:
        """Log subscriptions that miss messages, and consumers that get none, and call ``on_state``."""
        if isinstance(why, ConnectionLost):
            for words, names in (("Subscriptions miss messages", why.missing), ("Consumers get no jobs", why.queues)):
                if names:
                    some = ", ".join(names[:_NAMED]) + (" and others" if len(names) > _NAMED else "")
                    self._log.warning("%s until the client has rejoined: %s (%s)", words, some, why)
                    self._isMissed = True
        if state is State.JOINED and self._isMissed:
            self._isMissed = False
            self._log.info("The client has rejoined")
        if self._settings.on_state is not None:
            try:
                self._settings.on_state(state, why)
            except Exception:
                self._log.exception("The callback on_state failed")
