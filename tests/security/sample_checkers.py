"""Checkers for tests, and a way to find them as plug-ins are found."""

from collections.abc import Callable, Iterable
from typing import Any

from twisted.cred.checkers import ICredentialsChecker
from twisted.cred.credentials import IUsernamePassword
from twisted.cred.error import UnauthorizedLogin
from twisted.cred.strcred import ICheckerFactory
from twisted.internet.defer import Deferred
from zope.interface import alsoProvides, implementer

from fleximq.security.authentication.checker_interfaces import IUnguessable
from fleximq.security.credentials import IToken


@implementer(ICredentialsChecker)
class Answers:
    """Answers for tokens what a table says: a principal or a name, an exception, or a Deferred."""

    def __init__(self, table: dict[str, Any], unguessable: bool = False) -> None:
        self.credentialInterfaces = (IToken,)
        self.table = table
        self.asked: list[str] = []
        if unguessable:
            alsoProvides(self, IUnguessable)

    def requestAvatarId(self, credentials: Any) -> Any:
        """Answer."""
        self.asked.append(credentials.token)
        answer = self.table.get(credentials.token)
        if answer is None:
            raise UnauthorizedLogin()
        if isinstance(answer, Exception):
            raise answer
        return answer


@implementer(ICredentialsChecker)
class TwistedsOwn:
    """Knows what Twisted calls a name and a password."""

    def __init__(self) -> None:
        self.credentialInterfaces = (IUsernamePassword,)

    def requestAvatarId(self, credentials: Any) -> Any:
        """Answer with the name in bytes, if the password is the name again."""
        if credentials.checkPassword(credentials.username):
            return credentials.username
        raise UnauthorizedLogin()


@implementer(ICheckerFactory)
class Factory:
    """Makes what it is told to."""

    argStringFormat = authHelp = ""

    def __init__(self, authType: str, make: Callable[[str], Any], *interfaces: Any) -> None:
        self.authType = authType
        self.credentialInterfaces = interfaces or (IToken,)
        self._make = make

    def generateChecker(self, argstring: str = "") -> Any:
        """Make it."""
        return self._make(argstring)


def finding(*factories: Factory) -> Callable[[Any], Iterable[Any]]:
    """Return what finds these instead of the plug-ins that are installed."""
    return lambda interface: factories


def pending() -> Deferred[Any]:
    """Return an answer that is still to come."""
    return Deferred()
