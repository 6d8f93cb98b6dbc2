"""JSON Web Tokens, right and wrong."""

import base64
import hashlib
import hmac
import json
import time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.cred.checkers import ICredentialsChecker
from twisted.cred.error import UnauthorizedLogin
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from fleximq.errors import SettingError
from fleximq.security.authentication.checker_interfaces import ICautious, INeedsReactor, IUnguessable, IVouching
from fleximq.security.checkers.json_web_tokens import LONGEST, JsonWebTokens, tokens
from fleximq.security.credentials import Token
from fleximq.security.principal import Principal
from tests.security.checkers.signed import SECRET, ecKey, jwk, publicPem, rsaKey, token
from tests.security.secrets_on_disk import secretFile


def encoded(*parts: Any) -> str:
    """Return parts of a token, those that are not bytes as JSON."""
    spelled = [each if isinstance(each, bytes) else json.dumps(each, separators=(",", ":")).encode() for each in parts]
    return ".".join(base64.urlsafe_b64encode(each).rstrip(b"=").decode() for each in spelled)


def handmade(header: Any, claims: Any, secret: bytes = SECRET) -> str:
    """Return a token that is signed with HMAC, whatever its header says."""
    signed = encoded(header, claims)
    return f"{signed}.{encoded(hmac.digest(secret, signed.encode(), hashlib.sha256))}"


class TokensCase(SynchronousTestCase):
    """Tokens before a checker."""

    def make(self, options: str = "", secret: bytes = SECRET) -> JsonWebTokens:
        """Return a checker with a secret and these options."""
        return tokens(f"secret={secretFile(self, secret)}{options and ','}{options}")

    def check(self, checker: JsonWebTokens, shown: str) -> Principal | None:
        """Return whose token it is, None if nobody's."""
        try:
            found: Principal = checker.requestAvatarId(Token(shown))
        except UnauthorizedLogin:
            return None
        return found


class ClaimTests(TokensCase):
    """What a token has to say."""

    def test_checkerIsWhatItSays(self) -> None:
        """The checker is what it says."""
        for each in (ICredentialsChecker, IUnguessable, IVouching, ICautious, INeedsReactor):
            self.assertTrue(verifyObject(each, self.make()))

    def test_asInTheDocument(self) -> None:
        """The token of FlexiMQ document 5.2.1 begins with this header, and is a JSON Web Token with HS256."""
        shown = handmade(b'{"alg":"HS256","typ":"JWT"}', {"sub": "user123"})
        self.assertTrue(shown.startswith("eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9."))
        found = self.check(self.make("require=none"), shown)
        self.assertEqual(found and (found.name, found.expires), ("user123", None))
        self.assertIsNone(self.check(self.make(), "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9..."))

    def test_tokenIsGoodUntilItExpires(self) -> None:
        """It is good until it expires, and the principal knows when; with leeway a little longer."""
        now = int(time.time())
        found = self.check(self.make("leeway=30"), token(exp=now + 60))
        self.assertEqual(found and found.expires, now + 90.0)
        self.assertIsNone(self.check(self.make(), token(exp=now - 5)))
        self.assertIsNotNone(self.check(self.make("leeway=30"), token(exp=now - 5)))
        self.assertIsNone(self.check(self.make("leeway=30"), token(exp=now - 35)))

    def test_withoutExpTokenIsRefusedUnlessOtherClaimsAreRequiredInstead(self) -> None:
        """Without ``exp`` a token is refused, unless other claims are required instead."""
        self.assertIsNone(self.check(self.make(), token(exp=None)))
        self.assertIsNotNone(self.check(self.make("require=none"), token(exp=None)))
        checker = self.make("require=exp+jti+a.b")
        self.assertIsNotNone(self.check(checker, token(jti="x", a={"b": 0})))
        for missing in ({"jti": "x"}, {"a": {"b": 1}}, {"jti": "x", "a": {"b": 1}, "exp": None}):
            self.assertIsNone(self.check(checker, token(**missing)), missing)

    def test_tokenWhoseJtiIsInFileIsRefusedAsIsOneWithoutAndReloadEndsIts(self) -> None:
        """A token whose jti is in the file is refused, as is one without, and a reload ends its client."""
        path = secretFile(self, "# lost\none\n\n two \n")
        checker = self.make(f"revoked={path}")
        for jti, good in (("three", True), ("one", False), ("two", False), ("", True), (None, False), (7, False)):
            self.assertEqual(self.check(checker, token(jti=jti)) is not None, good, jti)
        found = self.check(checker, token(jti="three"))
        assert found is not None
        self.assertEqual(self.make(f"revoked={path}").vouch(found), found)
        self.assertIsNone(self.make(f"revoked={secretFile(self, 'three')}").vouch(found))
        self.assertEqual(self.make().vouch(found), found)
        unknown = self.check(self.make(), token(jti="one"))
        assert unknown is not None
        self.assertIsNone(checker.vouch(unknown))

    def test_notYet(self) -> None:
        """It is not good before its time."""
        now = int(time.time())
        self.assertIsNone(self.check(self.make(), token(nbf=now + 60)))
        self.assertIsNotNone(self.check(self.make("leeway=120"), token(nbf=now + 60)))

    def test_whereIssuerIsAskedForItMustBeThat(self) -> None:
        """Where an issuer is asked for, it must be that."""
        checker = self.make("issuer=https://id.example")
        self.assertIsNotNone(self.check(checker, token(iss="https://id.example")))
        for issuer in ("https://id.example/", "", None):
            self.assertIsNone(self.check(checker, token(iss=issuer)), issuer)

    def test_tokenForOthersIsNotForUs(self) -> None:
        """A token for others is not for us; one for nobody in particular only where none is asked for."""
        checker = self.make("audience=broker")
        for audience, good in (("broker", True), (["x", "broker"], True), ("x", False), (["x"], False), (None, False)):
            self.assertEqual(self.check(checker, token(aud=audience)) is not None, good, audience)
        self.assertIsNone(self.check(self.make(), token(aud="x")))

    def test_nameIsInClaimThatOperatorSays(self) -> None:
        """The name is in the claim that the operator says; without it nobody is let in."""
        checker = self.make("principal=user.email")
        found = self.check(checker, token(user={"email": "a@a.example"}))
        self.assertEqual(found and found.name, "a@a.example")
        for claims in ({}, {"user": "a"}, {"user": {"email": 7}}, {"user": {"email": ""}},
                       {"user": {"email": "anonymous"}}, {"user": {"email": "spawn:x"}}):  # fmt: skip
            self.assertIsNone(self.check(checker, token(**claims)), claims)
        self.assertIsNone(self.check(self.make(), token(sub=None)))

    def test_claimsThatPatternsMayContainArePrincipalsAlsoWhenItIsChecked(self) -> None:
        """Claims that patterns may contain are the principal's, also when it is checked again."""
        checker = self.make()
        found = self.check(checker, token(realm={"team": "red"}, shift=3))
        assert found is not None
        self.assertEqual([found.claims[name] for name in ("realm.team", "shift")], ["red", "3"])
        again = checker.vouch(found)
        self.assertEqual(again and again.claims, found.claims)

    def test_rolesComeWithTokenOnlyWhereOperatorSaysInWhichClaim(self) -> None:
        """Roles come with a token only where the operator says in which claim."""
        shown = token(roles=["ops"], scope="a b")
        for options, roles in (("", set()), ("roles=roles", {"ops"}), ("roles=scope", {"a", "b"}), ("roles=x", set())):
            found = self.check(self.make(options), shown)
            self.assertEqual(found and set(found.roles), roles)
        self.assertIsNone(self.check(self.make("roles=roles"), token(roles=7)))

    def test_permissionsOfClaimAreGranted(self) -> None:
        """So do permissions; where they may come and do not, nothing is permitted."""
        shown = token(may={"publish": ["a.*"], "subscribe": True})
        found = self.check(self.make("permissions=may"), shown)
        assert found is not None
        self.assertEqual((found.grants["publish"], found.grants["subscribe"], found.grants["read"]),
                         (("a.*",), ("#",), ()))  # fmt: skip
        found = self.check(self.make("permissions=may"), token())
        self.assertEqual(found and set(found.grants.values()), {()})
        found = self.check(self.make(), shown)
        self.assertEqual(found and found.grants, {})
        self.assertIsNone(self.check(self.make("permissions=may"), token(may={"fly": ["a"]})))


class SignatureTests(TokensCase):
    """Who may have signed it."""

    def test_eachKeyTakesTokensOfItsAlgorithm(self) -> None:
        """Each key takes tokens of its algorithm."""
        for key, algorithm in ((rsaKey(), "RS256"), (ecKey(), "ES256")):
            checker = tokens(f"key={secretFile(self, publicPem(key))}")
            self.assertIsNotNone(self.check(checker, token(key, algorithm)))
            self.assertIsNone(self.check(checker, token(ecKey(1), "ES256")))
        self.assertIsNone(self.check(self.make(), token(SECRET + b"x")))

    def test_noTokenChoosesItsAlgorithm(self) -> None:
        """No token chooses its algorithm: not none, not HMAC with a public key, not a stronger HMAC."""
        public = publicPem(rsaKey())
        byKey = tokens(f"key={secretFile(self, public)}")
        for header in ({"alg": "HS256"}, {"alg": "RS256"}, {"alg": "none"}):
            for secret in (public, public.strip(), SECRET):
                self.assertIsNone(self.check(byKey, handmade(header, {"sub": "alice"}, secret)))
        for alg in ("none", "None", "NONE", "", None, "HS512", "RS256", ["HS256"], 7):
            self.assertIsNone(self.check(self.make(), handmade({"alg": alg}, {"sub": "alice"})), alg)
            self.assertIsNone(self.check(self.make(), encoded({"alg": alg}, {"sub": "alice"}) + "."), alg)
        self.assertIsNone(self.check(self.make(), token(SECRET * 2, "HS512")))
        self.assertIsNone(self.check(self.make(), token(rsaKey(), "RS256")))

    def test_keyThatTokenBringsAlongItselfIsNotLookedAt(self) -> None:
        """A key that a token brings along itself is not looked at."""
        checker = tokens(f"key={secretFile(self, publicPem(ecKey()))}")
        shown = token(ecKey(1), "ES256", headers={"jwk": jwk(ecKey(1).public_key()), "jku": "https://evil.example"})
        self.assertIsNone(self.check(checker, shown))

    def test_inSetTokenNamesItsKeyUnlessThereIsOnlyOne(self) -> None:
        """In a set, the token names its key, unless there is only one; each key keeps its algorithm."""
        both = [jwk(rsaKey().public_key(), kid="r"), jwk(ecKey().public_key(), kid="e")]
        checker = tokens(f"jwks={secretFile(self, json.dumps({'keys': both}))}")
        self.assertIsNotNone(self.check(checker, token(rsaKey(), "RS256", {"kid": "r"})))
        self.assertIsNotNone(self.check(checker, token(ecKey(), "ES256", {"kid": "e"})))
        for key, algorithm, headers in (
            (ecKey(), "ES256", {"kid": "r"}),
            (ecKey(), "ES256", {"kid": "x"}),
            (ecKey(), "ES256", {}),
            (ecKey(1), "ES256", {"kid": "e"}),
        ):
            self.assertIsNone(self.check(checker, token(key, algorithm, headers)), headers)
        alone = tokens(f"jwks={secretFile(self, json.dumps({'keys': both[:1]}))}")
        self.assertIsNotNone(self.check(alone, token(rsaKey(), "RS256")))
        self.assertIsNone(self.check(alone, token(rsaKey(), "RS256", {"kid": "x"})))

    def test_whatIsNoTokenIsRefusedWhateverItIs(self) -> None:
        """What is no token is refused, whatever it is."""
        good = token()
        for shown in ("", ".", "..", "...", good[:-1], good + "A", good + ".x", good.replace(".", "!"), "é" * 10,
                      "\udc80.a.b", handmade(b"[]", {}), handmade({"alg": "HS256"}, []), handmade(b"\xff", b"\xff"),
                      handmade({"alg": "HS256"}, b"[" * 5000), handmade({"alg": "HS256"}, {"sub": "a", "exp": "x"}),
                      handmade({"alg": "HS256"}, b'{"sub":"a","exp":1e999}'), handmade({"alg": "HS256"}, {"sub": 7}),
                      handmade({"alg": "HS256"}, {"sub": "a", "exp": 10**400}),
                      handmade({"alg": "HS256", "kid": 7}, {"sub": "a"}),
                      handmade({"alg": "HS256", "crit": ["x"], "x": 1}, {"sub": "a"}),
                      handmade({"alg": "HS256", "b64": False}, {"sub": "a"})):  # fmt: skip
            self.assertIsNone(self.check(self.make(), shown), shown[:60])

    def test_tokenMayBeSoLongNoLonger(self) -> None:
        """A token may be so long, no longer."""
        short = handmade({"alg": "HS256"}, {"sub": "a", "exp": 1 << 40, "x": "x" * 12_000})
        self.assertIsNotNone(self.check(self.make(), short))
        long = handmade({"alg": "HS256"}, {"sub": "a", "x": "x" * 12_500})
        self.assertGreater(len(long), LONGEST)
        self.assertIsNone(self.check(self.make(), long))

    def test_whoeverCameByKeyIsVouchedForAsLongAsItIsThereAndRuleIsSame(self) -> None:
        """Whoever came by a key is vouched for as long as it is there, and the rule is the same."""
        found = self.check(self.make(), token())
        assert found is not None
        self.assertEqual(self.make().vouch(found), found)
        self.assertIsNone(self.make(secret=SECRET[::-1]).vouch(found))
        self.assertIsNone(self.make("issuer=x").vouch(found))

    def test_secretAndTokenAreNotShown(self) -> None:
        """Neither secret nor token is shown."""
        checker = self.make()
        self.assertNotIn("0123456789", repr((vars(checker), self.check(checker, token()))))


class AnythingTests(SynchronousTestCase):
    """Any text at all."""

    checker: Any = None

    @given(st.text(max_size=200) | st.lists(st.binary(max_size=30), min_size=3, max_size=3).map(lambda e: encoded(*e)))
    def test_anythingElseIsRefused(self, shown: str) -> None:
        """Nothing but refusal comes of it."""
        if self.checker is None:
            type(self).checker = tokens(f"secret={secretFile(self, SECRET)}")
        self.assertRaises(UnauthorizedLogin, self.checker.requestAvatarId, Token(shown))


class OptionTests(SynchronousTestCase):
    """What stands behind ``jwt:``."""

    def refused(self, argument: str) -> str:
        """Return the sentence with which an argument is refused."""
        return str(self.assertRaises(SettingError, tokens, argument))

    def test_wrongOptionsAreRefused(self) -> None:
        """One key there must be; options are known, and in their range."""
        secret = f"secret={secretFile(self, SECRET)}"
        one = "exactly one of secret=FILE, key=FILE and jwks=FILE or URL must be given, or issuer=URL alone"
        self.assertEqual([self.refused(""), self.refused(f"{secret},jwks=x")], [one, one])
        self.assertIn("there is no option algorithm, only secret, key, jwks,", self.refused(f"{secret},algorithm=none"))
        self.assertEqual(self.refused(f"{secret},leeway=601"), "leeway is 601, but must be between 0 and 600 seconds")
        self.assertIn("leeway is 'x', but must be a number of seconds", self.refused(f"{secret},leeway=x"))
        self.assertEqual(self.refused(f"{secret},ca=x"), "ca= needs jwks=URL, or issuer=URL alone")
        for options, place in (("jwks=http://a.example/k", "http://a.example/k"), ("issuer=http://a.example",) * 2):
            self.assertEqual(
                self.refused(options),
                f"keys can be fetched by https only, but the URL is '{place.removeprefix('issuer=')}'",
            )
        self.assertIn("the URL is 'id.example', but must be like https:", self.refused("issuer=id.example"))
        for url in ("ftp://a.example/k", "http://a.example/k"):
            self.assertIn(f"the URL is '{url}'", self.refused(f"jwks={url}?key=secret"))
        self.assertEqual(self.refused("key=/none"), "/none cannot be read: no such file or directory")
