"""From texts to ways."""

from typing import Any

from twisted.cred.credentials import IAnonymous, IUsernamePassword
from twisted.cred.strcred import ICheckerFactory, findCheckerFactory
from twisted.plugin import IPlugin
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from fleximq.config.permission_options import PermissionTable
from fleximq.errors import SettingError
from fleximq.security.authentication.schemes import OWN, faults, methodsOf, shown, warnings
from fleximq.security.credentials import ApiKey, Certificate, Password, Token
from tests.security.sample_checkers import Answers, Factory, TwistedsOwn, finding
from tests.security.secrets_on_disk import secretFile


def broken(argument: str) -> Any:
    """Fail."""
    raise ValueError(f"I cannot do {argument}")


FIND = finding(
    Factory("one", lambda argument: Answers({"t": argument})),
    Factory("two", lambda argument: TwistedsOwn(), IUsernamePassword),
    Factory("broken", broken),
    Factory("twice", broken),
    Factory("twice", broken),
    Factory("anonymous", broken, IAnonymous),
)


class SchemesTests(SynchronousTestCase):
    """Schemes that the test brings."""

    def test_inOrder(self) -> None:
        """Each text is a way, in their order; the first colon ends the scheme, and none is needed."""
        ways = methodsOf(["one:a:b", "two", "one:"], FIND)
        self.assertEqual([way.scheme for way in ways], ["one", "two", "one"])
        self.assertEqual(ways[0].checker.table, {"t": "a:b"})  # type: ignore[attr-defined]

    def test_eachThatIsWrongIsOneSentence(self) -> None:
        """Each that is wrong is one sentence; what may be a secret is not in it."""
        self.assertEqual(
            list(faults(["none:x", "one:", "broken:it", "twice:"], FIND)),
            [
                "auth is 'none', but there is no such scheme; installed: broken, one, twice, two",
                "auth broken cannot be used: I cannot do it",
                "two plug-ins bring a scheme named twice for auth: uninstall one of them",
            ],
        )
        self.assertRaises(SettingError, methodsOf, ["one:", "none:"], FIND)

    def test_onlyOfOurOwnSchemesArgumentIsKnownToHoldNoSecret(self) -> None:
        """Only of our own schemes the argument is known to hold no secret."""
        self.assertEqual(shown("tokens:/etc/x"), "tokens:/etc/x")
        self.assertEqual(shown("memory:admin:secret"), "memory:...")
        self.assertEqual(shown("unix"), "unix")

    def test_whatIsToSayAboutFilesIsSaidWithoutBrokerToo(self) -> None:
        """What is to say about files is said without a broker, too."""
        path = secretFile(self, "", 0o644)
        self.assertEqual(list(warnings(methodsOf([f"tokens:{path}", "certificate:"]), ())),
                         [f"{path} is open to others than its owner: chmod 600 {path}"])  # fmt: skip

    def test_prefixIsTakenOutOfArgument(self) -> None:
        """It is taken out of the argument, wherever it stands."""
        path = secretFile(self)
        for text, prefix in (("certificate:prefix=tls:", "tls:"), ("certificate:name=dns,prefix=a", "a"),
                             ("certificate:prefix=a,name=dns", "a"), (f"tokens:{path},prefix=t/", "t/")):  # fmt: skip
            (way,) = methodsOf([text])
            self.assertEqual((way.prefix, list(faults([text]))), (prefix, []))
        for prefix in ("", " a", "spawn:", "a\n"):
            self.assertEqual(
                list(faults([f"certificate:prefix={prefix}"])),
                [f"auth certificate: prefix is {prefix!r}, but must be the beginning of a name other than spawn:"],
            )
        self.assertEqual(list(faults(["certificate:prefix=a,prefix=b"])), ["auth certificate: prefix is given twice"])

    def test_sharedNames(self) -> None:
        """Where permissions name principals, checkers that may give the same name are warned of once."""
        file, secret = f"tokens:{secretFile(self)}", f"jwt:secret={secretFile(self, 'x' * 32)}"
        alice, others = PermissionTable("alice"), [PermissionTable("anonymous"), PermissionTable("spawn:x")]
        for texts, count in (
            ([file, f"passwords:{secretFile(self)}"], 0),
            ([file, secret, "certificate:"], 1),
            ([file, "certificate:", "unix:"], 1),
            ([secret, "certificate:"], 1),
            ([secret, "certificate:prefix=tls:"], 1),
            ([f"{secret},prefix=t", "certificate:prefix=tls:"], 1),
            ([f"{secret},prefix=jwt:", "certificate:prefix=tls:", file], 0),
            ([f"{secret},prefix=jwt:"], 0),
        ):
            ways = methodsOf(texts)
            self.assertEqual(len(list(warnings(ways, [*others, alice]))), count, texts)
            self.assertEqual(list(warnings(ways, others)), [])
        self.assertEqual(
            list(warnings(methodsOf([file, secret]), [alice])),
            ["auth tokens and auth jwt can give clients the same name, to which [principals] grants permissions: "
             "add a prefix, e.g. jwt:...,prefix=sso:"],
        )  # fmt: skip


class InstalledTests(SynchronousTestCase):
    """Our own, and those of Twisted, as plug-ins."""

    def test_allOfOursAreFoundByStrcredAndNoOtherPlugInHasOneOfTheirNames(self) -> None:
        """All of ours are found by strcred, and no other plug-in has one of their names."""
        for name in OWN:
            factory = findCheckerFactory(name)
            self.assertEqual(type(factory).__module__, "fleximq.plugin")
            self.assertTrue(verifyObject(ICheckerFactory, factory) and verifyObject(IPlugin, factory))
            self.assertTrue(factory.authHelp and factory.argStringFormat and factory.credentialInterfaces)

    def test_plugInsPromiseSameCredentialsAsCheckersTheyMakeCheck(self) -> None:
        """The plug-ins promise the same credentials as the checkers they make check."""
        path, secret = secretFile(self), secretFile(self, "x" * 32)
        arguments = {"jwt": f"secret={secret}", "certificate": "", "http": "https://a.example/"}
        for name in OWN:
            (way,) = methodsOf([f"{name}:{arguments.get(name, path)}"])
            factory = findCheckerFactory(name)
            self.assertEqual(factory.credentialInterfaces, tuple(way.checker.credentialInterfaces))

    def test_allThatClientCanShowIsCheckedBySomething(self) -> None:
        """All that a client can show is checked by something."""
        ways = methodsOf([f"tokens:{secretFile(self)}", f"passwords:{secretFile(self)}", f"apikeys:{secretFile(self)}",
                       "certificate:"])  # fmt: skip
        for way, credentials in zip(ways, (Token(""), Password("", ""), ApiKey(""), Certificate(None)), strict=True):
            self.assertEqual([each for each in ways if each.accepts(credentials)], [way])

    def test_twisteds(self) -> None:
        """Those of Twisted that check names and passwords can be used."""
        path = secretFile(self, "alice:pw\n")
        (way,) = methodsOf([f"file:{path}"])
        self.assertTrue(way.accepts(Password("alice", "pw")))
