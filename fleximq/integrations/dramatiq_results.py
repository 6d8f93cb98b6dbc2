"""Results of dramatiq in FlexiMQ: ``Results(backend=FleximqBackend("tcp://localhost:7890"))``.

A result is a value of the broker that lives as long as ``result_ttl`` says. A program that waits for a result sends one
request, which the broker answers when the result is there.
"""

import time
from collections.abc import Sequence
from functools import partial
from ssl import SSLContext
from typing import Any, Unpack

try:
    from dramatiq.encoder import Encoder
    from dramatiq.message import Message
    from dramatiq.results.backend import DEFAULT_TIMEOUT, ResultBackend
    from dramatiq.results.errors import ResultMissing, ResultTimeout
except ImportError as error:
    raise ImportError('results of dramatiq need dramatiq: pip install "fleximq[dramatiq]"') from error

from fleximq.client.blocking.client import connect
from fleximq.client.errors import Untrusted
from fleximq.client.keywords import ThreadConnectOptions
from fleximq.client.payloads import Packed
from fleximq.client.settings import Tls
from fleximq.integrations.process_client import LOSSES, RECONNECT, ProcessClient

#: Seconds between two attempts to ask a broker that is away.
_PAUSE = 0.5


class FleximqBackend(ResultBackend):
    """A result backend of dramatiq.

    :param url: and ``options``: as :func:`fleximq.client.blocking.client.connect` has them.
    :param namespace: the first level of the keys of results.
    :param encoder: of results, by default that of messages.
    """

    def __init__(
        self,
        url: str | Sequence[str] = "tcp://localhost:7890",
        *,
        namespace: str = "dramatiq-results",
        encoder: Encoder | None = None,
        **options: Unpack[ThreadConnectOptions[Tls | SSLContext]],
    ) -> None:
        super().__init__(namespace=namespace, encoder=encoder)
        options.setdefault("reconnect", RECONNECT)
        self._client = ProcessClient(partial(connect, url, **options))

    def close(self) -> None:
        """Close the connection of this process."""
        self._client.close()

    def get_result(self, message: Message[Any], *, block: bool = False, timeout: int | None = None) -> Any:
        """Return the result of a message; raises the error of its actor.

        :param block: wait for it.
        :param timeout: milliseconds to wait, 10 seconds by default.
        :raises ResultMissing: there is none yet; or ConnectionLost without a broker.
        :raises ResultTimeout: there was none in that time, perhaps since there was no broker.
        """
        end = time.monotonic() + (DEFAULT_TIMEOUT if timeout is None else timeout) / 1000
        key = self.build_message_key(message)
        if not block:
            found = self._client.get().get_value(key)
            if found is None:
                raise ResultMissing(message)
            return self.unwrap_result(self.encoder.decode(found.payload))
        while (left := end - time.monotonic()) > 0:
            try:
                found = self._client.get().get_value(key, wait=left)
            except Untrusted:
                raise
            except LOSSES:
                time.sleep(min(_PAUSE, left))
                continue
            if found is not None:
                return self.unwrap_result(self.encoder.decode(found.payload))
        raise ResultTimeout(message)

    def build_message_key(self, message: Message[Any]) -> str:
        """Return the key of a message's result: namespace, queue, actor and id as levels."""
        return f"{self.namespace}/{message.queue_name}/{message.actor_name}/{message.message_id}"

    def _store(self, message_key: str, result: Any, ttl: int) -> None:
        packed = Packed(self.encoder.encode(result))
        self._client.call(lambda client: client.put_value(message_key, packed, expires=ttl / 1000))
