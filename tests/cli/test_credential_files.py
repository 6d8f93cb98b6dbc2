"""``fleximq apikey`` and ``fleximq token``."""

from fleximq.security.checkers.hashed_secrets import LONGEST, hashOf
from tests.cli.test_passwd import CommandCase, Input


class KeysTests(CommandCase):
    """Secrets that are made, or taken from standard input."""

    def make(self, *words: str, command: str = "apikey") -> str:
        """Make a secret, and return it."""
        code, out, err = self.run_(command, str(self.path), *words)
        self.assertEqual((code, err), (0, ""))
        return out.rstrip("\n")

    def lines(self) -> list[str]:
        """Return the lines of the file."""
        return self.path.read_text().splitlines()

    def test_made(self) -> None:
        """A secret is long and new, shown once, and hashed in the file."""
        for command, prefix in (("apikey", "fmqk_"), ("token", "fmqt_")):
            secrets = [self.make("alice", "--roles", "ops", command=command) for _ in range(2)]
            self.assertNotEqual(*secrets)
            for secret in secrets:
                self.assertRegex(secret, f"^{prefix}[A-Za-z0-9_-]{{43}}$")
            self.assertEqual(self.lines(), [f"alice:{hashOf(secrets[1])}:ops"])

    def test_beside(self) -> None:
        """A new one takes the place of all old ones, unless they are to stay; roles stay as they are."""
        first = self.make("alice", "--roles", "ops")
        self.make("bob")
        second = self.make("alice", "--beside")
        self.assertEqual(
            [self.lines()[0], self.lines()[2]], [f"alice:{hashOf(first)}:ops", f"alice:{hashOf(second)}:ops"]
        )
        third = self.make("alice")
        self.assertEqual((len(self.lines()), self.lines()[1]), (2, f"alice:{hashOf(third)}:ops"))

    def test_deleted(self) -> None:
        """All of a name are taken out together."""
        for words in (("alice",), ("alice", "--beside"), ("bob",)):
            self.make(*words)
        self.assertEqual(self.make("alice", "--delete"), f"alice is not in {self.path} any more")
        self.assertEqual([line.split(":")[0] for line in self.lines()], ["bob"])
        self.assertEqual(self.run_("token", str(self.path), "alice", "--delete")[0], 1)

    def test_given(self) -> None:
        """A secret that there is already can be taken over; a short one is worth a word."""
        long = "x" * 22
        for secret, warned in ((long, False), (long[1:], True)):
            code, out, err = self.run_("apikey", str(self.path), "alice", "--stdin", input=Input(f"{secret}\n"))
            self.assertEqual(
                (code, out, "can guess it" in err), (0, f"the API key of alice is set in {self.path}\n", warned)
            )
            self.assertEqual(self.lines(), [f"alice:{hashOf(secret)}"])

    def test_wrong(self) -> None:
        """Nobody gets another's secret; none is empty or too long."""
        self.run_("token", str(self.path), "alice", "--stdin", input=Input("the very same secret, long\n"))
        for name, given, words in (
            ("bob", "the very same secret, long\n", "alice has just this secret already"),
            ("bob", "", "the token at standard input is empty"),
            ("bob", "x" * (LONGEST + 1) + "\n", f"the token has more than {LONGEST} characters"),
        ):
            code, _, err = self.run_("token", str(self.path), name, "--stdin", input=Input(given))
            self.assertEqual((code, err), (1, f"fleximq: {words}\n"))
        self.assertEqual(len(self.lines()), 1)
