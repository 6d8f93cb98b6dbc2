"""Selects dead letters by their ids and their stories."""

from dataclasses import dataclass

from fleximq.values.death import Death, storyOf
from fleximq.values.death_reason import DeathReason
from fleximq.values.message import Message


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Accepts the dead letters that fulfil all conditions; a condition that is None is fulfilled by all.

    :param ids: of their messages.
    :param consumer: the name of the client with the last delivery.
    :param before: they died before this time, in milliseconds since 1970, and not before ``after``.
    :param words: a part of the words of the consumer that rejected the message.
    """

    ids: frozenset[str] | None = None
    reason: DeathReason | None = None
    consumer: str | None = None
    before: int | None = None
    after: int | None = None
    words: str | None = None
    #: The queue in which they died.
    queue: str | None = None

    def accepts(self, message: Message) -> bool:
        """Tell whether a dead letter fulfils the conditions; without a story, as of an earlier version, only by id."""
        if self.ids is not None and message.message_id not in self.ids:
            return False
        if self._onlyIds:
            return True
        death = deathOf(message)
        return death is not None and self._acceptsStory(death)

    @property
    def _onlyIds(self) -> bool:
        others = self.reason, self.consumer, self.before, self.after, self.words, self.queue
        return all(each is None for each in others)

    def _acceptsStory(self, death: Death) -> bool:
        return (
            self.reason in (None, death.reason)
            and self.consumer in (None, death.consumer)
            and (self.before is None or death.last < self.before)
            and (self.after is None or death.last >= self.after)
            and self.queue in (None, death.queue)
            and (self.words is None or self.words in death.words)
        )


def deathOf(letter: Message) -> Death | None:
    """Return the story of a dead letter; None for one of an earlier version."""
    return None if letter.head is None else storyOf(letter.head.pairs)


#: Accepts all dead letters.
ALL_LETTERS = LetterFilter()
