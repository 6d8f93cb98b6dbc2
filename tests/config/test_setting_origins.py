"""The lines of a settings file."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.setting_origins import Origin, linesOf, originsIn

FILE = """\
# keepalive = 1
keepalive = 5
"redelivery" = 6
listen = [
    "keepalive=7",  # no key
    "tcp:1",
]
  history=3

[roles.a]
publish = ["x"]
history = 9
[[queues]]
[ roles . b ]
"""


class LinesTests(SynchronousTestCase):
    """Where a key is set."""

    def test_keys(self) -> None:
        """Keys of the top level, and tables, have the line in which they are first."""
        found = {"keepalive": 2, "redelivery": 3, "listen": 4, "history": 8, "roles": 10, "queues": 13}
        self.assertEqual(linesOf(FILE), found)

    def test_origins(self) -> None:
        """A setting whose line is not found has none."""
        found = originsIn("f.toml", FILE, ["listen", "other"])
        self.assertEqual(found, {"listen": Origin("file", "f.toml", 4), "other": Origin("file", "f.toml", None)})
