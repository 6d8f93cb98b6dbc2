"""The sources of work queues: which topics fill a queue, in the topic table and when the journal is replayed.

A queue always receives the topic of its own name, also if that looks like a pattern; further sources are topics and
patterns. A message that several sources match arrives once, as a topic has a queue once among its subscribers. Returned
dead letters arrive by the topic that feeds this queue alone, to which it is subscribed only meanwhile.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from fleximq.broker.consumers.work_queue import WorkQueue
from fleximq.broker.queues.queue_state import QueueState
from fleximq.broker.topics.names import checkName, checkPattern, isBrokerTopic
from fleximq.broker.topics.topic_table import TopicTable
from fleximq.errors import BadRequest
from fleximq.limits import DEAD, FEED, SUBSCRIPTION_FEED
from fleximq.values.patterns import anyOf, isPattern
from fleximq.values.queue_definition import QueueDefinition

#: Maximum number of topics whose states are remembered.
_KNOWN = 10_000


def divided(name: str, sources: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the topics and the patterns among the sources of a queue."""
    patterns = [each for each in sources if each != name and isPattern(each)]
    return [each for each in sources if each not in patterns], patterns


def check(definition: QueueDefinition) -> None:
    """Check the names of sources, and of dead letters: they must not come back; raises InvalidTopic or BadRequest."""
    topics, patterns = divided(definition.name, definition.sources)
    for topic in topics:
        checkName(topic)
    for pattern in patterns:
        checkPattern(pattern)
    letters = definition.dead_letters
    if letters is not None and letters != DEAD + definition.name:
        if isBrokerTopic(letters):
            raise BadRequest(f"dead_letters is {letters!r}, but only the broker publishes to topics of this name")
        if letters in topics or (patterns and anyOf(patterns)(letters)):
            raise BadRequest(f"dead_letters is {letters!r}, but messages of this topic fill the queue itself")


def subscribe(topics: TopicTable, queue: WorkQueue) -> None:
    """Let a queue receive its sources; as a guard of them if it refuses messages when it is full."""
    guard: Any = queue if queue.refuses else None
    names, patterns = divided(queue.name, queue.sources)
    for name in names:
        topics.subscribe(queue, name, guard, queue=True, durable=queue.durable)
    for pattern in patterns:
        topics.subscribePattern(queue, pattern, guard, queue=True, durable=queue.durable)
    if patterns:
        topics.others.add(queue)


def unsubscribe(topics: TopicTable, queue: WorkQueue) -> None:
    """Undo :func:`subscribe`; call it before the definition changes."""
    names, patterns = divided(queue.name, queue.sources)
    for pattern in patterns:
        topics.unsubscribePattern(queue, pattern, queue=True)
    topics.others.discard(queue)
    for name in names:
        topics.unsubscribe(queue, name, queue=True)


def topicsOf(queue: WorkQueue, existing: Collection[str]) -> list[str]:
    """Return the topics that fill a queue, with that of its returned dead letters; of its patterns those that exist and
    match.
    """
    names, patterns = divided(queue.name, queue.sources)
    names += [each for each in (FEED + queue.name,) if each in existing]
    if not patterns:
        return names
    matches = anyOf(patterns)
    return [*names, *(each for each in existing if matches(each) and each not in names)]


class RestoredSources:
    """The states of queues while the journal is replayed, found by the topic of a record."""

    def __init__(self) -> None:
        self.definitions: dict[str, QueueDefinition] = {}
        self._byTopic: dict[str, list[QueueState]] = {}
        self._byPattern: list[tuple[Callable[[str], bool], QueueState]] = []
        self._known: dict[str, Sequence[QueueState]] = {}

    def sourcesOf(self, state: QueueState) -> tuple[list[str], list[str]]:
        """Return the topics and the patterns that fill the queue of a state."""
        if state.isSubscription:
            return [state.topic, f"{SUBSCRIPTION_FEED}{state.id}"], []
        definition = self.definitions.get(state.topic)
        names, patterns = divided(state.topic, (state.topic,) if definition is None else definition.sources)
        return [*names, FEED + state.topic], patterns

    def hasLanes(self, state: QueueState) -> bool:
        """Whether messages of other priorities than the usual one are in lanes of their own."""
        definition = self.definitions.get(state.topic)
        isOrdered = definition is not None and definition.ordered_by is not None
        return state.key.startswith("q:") and not (isOrdered or state.topic.startswith(DEAD))

    def add(self, state: QueueState) -> None:
        """Add a state, with the definition that its queue has now."""
        names, patterns = self.sourcesOf(state)
        for name in names:
            self._byTopic.setdefault(name, []).append(state)
            self._known.pop(name, None)
        if patterns:
            self._byPattern.append((anyOf(patterns), state))
            self._known.clear()

    def remove(self, state: QueueState) -> None:
        """Remove a state; its queue must still have the definition that it was added with."""
        names, patterns = self.sourcesOf(state)
        for name in names:
            self._byTopic[name].remove(state)
            self._known.pop(name, None)
        if patterns:
            self._byPattern = [each for each in self._byPattern if each[1] is not state]
            self._known.clear()

    def of(self, topic: str) -> Sequence[QueueState]:
        """Return the states that receive this topic, each once."""
        if not self._byPattern:
            return self._byTopic.get(topic, ())
        found = self._known.get(topic)
        if found is None:
            matching = [state for matches, state in self._byPattern if matches(topic)]
            exact = self._byTopic.get(topic, [])
            found = [*exact, *(each for each in matching if each not in exact)]
            if len(self._known) >= _KNOWN:
                self._known.clear()
            self._known[topic] = found
        return found

    def matching(self, state: QueueState) -> Callable[[str], bool]:
        """Return whether a topic fills the queue of a state."""
        names, patterns = self.sourcesOf(state)
        matches = anyOf(patterns) if patterns else None
        return lambda topic: topic in names or (matches is not None and matches(topic))
