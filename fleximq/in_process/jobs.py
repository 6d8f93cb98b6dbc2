"""The jobs of clients in the process: consumers of queues, whose deliveries the program settles.

Deliveries arrive during an operation of the broker and are only stored; the program reads them in a later turn.
"""

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

from twisted.internet.interfaces import IReactorTime

from fleximq.broker.broker import Broker
from fleximq.broker.envelope import ConnectedClient, QueueDelivery
from fleximq.broker.paths.settlement import settle
from fleximq.client.errors import NotSettled
from fleximq.client.jobs import Job, acknowledgeHanded
from fleximq.client.protocol.consumers import Consumers, JobBox
from fleximq.client.protocol.conversation import Conversation
from fleximq.dialects.fleximq.delivery_form import DeliveryForm
from fleximq.errors import BrokerError
from fleximq.in_process.subscription import Subscription
from fleximq.status import Status

_log = logging.getLogger(__name__)


class InProcessConsumers:
    """The consumers of one client."""

    def __init__(self, broker: Broker, conversation: Conversation) -> None:
        self._broker = broker
        self._conversation = conversation
        self._consumers = Consumers(self._settle)
        self._client: ConnectedClient | None = None

    def open(self, client: ConnectedClient, queue: str, prefetch: int, topic: str | None) -> JobBox:
        """Become a consumer; errors as :meth:`fleximq.in_process.client.InProcessClient.consume`."""
        self._client = client
        box = self._consumers.open(queue, prefetch)
        deliver, ended = partial(self._deliver, DeliveryForm(queue)), partial(self._lost, box)
        try:
            self._broker.consumeFrom(client, queue, deliver, ended, prefetch, topic)
        except BaseException:
            self._consumers.close(box)
            raise
        return box

    def take(self, box: JobBox) -> Job:
        """Remove and return the next job of a box that has some."""
        return cast(Job, self._consumers.next(box))

    def close(self, box: JobBox) -> None:
        """Be a consumer no more; unsettled jobs return to their queue."""
        if self._consumers.close(box) and self._client is not None:
            self._broker.stopConsuming(self._client, box.topic)

    def end(self, error: BrokerError | None) -> None:
        """End all consumers with the client, with its error or None."""
        self._client = None
        self._consumers.closeAll(True if error is None else error)
        self._consumers.lose()

    def _lost(self, box: JobBox, error: BrokerError) -> None:
        self._consumers.close(box, error)

    def _deliver(self, form: DeliveryForm, deliveries: Sequence[QueueDelivery]) -> None:
        for run in self._conversation.runs(form.render(deliveries)):
            if isinstance(run, list):
                for each in run:
                    self._consumers.put(each)

    def _settle(self, job: Job, kind: str, more: Any) -> None:
        self._consumers.add(job, kind, more)
        for settlement in self._consumers.take():
            if self._client is None or settle(self._broker, self._client, settlement):
                words = f"the job {job.tag} of {job.queue!r} is not this client's any more"
                raise NotSettled(Status.NOT_FOUND, words, job.queue)


class Jobs(Subscription[Job]):
    """The jobs of a queue, in order: iterate over it with ``async for``, or call :meth:`next`.

    Each of both acknowledges the previous job, unless it is settled. If a loop ends early, its last job is not
    acknowledged; :meth:`close` returns it to the queue. After the end of the consumer the error of its end is raised.
    """

    def __init__(self, box: JobBox, consumers: InProcessConsumers, clock: IReactorTime) -> None:
        super().__init__(box, consumers, clock, consumers.close)
        self._handed: Job | None = None

    @property
    def queue(self) -> str:
        """The queue."""
        return self.topic

    async def __anext__(self) -> Job:
        job = await self._next(None)
        if job is None:
            raise StopAsyncIteration
        return job

    async def _next(self, timeout: float | None) -> Job | None:
        handed, self._handed = self._handed, None
        acknowledgeHanded(handed, _log)
        self._handed = await super()._next(timeout)
        return self._handed
