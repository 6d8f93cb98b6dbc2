"""Sign-in and sign-out of the console, its cookie and its token."""

from collections.abc import Mapping
from typing import Any

from twisted.internet.defer import Deferred
from zope.interface import implementer

from fleximq.errors import JoinRejected, Unauthorized
from fleximq.interfaces import IAdmission
from fleximq.rights import EVERYTHING, Action
from fleximq.security.credentials import ApiKey, Password, Token
from fleximq.security.principal import Admitted, Principal
from fleximq.web.request import HttpReply, Page, PageRequest, jsonReply
from fleximq.web.sign_in import SignIn
from tests.web.asking import JSON, Answer, Granted, SiteCase

ANN = {"name": "ann", "password": "secret"}
COOKIE = "fleximq_session_7890"


@implementer(IAdmission)
class FakeAdmission:
    """Admits with known credentials, later; ``revoked`` are not admitted any more."""

    required = True

    def __init__(self) -> None:
        self.revoked: set[str] = set()
        self.asked: list[Any] = []
        self.known: dict[Any, Admitted] = {}

    def refusal(self, address: Any) -> str | None:
        """Refuse no address."""
        return None

    def admit(self, credentials: Any, address: Any) -> Any:
        """Return a Deferred."""
        self.asked.append((credentials, address))
        found: Deferred[Any] = Deferred()
        if credentials in self.known:
            found.callback(self.known[credentials])
        else:
            found.errback(Unauthorized("these credentials are not valid here"))
        return found

    def renewed(self, admitted: Admitted) -> Admitted:
        """Refuse those who were revoked."""
        if admitted.principal is not None and admitted.principal.name in self.revoked:
            raise JoinRejected("this client is banned")
        return admitted


class SignInCase(SiteCase):
    """A site that requires credentials; ``ann`` has all rights."""

    def setUp(self) -> None:
        """Ann, Bob without rights, and a page to change things."""
        super().setUp()
        self.admission = FakeAdmission()
        self.ways: tuple[Any, ...] = (Password, Token)
        self.renewed = self.admission.renewed
        self.admitted = None
        self.changes: list[str] = []
        self.admission.known = {
            Password("ann", "secret"): Admitted(Principal("ann"), EVERYTHING),
            Password("bob", "other"): Admitted(Principal("bob"), Granted()),
            Token("t0k3n"): Admitted(Principal("carl", expires=1060.0), EVERYTHING),
        }
        assert self.sessions is not None
        accepts = lambda credentials: isinstance(credentials, self.ways)  # noqa: E731
        signIn = SignIn(self.sessions, self.admission, accepts, self.record, lambda: 1000.0, self.pages)
        change = {"/api/change": Page(self.change, Action.ADMIN, post=True)}
        self.pages: Mapping[str, Page] = {**self.pages, **signIn.pages(), **change}

    async def change(self, request: PageRequest) -> HttpReply:
        """Change something."""
        self.changes.append(request.who)
        return jsonReply({})

    def signIn(self, value: object = ANN, *fields: str, **named: Any) -> tuple[str, str]:
        """Return the cookie and the token of a new session."""
        answer = self.ask("POST /console/session", JSON, *fields, body=value, **named)
        self.assertEqual(answer.code, 200, answer.body)
        return f"Cookie: {answer.fields['set-cookie'].partition(';')[0]}", f"X-FlexiMQ-CSRF: {answer.value['csrf']}"


class SignInTests(SignInCase):
    """From the first page to the sign-out."""

    def test_first(self) -> None:
        """A page without a session learns how to sign in; the browser does not ask for a password by itself."""
        answer = self.ask("GET /console/session")
        self.assertEqual((answer.code, answer.value["methods"]), (401, ["password", "token"]))
        self.assertNotIn("www-authenticate", answer.fields)
        self.assertEqual(self.audited, [])

    def test_signIn(self) -> None:
        """A password begins a session: the page learns its token, the browser alone the cookie."""
        answer = self.post("/console/session", ANN)
        self.assertEqual((answer.code, answer.value["principal"]), (200, "ann"))
        cookie, *attributes = answer.fields["set-cookie"].split("; ")
        self.assertEqual(attributes, ["Path=/", "HttpOnly", "SameSite=Strict"])
        name, _, text = cookie.partition("=")
        self.assertEqual(name, COOKIE)
        self.assertNotIn(text, answer.body.decode())
        told = self.ask("GET /console/session", f"Cookie: {cookie}")
        self.assertEqual((told.code, told.value), (200, answer.value))
        self.assertEqual(self.ask("GET /api/about", f"Cookie: a=b; {cookie};c").code, 200)

    def test_ways(self) -> None:
        """A token or a key is another way."""
        cookie, _ = self.signIn({"token": "t0k3n"})
        self.assertEqual(self.ask("GET /console/session", cookie).value["principal"], "carl")
        self.admission.known[ApiKey("key")] = self.admission.known[Token("t0k3n")]
        self.signIn({"api_key": "key"})

    def test_tokenEnds(self) -> None:
        """A session ends with the token that it began with."""
        cookie, _ = self.signIn({"token": "t0k3n"})
        self.clock.advance(59)
        self.assertEqual(self.ask("GET /api/about", cookie).code, 200)
        self.clock.advance(1)
        answer = self.ask("GET /api/about", cookie)
        self.assertEqual((answer.code, answer.value["error"]), (401, "this session has ended, sign in again"))

    def test_tls(self) -> None:
        """Inside TLS, also that of a proxy, the cookie is for TLS alone, and another one is ignored."""
        https = "X-Forwarded-Proto: https"
        cookie, _ = self.signIn(ANN, https, host="mq.example")
        self.assertTrue(cookie.startswith("Cookie: __Host-fleximq_session="), cookie)
        answer = self.post("/console/session", ANN, https)
        self.assertTrue(answer.fields["set-cookie"].endswith("; Secure"))
        self.assertEqual(self.ask("GET /api/about", cookie, https, host="mq.example").code, 200)
        plain, _ = self.signIn(ANN, host="mq.example")
        self.assertEqual(self.ask("GET /api/about", plain, https, host="mq.example").code, 401)

    def test_wrong(self) -> None:
        """Wrong credentials are refused in the same way as everywhere, and audited without them."""
        answer = self.post("/console/session", {"name": "ann", "password": "hunter2"})
        self.assertEqual((answer.code, answer.value), (401, {"error": "these credentials are not valid here"}))
        self.assertNotIn("set-cookie", answer.fields)
        self.assertEqual([event for event, _ in self.audited], ["refused"])
        self.assertNotIn("hunter2", repr(self.audited))

    def test_malformed(self) -> None:
        """Other objects are no credentials; nothing checks them, and the audit log has no secret."""
        for value in (
            {}, {"name": "ann"}, {"name": "ann", "password": 1}, {"name": None, "password": "secret"},
            {**ANN, "token": "t0k3n"}, {"password": "secret"}, {"token": ["t0k3n"]}, {"token": "x" * 8193},
            {"session": "chosen"},
        ):  # fmt: skip
            self.assertEqual(self.post("/console/session", value).code, 400, value)
        self.assertEqual((self.admission.asked, self.audited), ([], []))
        self.assertEqual(self.ask("POST /console/session", body=ANN).code, 415)

    def test_nothingToSignInTo(self) -> None:
        """A broker that checks no credentials has no sign-in; its page learns that."""
        self.ways, self.admitted = (), Admitted(None, EVERYTHING)
        self.assertEqual(self.post("/console/session", ANN).code, 409)
        answer = self.ask("GET /console/session")
        told = {name: answer.value[name] for name in ("principal", "csrf", "methods")}
        self.assertEqual((answer.code, told), (200, {"principal": None, "csrf": None, "methods": []}))

    def test_rights(self) -> None:
        """The page learns which paths its user may read, and where it may act."""
        self.admission.known[Password("ann", "secret")] = Admitted(
            Principal("ann"), Granted("read:api/about", "admin:api/queues/purge", "admin:api/about")
        )
        rights = self.post("/console/session", ANN).value["rights"]
        self.assertEqual(rights, {"read": ["/api/about"], "admin": ["/api/queues/purge"]})

    def test_signOut(self) -> None:
        """After the sign-out the cookie is worth nothing, and the browser forgets it."""
        cookie, token = self.signIn()
        answer = self.ask("DELETE /console/session", cookie, token)
        self.assertEqual((answer.code, answer.value), (200, {}))
        self.assertIn(f"{COOKIE}=; ", answer.fields["set-cookie"])
        self.assertIn("Max-Age=0", answer.fields["set-cookie"])
        self.assertEqual(self.ask("GET /api/about", cookie).code, 401)
        self.assertEqual(self.ask("DELETE /console/session", cookie).code, 200)

    def test_audited(self) -> None:
        """Sign-in and sign-out are audited, and acts by the name of the session."""
        cookie, token = self.signIn()
        self.post("/api/change", {}, cookie, token)
        self.ask("DELETE /console/session", cookie, token)
        events = [(event, fields["principal"], fields["path"]) for event, fields in self.audited]
        path = "/console/session"
        self.assertEqual(events, [("login", "ann", path), ("admin", "ann", "/api/change"), ("logout", "ann", path)])

    def test_revoked(self) -> None:
        """A principal that was banned or removed is signed out at its next request, for good."""
        cookie, _ = self.signIn()
        self.admission.revoked.add("ann")
        self.assertEqual(self.ask("GET /api/about", cookie).code, 403)
        self.admission.revoked.clear()
        self.assertEqual(self.ask("GET /api/about", cookie).code, 401)

    def test_rightsOfNow(self) -> None:
        """The rights are those of each request."""
        cookie, _ = self.signIn()
        self.renewed = lambda admitted: Admitted(admitted.principal, Granted())
        self.assertEqual(self.ask("GET /api/about", cookie).code, 403)

    def test_ownCredentials(self) -> None:
        """Credentials of the request itself are preferred to a cookie."""
        cookie, _ = self.signIn()
        self.admitted = Admitted(Principal("bob"), Granted())
        self.assertEqual(self.ask("GET /api/about", cookie).code, 403)
        answer = self.ask("GET /console/session", cookie)
        self.assertEqual((answer.value["principal"], answer.value["csrf"]), ("bob", None))

    def test_anonymous(self) -> None:
        """Where anonymous clients may read too, a session has its own rights, and does not lose them in silence."""
        self.admitted = Admitted(None, Granted("api/about"))
        cookie, token = self.signIn()
        self.assertEqual(self.ask("GET /api/settings", cookie).code, 200)
        self.ask("DELETE /console/session", cookie, token)
        self.assertEqual(self.ask("GET /api/about", cookie).code, 401)
        self.assertEqual(self.ask("GET /api/about").code, 200)

    def test_health(self) -> None:
        """Health gives its reasons to a session, and its state to all."""
        cookie, _ = self.signIn()
        self.assertIn("reasons", self.ask("GET /readyz", cookie).value)
        self.assertNotIn("reasons", self.ask("GET /readyz", f"Cookie: {COOKIE}=ended").value)


class TokenTests(SignInCase):
    """The token against requests that a foreign page makes a browser send."""

    def test_changes(self) -> None:
        """A change needs the token of its session."""
        cookie, token = self.signIn()
        other = self.signIn({"name": "bob", "password": "other"})[1]
        for fields in ((), (other,), ("X-FlexiMQ-CSRF:",), (token[:-1],), (token + "a",), ("X-FlexiMQ-CSRF: \xff",)):
            answer = self.post("/api/change", {}, cookie, *fields)
            self.assertEqual((answer.code, "set-cookie" in answer.fields), (403, False), fields)
        self.assertEqual(self.changes, [])
        self.assertEqual(self.post("/api/change", {}, cookie, token).code, 200)
        self.assertEqual(self.changes, ["ann"])

    def test_signOutAndTicket(self) -> None:
        """So do the sign-out and a ticket."""
        cookie, token = self.signIn()
        self.assertEqual(self.ask("DELETE /console/session", cookie).code, 403)
        self.assertEqual(self.post("/console/ticket", {}, cookie).code, 403)
        self.assertEqual(self.ask("GET /api/about", cookie).code, 200)

    def test_tokenAlone(self) -> None:
        """A token is no credential."""
        _, token = self.signIn()
        self.assertEqual(self.post("/api/change", {}, token).code, 401)

    def test_newSession(self) -> None:
        """A sign-in gets another cookie, and ends the session of the one that it was sent with."""
        first, _ = self.signIn()
        second, _ = self.signIn(ANN, first)
        self.assertNotEqual(first, second)
        self.assertEqual(self.ask("GET /api/about", first).code, 401)
        self.assertEqual(self.ask("GET /api/about", second).code, 200)

    def test_chosenByOthers(self) -> None:
        """A cookie that somebody else has chosen never becomes a session."""
        chosen = f"Cookie: {COOKIE}={'a' * 43}"
        self.assertNotEqual(self.signIn(ANN, chosen)[0], chosen)
        self.assertEqual(self.ask("GET /api/about", chosen).code, 401)

    def test_twice(self) -> None:
        """Two cookies of this name, one of which may come from elsewhere, are none."""
        cookie, _ = self.signIn()
        for both in (f"{cookie}; {COOKIE}=x", f"Cookie: {COOKIE}=x; {cookie.removeprefix('Cookie: ')}"):
            self.assertEqual(self.ask("GET /api/about", both).code, 401)
        self.assertEqual(self.ask("GET /api/about", cookie, f"Cookie: {COOKIE}=x").code, 401)

    def test_large(self) -> None:
        """Cookies of any size and number are no fault."""
        cookie, _ = self.signIn()
        for other in ("a=" + "x" * 8000, ";" * 8000, "; ".join(f"a{number}=b" for number in range(900)), "\xff=\x80"):
            self.assertEqual(self.ask("GET /api/about", f"{cookie}; {other}").code, 200)
        self.assertEqual(self.ask("GET /api/about", f"Cookie: {COOKIE}={'x' * 9000}").code, 401)

    def test_foreignPages(self) -> None:
        """A page of another origin, also of another port of this host, cannot use the cookie."""
        cookie, token = self.signIn()
        for fields in (
            ("Sec-Fetch-Site: same-site",), ("Sec-Fetch-Site: cross-site",), ("Origin: http://127.0.0.1:3000",),
            ("Origin: https://evil.example",), ("Origin: null",), ("Origin: http://127.0.0.1",),
        ):  # fmt: skip
            self.assertEqual(self.ask("GET /api/about", cookie, *fields).code, 401, fields)
            self.assertEqual(self.post("/api/change", {}, cookie, token, *fields).code, 401, fields)
        self.assertEqual(self.changes, [])
        own = ("Sec-Fetch-Site: same-origin", "Origin: http://127.0.0.1:7890")
        self.assertEqual(self.post("/api/change", {}, cookie, token, *own).code, 200)

    def test_otherPort(self) -> None:
        """Brokers on several ports of a host do not overwrite the cookies of each other."""
        one, _ = self.signIn(host="127.0.0.1:7890")
        self.assertEqual(self.ask("GET /api/about", one, host="127.0.0.1:7891").code, 401)
        for host, name in (("[::1]:7890", COOKIE), ("[::1]", "fleximq_session"), ("mq.example", "fleximq_session")):
            self.assertTrue(self.signIn(host=host)[0].startswith(f"Cookie: {name}="), host)


class ScriptTests(SignInCase):
    """Requests of scripts."""

    def test_noDialogue(self) -> None:
        """A browser does not ask its user for a password when a script or a part of a page is refused."""
        self.assertIn("Basic", self.ask("GET /api/about").fields["www-authenticate"])
        self.assertIn("Basic", self.ask("GET /api/about", "Sec-Fetch-Dest: document").fields["www-authenticate"])
        for dest in ("empty", "script", "iframe"):
            answer = self.ask("GET /api/about", f"Sec-Fetch-Dest: {dest}")
            self.assertEqual((answer.code, answer.fields["www-authenticate"]), (401, 'Bearer realm="FlexiMQ"'))


class TicketTests(SignInCase):
    """Tickets for the JavaScript client."""

    def ticket(self, *fields: str) -> Answer:
        """Return the answer to a request for one."""
        return self.post("/console/ticket", {}, *fields)

    def test_ticket(self) -> None:
        """A session gets a token for one connection."""
        answer = self.ticket(*self.signIn())
        assert self.sessions is not None
        redeemed = self.sessions.redeem(answer.value["token"]).principal
        self.assertEqual((answer.code, redeemed), (200, Principal("ann")))

    def test_noSession(self) -> None:
        """Without a session there is none; credentials of the request get one too, anonymous clients need none."""
        self.assertEqual(self.ticket().code, 401)
        self.admitted = Admitted(Principal("bob"), Granted())
        self.assertEqual(self.ticket().code, 200)
        self.admitted = Admitted(None, EVERYTHING)
        self.assertEqual(self.ticket().value, {"token": None})

    def test_noneByATicket(self) -> None:
        """A ticket begins no session and gets no further ticket: it would outlast the session that it is from."""
        byTicket = Admitted(Principal("ann"), EVERYTHING, byTicket=True)
        self.admission.known[Token("ticket")] = byTicket
        answer = self.post("/console/session", {"token": "ticket"})
        self.assertEqual((answer.code, "set-cookie" in answer.fields), (403, False))
        self.admitted = byTicket
        self.assertEqual(self.ticket().code, 403)
        self.assertEqual(self.ask("GET /api/about").code, 200)

    def test_noCookie(self) -> None:
        """A ticket is no cookie, and a cookie no ticket."""
        cookie, token = self.signIn()
        ticket = self.ticket(cookie, token).value["token"]
        self.assertEqual(self.ask("GET /api/about", f"Cookie: {COOKIE}={ticket}").code, 401)
        assert self.sessions is not None
        self.assertRaises(Unauthorized, self.sessions.redeem, cookie.partition("=")[2])
