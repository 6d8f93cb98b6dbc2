"""``fleximq values``."""

import json

from tests.cli.client_commands.commands import CommandCase, ran


class ValueCommandTests(CommandCase):
    """Of a broker without a journal."""

    def test_valuesArePutAndGot(self) -> None:
        """In the formats of the command line; an absent one is told by the exit code."""
        put = ran("values", "put", "a/b", '{"n": 1}', "--as", "json", "--json")
        revision = json.loads(put.out)["revision"]
        self.assertEqual(json.loads(ran("values", "get", "a/b", "--format", "json").out), {"n": 1})
        row = json.loads(ran("values", "get", "a/b", "--json").out)
        self.assertEqual(row, {"key": "a/b", "revision": revision, "value": {"n": 1}})
        self.assertEqual(ran("values", "get", "none"), (1, b"", "fleximq: there is no value of none\n"))
        self.assertEqual(ran("values", "get", "none", "--wait", "0.01").code, 1)

    def test_theList(self) -> None:
        """Of all keys, with their times."""
        ran("values", "put", "a", "1", "--expires", "3600")
        ran("values", "put", "b", "2")
        rows = [json.loads(line) for line in ran("values", "--json").lines]
        self.assertEqual([(row["key"], row["expires"] is None) for row in rows], [("a", False), ("b", True)])
        self.assertIn("never", ran("values", "ls").out.decode())
        self.assertEqual(len(ran("values", "ls", "--prefix", "b", "--json").lines), 1)

    def test_conditions(self) -> None:
        """A changed value is one sentence."""
        self.assertEqual(ran("values", "put", "a", "1", "--if-revision", "0").code, 0)
        again = ran("values", "put", "a", "1", "--if-revision", "0")
        self.assertEqual(again.code, 1)
        self.assertIn("409", again.err)

    def test_sumsAndRemoval(self) -> None:
        """The sum is printed."""
        self.assertEqual(ran("values", "add", "n").out, b"1\n")
        self.assertEqual(json.loads(ran("values", "add", "n", "41", "--json").out), {"key": "n", "sum": 42})
        self.assertEqual([ran("values", "rm", "n").code for _ in range(2)], [0, 1])
