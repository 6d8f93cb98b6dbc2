"""Whatever happens, in whichever order, what was acknowledged is there, at its offset, once."""

from hypothesis import given, settings
from hypothesis import strategies as st

from fleximq.errors import JournalError, NotKept
from tests.journal.journal_case import JournalCase
from tests.nightly import repetitions

OPERATIONS = ("write", "sync", "create", "syncFolder", "write", "sync", "truncate", "remove")

APPEND = st.tuples(st.just("append"), st.integers(1, 60))
STEP = st.tuples(st.just("step"), st.integers(1, 3))
STEPS = st.lists(
    st.one_of(
        APPEND,
        STEP,
        APPEND,
        STEP,
        st.tuples(st.just("fail"), st.sampled_from(OPERATIONS), st.integers(0, 2)),
        st.tuples(st.sampled_from(["heal", "reopen", "crash", "restart"])),
    ),
    min_size=12,
    max_size=40,
)


class ModelTests(JournalCase):
    """The real journal in steps, on files that fail at random."""

    def setUp(self) -> None:
        super().setUp()
        self.journal.close()

    @settings(max_examples=repetitions(80, 1000), deadline=None)
    @given(STEPS)
    def test_whatever(self, steps: list[tuple[object, ...]]) -> None:
        """Nothing acknowledged is lost, moved or given twice; nothing is there that nobody appended."""
        self.folder = self.mktemp()
        self.files.heal()
        del self.told[:]
        self.appended: list[bytes] = []
        self.readOnlyFrom: int | None = None
        self.cannotCut = False
        self.begin(segmentBytes=2000)
        try:
            for name, *arguments in steps:
                getattr(self, f"do_{name}")(*arguments)
                self.check()
            self.files.heal()
            self.do_crash()
            self.compare()
        finally:
            self.files.heal()
            self.crash()

    # -- what happens ------------------------------------------------------------------------------

    def do_append(self, size: int) -> None:
        """Append a run that no other one is like."""
        body = bytes([len(self.appended) % 251]) * size
        try:
            self.append(body)
        except NotKept:
            return
        self.appended.append(body)

    def do_step(self, number: int) -> None:
        """Let the writer work."""
        for _ in range(number):
            if self.steps.work:
                self.steps.step()

    def do_fail(self, operation: str, after: int) -> None:
        """Let something fail from some call on."""
        self.cannotCut |= operation in ("truncate", "remove")
        self.files.fail(operation, after)

    def do_heal(self) -> None:
        """Let all work again."""
        self.files.heal()

    def do_reopen(self) -> None:
        """Try to keep things again."""
        self.journal.reopen(lambda reason: None)

    def do_crash(self) -> None:
        """Die, and start again as soon as the disk lets us."""
        self.crash()
        self.startAgain()

    def do_restart(self) -> None:
        """Stop in order, and start again."""
        self.journal.close()
        self.startAgain()

    def startAgain(self) -> None:
        """Begin, with a disk that works if it has to be."""
        try:
            self.begin(segmentBytes=2000)
        except JournalError:
            self.journal.close()
            self.files.heal()
            self.begin(segmentBytes=2000)

    # -- what has to be so -------------------------------------------------------------------------

    def check(self) -> None:
        """Nobody is told of an offset twice, nor of anything while nothing is kept."""
        offsets = [offset for _, offset, reason in self.told if reason is None]
        self.assertEqual(offsets, sorted(set(offsets)))
        readOnly = self.journal.health()["state"] == "read-only"
        if readOnly and self.readOnlyFrom is not None:
            self.assertEqual(len(offsets), self.readOnlyFrom)
        self.readOnlyFrom = len(offsets) if readOnly else None

    def compare(self) -> None:
        """All that was acknowledged is there, whole; what was refused only if it could not be cut off."""
        records = {offset: payload for offset, _, payload in self.records()}
        known = self.appended if self.cannotCut else [body for body, _, reason in self.told if reason is None]
        self.assertLessEqual({payload[0] for payload in records.values()}, set(b"".join(known)))
        for body, offset, reason in self.told:
            if reason is None:
                found = [records.get(offset + place) for place in range(len(body))]
                self.assertEqual(b"".join(found), body)  # type: ignore[arg-type]
