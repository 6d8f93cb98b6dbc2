"""Who may ask for what, in which way, and what is answered to those who may not."""

from fleximq.errors import Unauthorized
from fleximq.security.principal import Admitted
from fleximq.web.request import HttpReply, Page, PageRequest
from tests.web.asking import JSON, Granted, SiteCase


class RightsTests(SiteCase):
    """Pages and permissions."""

    def test_whoMayReadPageGetsItNeverFromCache(self) -> None:
        """Who may read a page gets it, never from a cache."""
        self.admitted = Admitted(None, Granted("read:api/about"))
        answer = self.ask("GET /api/about")
        self.assertEqual((answer.code, answer.value["name"]), (200, "FlexiMQ"))
        self.assertEqual(answer.fields["cache-control"], "no-store")
        self.assertEqual(answer.fields["content-type"], "application/json; charset=utf-8")

    def test_notAllowed(self) -> None:
        """Everybody else is told that it is not permitted, for each page by itself."""
        for path, page in self.pages.items():
            if page.action is None:
                continue
            others = [name[1:] for name in self.pages if name != path]
            self.admitted = Admitted(None, Granted(*others))
            answer = self.post(path, {}) if page.post else self.ask(f"GET {path}")
            self.assertEqual((answer.code, answer.value), (403, {"error": "not permitted"}), path)

    def test_readIsNotAdmin(self) -> None:
        """To read a path is not to act there."""
        self.admitted = Admitted(None, Granted("read:api/queues/purge"))
        self.assertEqual(self.post("/api/queues/purge", {"topic": "a"}).code, 403)

    def test_credentialsRequired(self) -> None:
        """Who has shown none where some are required is asked for them."""
        self.admitted = None
        answer = self.ask("GET /metrics")
        self.assertEqual((answer.code, answer.value), (401, {"error": "credentials are required"}))
        self.assertIn("Basic", answer.fields["www-authenticate"])

    def test_rightsOfNow(self) -> None:
        """What counts are the rights when the request is whole, not those with which its head was let in."""
        self.renewed = lambda admitted: Admitted(None, Granted())
        self.assertEqual(self.post("/api/queues/purge", {"topic": "a"}).code, 403)

    def test_notAdmittedAnyMore(self) -> None:
        """Who would not be let in any more by then is refused."""

        def renewed(admitted: Admitted) -> Admitted:
            raise Unauthorized("not any more")

        self.renewed = renewed
        answer = self.post("/api/queues/purge", {"topic": "a"})
        self.assertEqual((answer.code, answer.value), (401, {"error": "not any more"}))

    def test_rootIsEverybodys(self) -> None:
        """The root is everybody's."""
        self.admitted = None
        self.assertEqual(self.ask("GET /").code, 200)

    def test_healthIsEverybodysAsWellButOnlyThoseWhoMayReadItAreToldWhy(self) -> None:
        """Health is everybody's as well, but only those who may read it are told why."""
        self.checks[0] = self.checks[0]._replace(good=False)
        everything = self.ask("GET /readyz")
        self.assertEqual((everything.code, everything.value["reasons"]), (503, ["one: fine"]))
        for admitted in (None, Admitted(None, Granted())):
            self.admitted = admitted
            answer = self.ask("GET /readyz")
            self.assertEqual((answer.code, answer.value), (503, {"status": "failing"}))

    def test_healthIs200WhenAllIsGood(self) -> None:
        """It is 200 when all is good."""
        answer = self.ask("GET /readyz")
        self.assertEqual((answer.code, answer.value["status"], answer.value["reasons"]), (200, "ok", []))


class MethodTests(SiteCase):
    """How pages are asked for."""

    def test_headTellsLengthAlone(self) -> None:
        """HEAD tells the length alone."""
        answer = self.ask("HEAD /api/settings")
        self.assertEqual((answer.code, answer.body), (200, b""))
        self.assertGreater(int(answer.fields["content-length"]), 100)

    def test_otherMethods(self) -> None:
        """What is read is not posted to, and the other way round."""
        self.assertEqual(self.ask("GET /api/queues/purge").fields["allow"], "POST")
        answer = self.post("/api/clients", {})
        self.assertEqual((answer.code, answer.fields["allow"]), (405, "GET, HEAD"))

    def test_unknownPath(self) -> None:
        """An unknown path of the API is answered in JSON, as its other errors."""
        answer = self.ask("GET /api/nope")
        self.assertEqual((answer.code, answer.value), (404, {"error": "no such path; /api/ lists them"}))

    def test_foreignPages(self) -> None:
        """No answer lets foreign pages read it, show it in a frame, guess its type or find it in a cache."""
        for line in (
            "GET /",
            "GET /api/about",
            "GET /metrics",
            "GET /nowhere",
            "GET /api/nowhere",
            "POST /",
            "POST /api/about",
            "OPTIONS /",
        ):
            for accept in ("text/html", "application/json"):
                fields = self.ask(line, f"Accept: {accept}", "Origin: https://evil.example").fields
                self.assertNotIn("access-control-allow-origin", fields)
                self.assertIn("frame-ancestors 'none'", fields["content-security-policy"])
                self.assertEqual(fields["cross-origin-resource-policy"], "same-origin")
                self.assertEqual(fields["x-content-type-options"], "nosniff")
                self.assertIn(fields["cache-control"], ("no-store", "no-cache") if line == "GET /" else ("no-store",))

    def test_noErrorRepeatsWhatWasAskedFor(self) -> None:
        """No error repeats what was asked for."""
        for line in ("GET /<b>?<i>", "GET /api/about?<b>", "POST /<b>", "<B> /", "GET /api/../<b>", "GET //etc/<b>"):
            self.assertNotIn(b"<b>", self.ask(line).body.lower(), line)

    def test_noPage(self) -> None:
        """Other paths are not there."""
        self.assertEqual(self.ask("GET /api/nothing").code, 404)

    def test_strangeBytes(self) -> None:
        """Bytes that are no UTF-8 are no failure, wherever they stand."""
        for field in ("Accept", "Origin", "Sec-Fetch-Site"):
            self.assertEqual(self.ask("GET /api/about", f"{field}: \xff\xfe").code, 200, field)
        self.assertEqual(self.ask("GET /", "Accept: \xff").code, 200)

    def test_notJson(self) -> None:
        """What is posted must be a JSON object."""
        for body in (b"{", b"[]", b"\xff", b"[" * 60_000):
            answer = self.ask("POST /api/queues/purge", JSON, body=body)
            self.assertEqual(answer.code, 400, body[:3])

    def test_whatNobodyForesawIsLoggedAndAnsweredWithoutWordAboutIt(self) -> None:
        """What nobody foresaw is logged, and answered without a word about it."""

        async def broken(visit: PageRequest) -> HttpReply:
            raise ValueError("a secret")

        self.pages = {"/api/x": Page(broken)}
        answer = self.ask("GET /api/x")
        self.assertEqual((answer.code, answer.value), (500, {"error": "internal error"}))
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)


class KindTests(SiteCase):
    """What a browser could be tricked into posting; foreign origins are refused before they reach the site."""

    def test_whatFormCanPostIsNotTaken(self) -> None:
        """What a form can post is not taken; JSON is, with whatever parameters."""
        for field in ("Content-Type: text/plain", "Content-Type: application/x-www-form-urlencoded", "X: y"):
            answer = self.ask("POST /api/queues/purge", field, body={"topic": "a"})
            self.assertEqual(answer.code, 415, field)
        field = "Content-Type: Application/JSON; charset=utf-8"
        self.assertEqual(self.ask("POST /api/queues/purge", field, body={"topic": "a"}).code, 404)
