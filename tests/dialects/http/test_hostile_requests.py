"""Requests of plain HTTP by foreign pages, by clients without credentials, and with bodies that grow."""

from fleximq.dialects.http.operations.bodies import MAX_LINES
from fleximq.dialects.http.routing.origins import Origins
from fleximq.limits import Limits
from fleximq.security.credentials import Token
from fleximq.security.principal import Principal
from tests.dialects.admissions import FakeAdmission
from tests.dialects.conversations import makeContext
from tests.dialects.http.case import HttpCase, answers, request, responses

LINES = "Content-Type: application/x-ndjson"
#: The fields of requests that foreign pages make, and of others.
FOREIGN: tuple[tuple[str, ...], ...] = (
    ("Sec-Fetch-Site: cross-site",), ("Sec-Fetch-Site: same-site",), ("Origin: https://evil.example",),
    ("Origin: http://127.0.0.1:3000",), ("Origin: null",),
)  # fmt: skip
OWN: tuple[tuple[str, ...], ...] = (
    (), ("Sec-Fetch-Site: none",), ("Origin: https://own.example", "Sec-Fetch-Site: cross-site"),
    ("Origin: http://127.0.0.1:7890", "Sec-Fetch-Site: same-origin"),
)  # fmt: skip


class ForeignPageTests(HttpCase):
    """What a browser sends for a page of another origin."""

    def setUp(self) -> None:
        """Admit the pages of one other origin."""
        super().setUp()
        self.open(self.context, Origins(frozenset({"https://own.example", "*"})))

    def test_reads(self) -> None:
        """A foreign page cannot even begin to read: that would subscribe, or take from a queue."""
        for line in ("GET /topics/demo", "HEAD /topics/demo", "POST /topics/demo", "OPTIONS /topics/demo"):
            for fields in FOREIGN:
                ((status, given, _),) = responses(self.join().ask(request(line, b"", *fields)))
                self.assertEqual((status, "access-control-allow-origin" in given), (403, False), (line, fields))
            for fields in OWN:
                ((status, _, _),) = responses(self.join().ask(request(line, b"", *fields)))
                self.assertNotEqual(status, 403, (line, fields))

    def test_answers(self) -> None:
        """No page shows an answer in a frame, loads it as a picture or a script, or runs what is in it."""
        for line, status in (("POST /topics/demo", 200), ("PUT /topics/demo", 405)):
            heard = self.join().ask(request(line, b"{}", "Content-Type: application/json"))
            for found, fields, _ in responses(heard):
                self.assertEqual(found, status)
                self.assertEqual(fields["cross-origin-resource-policy"], "same-origin")
                self.assertEqual(
                    fields["content-security-policy"], "default-src 'none'; frame-ancestors 'none'; sandbox"
                )
                self.assertEqual(fields["x-content-type-options"], "nosniff")


class CredentialsTests(HttpCase):
    """A broker that requires credentials."""

    def setUp(self) -> None:
        """Know one token."""
        super().setUp()
        self.open(makeContext(self.clock, admission=FakeAdmission({Token("good"): Principal("alice")})))

    def test_preflight(self) -> None:
        """Without credentials OPTIONS is answered, but keeps no connection."""
        peer = self.join()
        ((status, fields, _),) = responses(peer.ask(request("OPTIONS /topics/demo")))
        self.assertEqual((status, fields["connection"], peer.closed), (204, "close", True))
        known = self.join()
        known.ask(request("OPTIONS /topics/demo", b"", "Authorization: Bearer good"))
        self.assertFalse(known.closed)

    def test_noDialogue(self) -> None:
        """A browser does not ask its user for a password when a script is refused."""
        for field in ("Authorization: Bearer bad", "X: y"):
            for dest, schemes in (("empty", ["Bearer"]), ("script", ["Bearer"]), ("document", ["Basic", "Bearer"])):
                heard = self.join().ask(request("GET /topics/demo", b"", field, f"Sec-Fetch-Dest: {dest}"))
                found = [line for line in heard.decode().split("\r\n") if line.startswith("WWW-Authenticate: ")]
                self.assertEqual([line.split(" ")[1] for line in found], schemes, (field, dest))


class GrowingTests(HttpCase):
    """Bodies of many messages, each of which repeats the header."""

    settings = {"limits": Limits(message=100_000)}

    def test_header(self) -> None:
        """The messages of one request are together no larger than a message may be."""
        name = "a" * 900
        for count, status in ((100, 200), (120, 413)):
            heard = self.join().ask(request(f"POST /topics/{name}", b"1\n" * count, LINES))
            self.assertEqual(answers(heard)[0][0], status, count)

    def test_lines(self) -> None:
        """A body has a number of lines, so that other clients wait for a short time only."""
        self.open(makeContext(self.clock))
        for count, status in ((MAX_LINES, 200), (MAX_LINES + 1, 413)):
            heard = self.join().ask(request("POST /topics/a", b"1\n" * count, LINES))
            self.assertEqual(answers(heard)[0][0], status, count)
