"""The stories of dead letters in their headers."""

import msgpack
from twisted.trial.unittest import SynchronousTestCase

from fleximq.values.death import WORDS_BYTES, Death, returnedPairs, shortWords, storyIn, storyOf
from fleximq.values.death_reason import DeathReason

DEATH = Death("jobs", DeathReason.REJECTED, 3, 1_000, 2_000, "fleximq-1000", "no money", "shop.jobs")
#: More than any header.
ANY = 1 << 20


class StoryTests(SynchronousTestCase):
    """They are added to a header, read and removed."""

    def test_storyIsTheLastPair(self) -> None:
        """It follows the publisher's own pairs, whose bytes stay as they are."""
        pairs = msgpack.packb({"x": [1, {}], "key": "k"})
        found = storyIn(pairs, DEATH, None, ANY)
        self.assertEqual([*msgpack.unpackb(found)], ["x", "key", "death"])
        self.assertIn(pairs[1:], found)
        self.assertEqual(storyOf(found), DEATH)
        returned = msgpack.unpackb(returnedPairs(found, "shop.jobs"))
        self.assertEqual(returned, {"x": [1, {}], "key": "k", "topic": "shop.jobs"})

    def test_whatIsNotKnownIsLeftOut(self) -> None:
        """A story without consumer and words has no such keys."""
        death = Death("t", DeathReason.ATTEMPTS, 20, 1, 2)
        found = msgpack.unpackb(storyIn(b"", death, None, ANY))
        self.assertEqual(found, {"death": {"queue": "t", "reason": "attempts", "attempts": 20, "first": 1, "last": 2}})

    def test_idIsThatOfTheMessage(self) -> None:
        """The id by which consumers knew the message replaces that of the header."""
        found = storyIn(msgpack.packb({"message_id": "no uuid", "x": 1}), DEATH, "m-1", ANY)
        self.assertEqual({**msgpack.unpackb(found), "death": 0}, {"x": 1, "message_id": "m-1", "death": 0})

    def test_storyReplacesAnEarlierOne(self) -> None:
        """A message that was returned and died again has one story, as has one whose publisher had such a key."""
        for pairs in (storyIn(b"", DEATH, None, ANY), msgpack.packb({"death": "mine"})):
            found = storyIn(pairs, DEATH._replace(attempts=9), None, ANY)
            self.assertEqual((storyOf(found), [*msgpack.unpackb(found)]), (DEATH._replace(attempts=9), ["death"]))

    def test_longHeadersLoseTheWordsFirst(self) -> None:
        """If there is no room, the words are left out, then the publisher's pairs."""
        pairs = msgpack.packb({"x": "y" * 300})
        whole = storyIn(pairs, DEATH, "m", ANY)
        self.assertEqual(storyIn(pairs, DEATH, "m", len(whole)), whole)
        shorter = storyIn(pairs, DEATH, "m", len(whole) - 1)
        self.assertEqual([*msgpack.unpackb(shorter)], ["x", "message_id", "death"])
        self.assertEqual(storyOf(shorter), DEATH._replace(words=""))
        self.assertEqual([*msgpack.unpackb(storyIn(pairs, DEATH, "m", 300))], ["message_id", "death"])

    def test_headersOfPublishersHaveNoStory(self) -> None:
        """A publisher's own key of this name is none."""
        values: list[object] = [{"x": "death"}, {"death": 1}, {"death": {}}, {"death": {"reason": "no"}}]
        for value in values:
            self.assertIsNone(storyOf(msgpack.packb(value)), value)
        for pairs in (b"", b"\xa5death", b"\xc1death"):
            self.assertIsNone(storyOf(pairs))

    def test_wordsHaveABound(self) -> None:
        """They are cut between two characters."""
        self.assertEqual(shortWords("short"), "short")
        self.assertEqual(len(shortWords("x" * WORDS_BYTES + "y")), WORDS_BYTES)
        self.assertEqual(shortWords("x" * (WORDS_BYTES - 1) + "\u20ac"), "x" * (WORDS_BYTES - 1))
