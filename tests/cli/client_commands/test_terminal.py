"""What clients send does not reach a terminal as control characters."""

import os
import pty
import time

from tests.cli.client_commands.commands import PATIENCE, CommandCase, ran

#: A colour, a title of the window, C1, an override of the direction, a line separator, and DEL.
NASTY = "a\x1b[31m\x1b]0;x\x07\x9b1m\u202e\u2028\x7f"
SHOWN = r"a\x1b[31m\x1b]0;x\x07\x9b1m\u202e\u2028\x7f"


class TerminalTests(CommandCase):
    """Commands whose output is a pseudo-terminal."""

    def shown(self, *words: str, after: str = "", publish: dict[str, object] | None = None) -> str:
        """Return what a command shows; publish these once it is subscribed."""
        inside, outside = pty.openpty()
        self.addCleanup(os.close, inside)
        process = self.start(*words, stdout=outside, stderr=outside)
        os.close(outside)
        client = self.client()
        end = time.monotonic() + PATIENCE
        while publish and time.monotonic() < end:
            if any(row["subscriptions"] for row in client.ask("/broker/clients")["clients"]):
                break
            time.sleep(0.02)
        for topic, value in (publish or {}).items():
            client.publish(topic, value)
        client.flush()
        found = b""
        while True:
            try:
                piece = os.read(inside, 65536)
            except OSError:
                break
            if not piece:
                break
            found += piece
        process.wait(PATIENCE)
        return found.decode().replace("\r\n", "\n")

    def test_sub(self) -> None:
        """Topics and values are escaped; the line ends of a value too, if it has a title."""
        found = self.shown("sub", "#", "--count", "2", publish={NASTY: NASTY, "t": "x\ny: 1"})
        self.assertEqual(found, f"{SHOWN}: {SHOWN}\nt: x\\x0ay: 1\n")

    def test_lines(self) -> None:
        """The lines of a value without a title stay."""
        self.assertEqual(self.shown("sub", "t", "--count", "1", publish={"t": "x\n\ty"}), "x\n\ty\n")

    def test_bytes(self) -> None:
        """Neither does the form for bytes, without --raw."""
        words = ("sub", "t", "--count", "1", "--format", "raw")
        self.assertEqual(self.shown(*words, publish={"t": b"\x1b[1m\xff"}), r"\x1b[1m\xff")
        self.assertEqual(self.shown(*words, "--raw", publish={"t": b"\x1b[1m"}), "\x1b[1m")

    def test_json(self) -> None:
        """JSON has escapes of its own."""
        found = self.shown("sub", "#", "--count", "1", "--json", publish={NASTY: NASTY})
        self.assertIn(r'"a\u001b[31m\u001b]0;x\u0007\u009b1m\u202e\u2028\u007f"', found)
        self.assertTrue(found[:-1].isprintable())

    def test_tail(self) -> None:
        """A new topic's name."""
        found = self.shown("tail", "--count", "1", publish={NASTY + "\nb joined": 1})
        self.assertIn(f"topic {SHOWN}\\x0ab joined came into being\n", found)

    def test_answer(self) -> None:
        """An answer, and the sentence of an error."""
        client = self.client()
        client.serve("/nasty", lambda request: NASTY)
        self.assertEqual(self.shown("req", str(client.id), "/nasty"), SHOWN + "\n")
        self.assertIn(r"\x1b", self.shown("req", "broker", "/\x1b[31m"))

    def test_top(self) -> None:
        """The names in the table."""
        self.client().publish(NASTY, 1)
        found = self.shown("top", "--count", "1", "--interval", "0.1", "--rows", "3")
        self.assertNotIn("\x1b]0;x", found)

    def test_pipe(self) -> None:
        """A pipe gets what was sent."""
        client = self.client()
        client.serve("/nasty", lambda request: NASTY)
        self.assertEqual(ran("req", str(client.id), "/nasty").out.decode(), NASTY + "\n")
