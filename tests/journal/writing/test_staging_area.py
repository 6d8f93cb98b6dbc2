"""What is staged is seen by nobody until its batch is committed, and then once."""

from typing import Any

from fleximq.errors import NotKept
from fleximq.journal.writing import staging_area
from fleximq.journal.writing.staging_area import STAGED_LIFE
from tests.journal.journal_case import JournalCase, replayed
from tests.journal.steps import published

HOUR = 3600 * 1_000_000


class StagingCase(JournalCase):
    """``answers`` has what commits were told."""

    def setUp(self) -> None:
        super().setUp()
        self.answers: list[tuple[int, str | None]] = []

    def stage(self, *bodies: bytes, query: str = "q", batch: int = 1, part: str = "p") -> str:
        """Stage runs, let them be written, and return the token."""
        found: list[tuple[str | None, str | None]] = []
        run = [published(body, "out") for body in bodies]
        self.journal.stage(query, batch, part, run, lambda token, reason: found.append((token, reason)))
        self.steps.all()
        ((token, reason),) = found
        self.assertIsNone(reason)
        assert token is not None
        return token

    def commit(self, *tokens: str, query: str = "q", batch: int = 1, written: bool = True) -> None:
        """Commit a batch."""
        self.journal.commitStaged(query, batch, tokens, lambda offset, reason: self.answers.append((offset, reason)))
        if written:
            self.steps.all()

    def restart(self) -> Any:
        """Crash and begin again."""
        self.crash()
        return self.begin()


class CommitTests(StagingCase):
    """One transaction for each batch."""

    def test_invisible(self) -> None:
        """What is staged takes no offsets and is not read."""
        self.stage(b"ab", b"c")
        self.kept(b"x")
        self.assertEqual(self.records(), [(1, "a", b"x")])
        self.assertEqual(list(self.journal.bounds()), ["a"])

    def test_topics(self) -> None:
        """Whoever commits a batch can find out first what it is about; a restart does not matter."""
        self.stage(b"ab", b"c")
        self.restart()
        self.assertEqual(self.journal.stagedTopics("q", 1), {"out"})
        self.assertEqual(self.journal.stagedTopics("q", 2) | self.journal.stagedTopics("r", 1), set())

    def test_visible(self) -> None:
        """A commit makes all of its parts visible in the order of the tokens, behind what was kept before."""
        first, second = self.stage(b"ab", b"c"), self.stage(b"de", part="p2")
        self.kept(b"x")
        self.commit(second, first)
        self.kept(b"y")
        self.assertEqual(self.answers, [(2, None)])
        expected = [(2, b"d"), (3, b"e"), (4, b"a"), (5, b"b"), (6, b"c")]
        self.assertEqual([(offset, payload) for offset, topic, payload in self.records() if topic == "out"], expected)
        self.assertEqual(self.journal.bounds()["out"][:2], (2, 6))
        self.assertEqual((self.told[-1], self.journal.end), ((b"y", 7, None), 8))

    def test_manyFrames(self) -> None:
        """A part that takes several frames has one token."""
        bodies = [b"x" * 30_000] * 3
        self.commit(self.stage(*bodies))
        self.assertEqual(self.journal.end, 90_001)

    def test_nothing(self) -> None:
        """An empty batch is a batch."""
        self.commit()
        self.commit()
        self.assertEqual(self.answers, [(1, None), (1, None)])
        self.assertEqual(self.journal.end, 1)

    def test_again(self) -> None:
        """A repeated commit is answered the same and stores nothing, also after a crash and after clean stops."""
        token = self.stage(b"ab")
        self.commit(token)
        self.commit(token)
        self.restart()
        self.commit(token)
        self.journal.close()
        self.begin()
        self.commit(token)
        self.assertEqual(self.answers, [(1, None)] * 4)
        self.assertEqual(len(self.records()), 2)

    def test_againBeforeOwners(self) -> None:
        """A batch that an earlier version committed, without the principal, is not stored again."""
        self.commit(self.stage(b"ab"))
        self.commit(self.stage(b"ab", query="ann\nq"), query="ann\nq")
        self.commit(self.stage(b"c", query="ann\nq", batch=2), query="ann\nq", batch=2)
        self.commit(self.stage(b"d", batch=2), batch=2)
        self.assertEqual(self.answers, [(1, None), (1, None), (3, None), (4, None)])

    def test_manyQueries(self) -> None:
        """A principal's queries are remembered up to a number, those used last; they do not displace others."""
        self.patch(staging_area, "MAX_QUERIES", 2)
        for batch, query in enumerate(("other", "ann\na", "ann\nb", "ann\na", "bob\nc", "ann\nc")):
            self.commit(query=query, batch=batch)
        known = [each.query for each in self.journal.staging.committed]
        self.assertEqual(known, ["other", "ann\na", "bob\nc", "ann\nc"])

    def test_againMeanwhile(self) -> None:
        """So is one that comes while the first is being written, and not before that one."""
        token = self.stage(b"ab")
        self.commit(token, written=False)
        self.commit(token, written=False)
        self.assertEqual(self.answers, [])
        self.steps.all()
        self.assertEqual(self.answers, [(1, None)] * 2)

    def test_checkpointMeanwhile(self) -> None:
        """A checkpoint knows of no transaction that is only on its way: it may come to the disk without it."""
        self.journal.close()
        self.begin(segmentBytes=4096)
        token = self.stage(b"ab")
        self.append(b"x" * 200)
        self.commit(token, written=False)
        self.steps.step()
        opening = self.journal.group._writing[0].opening
        assert opening is not None
        self.assertEqual(opening.snapshot.committed, ())
        self.steps.all()
        self.kept(b"x" * 200)
        self.kept(b"x")
        self.assertEqual([each.batch for each in self.journal.staging.committed], [1])

    def test_twoOnTheirWay(self) -> None:
        """The next batch may follow before the first one is safe."""
        one, two = self.stage(b"a", batch=1), self.stage(b"b", batch=2)
        self.commit(one, batch=1, written=False)
        self.commit(two, batch=2, written=False)
        self.commit(two, batch=2)
        self.assertEqual(self.answers, [(1, None), (2, None), (2, None)])

    def test_otherQueries(self) -> None:
        """Queries do not know of each other."""
        one, two = self.stage(b"a"), self.stage(b"b", query="r")
        self.commit(one)
        self.commit(two, query="r")
        self.assertEqual(self.answers, [(1, None), (2, None)])

    def test_before(self) -> None:
        """A batch before the last one is refused."""
        self.commit(self.stage(b"a", batch=2), batch=2)
        self.commit(self.stage(b"b", batch=1), batch=1)
        self.assertEqual(self.answers[1], (0, "batch 1 comes before batch 2, which was committed"))

    def test_unknown(self) -> None:
        """A token that is unknown, of another batch, or named twice commits nothing."""
        token = self.stage(b"a")
        other = self.stage(b"b", batch=2)
        for tokens in (["77"], [token, other], [token, token], ["x"]):
            self.commit(*tokens)
        self.assertEqual([offset for offset, _ in self.answers], [0] * 4)
        self.assertIn("nothing is staged under", str(self.answers[0][1]))
        self.commit(token)
        self.assertEqual(self.answers[-1], (1, None))

    def test_afterRestart(self) -> None:
        """What was staged before a crash can be committed after it."""
        token = self.stage(b"ab")
        found = self.restart()
        self.assertEqual(replayed(found)[0], [])
        self.commit(token)
        self.assertEqual(self.answers, [(1_000_000_000, None)])
        self.assertEqual([payload for _, _, payload in self.records()], [b"a", b"b"])
        self.assertEqual([payload for _, payload in replayed(self.restart())[0]], [b"a", b"b"])


class AbortTests(StagingCase):
    """What will never be committed."""

    def test_abort(self) -> None:
        """An aborted batch cannot be committed, also not after a restart; another attempt at it can."""
        token = self.stage(b"a")
        self.journal.abortStaged("q", 1)
        self.steps.all()
        self.commit(token)
        self.restart()
        self.commit(token)
        self.assertEqual([offset for offset, _ in self.answers], [0, 0])
        self.commit(self.stage(b"b"))
        self.assertEqual([payload for _, _, payload in self.records()], [b"b"])

    def test_abortCommitted(self) -> None:
        """A batch that was committed stays so."""
        self.commit(self.stage(b"a"))
        self.journal.abortStaged("q", 1)
        self.steps.all()
        self.assertEqual(len(self.records()), 1)

    def test_abortNothing(self) -> None:
        """Nothing is written about a batch of which nothing is staged."""
        self.journal.abortStaged("q", 1)
        self.assertEqual(self.steps.work, [])

    def test_expires(self) -> None:
        """After 24 hours it is forgotten, not before; once a minute it is looked for."""
        old = self.stage(b"a")
        self.now += HOUR
        young = self.stage(b"b", batch=2)
        self.now += STAGED_LIFE - HOUR
        self.stage(b"c", batch=3)
        self.assertEqual(len(self.journal.segments.staged()), 3)
        self.now += 1
        self.stage(b"c", batch=3)
        self.assertEqual(len(self.journal.segments.staged()), 4)
        self.now += 60_000_000 - 1
        self.stage(b"c", batch=3)
        self.assertEqual(len(self.journal.segments.staged()), 4)
        self.commit(old)
        self.commit(young, batch=2)
        self.assertEqual([offset for offset, _ in self.answers], [0, 1])


class FaultTests(StagingCase):
    """When it cannot be kept."""

    def test_stage(self) -> None:
        """Whoever stages is told the reason, at the fault and afterwards."""
        self.files.fail("sync")
        found: list[Any] = []
        for _ in range(2):
            self.journal.stage("q", 1, "p", [published(b"x")], lambda *answer: found.append(answer))
            self.steps.all()
        self.assertEqual(found, [(None, "input/output error")] * 2)

    def test_commit(self) -> None:
        """A commit that failed is not remembered: when all is well again the batch can be committed, once."""
        token = self.stage(b"ab")
        self.files.fail("sync")
        self.commit(token, written=False)
        self.commit(token)
        self.assertEqual(self.answers, [(0, "input/output error")] * 2)
        self.assertRaises(NotKept, self.commit, token)
        self.files.heal()
        self.journal.reopen(lambda reason: None)
        self.steps.all()
        self.commit(token)
        self.commit(token)
        self.assertEqual(self.answers[2:], [(1_000_000_000, None)] * 2)
        self.assertEqual(len(self.records()), 2)

    def test_readOnlyAbort(self) -> None:
        """An abort while nothing can be kept changes nothing."""
        self.stage(b"a")
        self.files.fail("sync")
        self.kept(b"x")
        self.journal.abortStaged("q", 1)
        self.assertEqual(self.steps.work, [])
