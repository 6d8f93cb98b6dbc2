"""A blocking client whose jobs are read by kombu, and which does not reconnect: kombu does."""

from collections.abc import Callable, Mapping
from typing import Any

from fleximq.client.blocking.thread_client import ThreadClient
from fleximq.client.jobs import Job
from fleximq.client.protocol.consumers import JobBox
from fleximq.client.settings import State
from fleximq.client.wrapper import completed


class KombuClient(ThreadClient):
    """The operations of a client that kombu needs, in any thread."""

    def fileno(self) -> int:
        """Return the descriptor of the socket."""
        return self._connection.fileno()

    @property
    def isConnected(self) -> bool:
        """Whether it is connected."""
        return self._clientState.state is State.JOINED

    def box(self, queue: str) -> JobBox | None:
        """Return the unread jobs of a queue from which the client consumes."""
        return self._clientState.consumers.boxes.get(queue)

    def take(self, box: JobBox) -> Job | None:
        """Remove and return the next job; None without one."""
        with self._lock:
            return self._clientState.consumers.next(box)

    def setPrefetch(self, box: JobBox, prefetch: int) -> None:
        """Change the maximum number of unsettled deliveries of a queue."""
        with self._lock:
            self._clientState.setPrefetch(box, prefetch)
        self._connection.writePending()

    def stopConsuming(self, box: JobBox) -> None:
        """Be a consumer of a queue no more; unsettled deliveries return to it."""
        self._unsubscribe(box)

    def waitFor(self, ready: Callable[[], object], timeout: float | None) -> None:
        """Read until ``ready`` or for so many seconds; 0 reads available bytes. Raises ConnectionLost."""
        self._sendSettlements()
        self._connection.waitFor(ready, timeout, needed=False)

    def settleNow(self) -> None:
        """Send the settlements so far."""
        self._sendSettlements()

    def send(self, topic: str, payload: bytes, fields: Mapping[str, Any]) -> None:
        """Publish a message, and wait until the broker has it; raises PublishFailed or ConnectionLost."""
        completed(self._post(len(payload), lambda conversation: conversation.publication(topic, payload, fields)))
        completed(self.flush())
