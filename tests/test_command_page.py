"""The examples of docs/guides/command-line.rst do what the page says, against a running broker."""

import json
from unittest import SkipTest

from fleximq.cli.client_commands.broker_options import KEYS, profile
from fleximq.cli.commands import COMMANDS
from tests import readme
from tests.pages import ROOT, ShellCase
from tests.pipeline.local_query.needed import missing
from tests.pipeline.written import Written


class ExamplesTests(ShellCase):
    """Each example in a shell."""

    text = (ROOT / "docs" / "guides" / "command-line.rst").read_text()

    def test_commands(self) -> None:
        """Every command is spoken of."""
        for name in COMMANDS:
            self.assertTrue(f"``{name}``" in self.text or f"fleximq {name} " in self.text, name)

    def test_publish(self) -> None:
        """What is published in one terminal is shown in the other."""
        shows = self.start(self.code("sub"))
        self.untilSubscribed()
        self.done(self.code("pub"))
        wanted = readme.printed(self.text, "sub").splitlines()
        self.assertEqual(self.lines(shows, len(wanted)), wanted)

    def test_ask(self) -> None:
        """A service of the shell answers."""
        serves = self.start(self.code("serve"))
        assert serves.stderr is not None
        said = serves.stderr.readline()
        self.assertIn("answers /upper; ask it: fleximq req ", said)
        code = self.code("req").replace("1004", said.split()[1])
        self.assertEqual(self.done(code), readme.printed(self.text, "req"))

    def test_others(self) -> None:
        """All others end well."""
        for name in ("count", "notify", "ping", "bench", "url", "completion", "doctor"):
            self.done(self.code(name))
        self.assertTrue(self.done(self.code("queue")).endswith("\nsweep the yard\n"))
        self.assertEqual(json.loads(self.done(self.code("about")))["name"], "FlexiMQ")
        self.assertIn("rate", json.loads(self.done(self.code("top"))))
        self.assertIn("fleximq", (self.folder / ".local/share/bash-completion/completions/fleximq").read_text())

    def test_sql(self) -> None:
        """A query over a journal shows the table."""
        if missing:
            raise SkipTest(missing)
        written = Written(str(self.folder / "journal"))
        for topic in ("news", "sport", "news"):
            written.kept(topic, b"\xa1a")
        self.assertEqual(self.done(self.code("sql")), readme.printed(self.text, "sql"))

    def test_profiles(self) -> None:
        """The file of profiles can be read, and the page names everything that may stand there."""
        path = self.folder / "profiles.toml"
        path.write_text(readme.saved(self.text, "profiles"))
        self.assertEqual(profile(path, "default"), {"url": "tcp://localhost:7890"})
        self.assertEqual(profile(path, "work")["user"], "alice")
        for key in KEYS:
            self.assertIn(f"``{key}``", self.text)
