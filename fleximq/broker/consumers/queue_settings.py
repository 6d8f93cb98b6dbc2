"""The queues of the settings file: their definitions are set as soon as the broker may write its journal, and clients
cannot change them.

A queue that is not in the file any more stays as it is, with its messages; from then on clients may change it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from fleximq.broker.consumers.work_queues import WorkQueues
from fleximq.broker.envelope import ConnectedClient
from fleximq.errors import BrokerError
from fleximq.values.queue_definition import QueueDefinition


class QueueSettings:
    """The definitions of the settings file, by the names of their queues.

    :param client: makes their topics.
    :param isOpen: whether the queues are restored; if not, call :meth:`opened` then.
    :param onError: called with the reason why a definition cannot be set.
    """

    def __init__(
        self, queues: WorkQueues, client: ConnectedClient, isOpen: bool, onError: Callable[[Exception], object]
    ) -> None:
        self._queues = queues
        self._client = client
        self._isOpen = isOpen
        self._onError = onError
        self._definitions: dict[str, QueueDefinition] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._definitions

    def check(self, definitions: Sequence[QueueDefinition]) -> None:
        """Raise the error of the first definition that the broker cannot set."""
        for definition in definitions:
            self._queues.check(definition)

    def settle(self, definitions: Sequence[QueueDefinition]) -> None:
        """Have these definitions, and no others of the settings file. A queue that was paused stays so, unless the
        definition says since now that it is not.
        """
        before, self._definitions = self._definitions, {each.name: each for each in definitions}
        if self._isOpen:
            for definition in definitions:
                self._define(definition, before.get(definition.name))

    def opened(self) -> None:
        """Set the definitions, as the queues are restored."""
        self._isOpen = True
        for definition in self._definitions.values():
            self._define(definition, None)

    def _define(self, definition: QueueDefinition, before: QueueDefinition | None) -> None:
        queue = self._queues.get(definition.name)
        isPaused = queue is not None and queue.definition is not None and queue.definition.paused
        if isPaused and (before is None or before.paused == definition.paused):
            definition = replace(definition, paused=True)
        try:
            self._queues.define(self._client, definition)
        except BrokerError as error:
            self._onError(error)
