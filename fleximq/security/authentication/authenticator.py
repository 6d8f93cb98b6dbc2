"""Finds the principal of credentials: tries each method in turn, and delays wrong answers.

The answer and its delay are the same for an unknown name and for a wrong secret.
"""

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from twisted.cred.checkers import ICredentialsChecker
from twisted.cred.credentials import IUsernamePassword, UsernamePassword
from twisted.cred.error import Unauthorized as Refused
from twisted.cred.error import UnauthorizedLogin
from twisted.cred.portal import IRealm, Portal
from twisted.internet.defer import CancelledError
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from zope.interface import implementer

from fleximq.errors import AuthenticationFailed, BrokerError, NoCapacity, SettingError, Unauthorized
from fleximq.security.authentication.attempt_delays import Attempt, AttemptDelays
from fleximq.security.authentication.checker_interfaces import (
    ICautious,
    IManyAtOnce,
    INeedsReactor,
    IRemembering,
    IUnguessable,
    IVouching,
)
from fleximq.security.authentication.fair_queue import FairQueue
from fleximq.security.credentials import IApiKey, ICertificate, IPassword, ISignature, IToken, Password
from fleximq.security.peer_address import addressKey, peerAddress
from fleximq.security.principal import IPrincipal, Principal, isName
from fleximq.values.counted_event import CountedEvent, EventFamily
from fleximq.values.log_limit import LogLimit

_log = Logger()

#: The credentials that clients can send; the last is the form of a password that Twisted's own checkers accept.
CREDENTIAL_KINDS = (IToken, IPassword, IApiKey, ISignature, ICertificate, IUsernamePassword)
#: Concurrent checks of a checker that sets no limit.
AT_ONCE = 4
#: The event counted for each wrong attempt.
WRONG = CountedEvent(EventFamily.REFUSED_CONNECTIONS, "wrong credentials")
#: The key of all local peers; their wrong attempts count together.
THIS_MACHINE = "this machine"


@implementer(IRealm)
class AuthenticationMethod:
    """A checker within its limits; prefixes its principals' names. Raises SettingError if no client can use it."""

    def __init__(self, scheme: str, checker: ICredentialsChecker, prefix: str = "") -> None:
        self.scheme, self.checker, self.prefix = scheme, checker, prefix
        self.origin = f"{scheme},prefix={prefix}" if prefix else scheme
        self._failures = LogLimit()
        self._interfaces: tuple[Any, ...] = tuple(checker.credentialInterfaces)
        if not any(shown.isOrExtends(each) for shown in CREDENTIAL_KINDS for each in self._interfaces):
            raise SettingError(f"auth {scheme} checks nothing that a client of this broker can show")
        self._portal = Portal(self, [checker])
        unguessable = IUnguessable.providedBy(checker)
        self._line = None if unguessable else FairQueue(checker.atOnce if IManyAtOnce.providedBy(checker) else AT_ONCE)

    @property
    def guarded(self) -> bool:
        """Whether checks are limited and queued."""
        return self._line is not None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for the operator."""
        return tuple(self.checker.warnings) if ICautious.providedBy(self.checker) else ()

    def useReactor(self, reactor: Any) -> None:
        """Pass the reactor to a checker that needs it."""
        if INeedsReactor.providedBy(self.checker):
            self.checker.useReactor(reactor)

    def accepts(self, credentials: Any) -> bool:
        """Return whether it can check credentials of this kind."""
        return self._spelled(credentials) is not None

    def remembered(self, credentials: Any) -> Principal | None:
        """Return the cached principal of these credentials, or None."""
        if not IRemembering.providedBy(self.checker):
            return None
        found: Principal | None = self.checker.remembered(credentials)
        return None if found is None else self._named(found)

    async def ask(self, credentials: Any, place: Hashable) -> Principal | None:
        """Return the principal of these credentials, None if they are wrong; raises BrokerError otherwise."""
        spelled = self._spelled(credentials)
        if isinstance(spelled, UsernamePassword) and b"\0" in spelled.username + spelled.password:
            return None  # crypt raises an error for these, but only for names that exist
        login: Callable[[], Any] = lambda: self._portal.login(spelled, None, IPrincipal)  # noqa: E731
        try:
            _, principal, _ = await (login() if self._line is None else self._line.run(place, login))
        except Refused:
            return None
        except (BrokerError, CancelledError):
            raise
        except Exception:
            more = self._failures.ending(time.monotonic())
            if more is not None:
                _log.failure("Credentials cannot be checked by {scheme}{more}", scheme=self.scheme, more=more)
            raise NoCapacity("the credentials cannot be checked now") from None
        return principal  # type: ignore[no-any-return]

    def vouch(self, principal: Principal) -> Principal | None:
        """Return an admitted principal as it would be admitted now, None if it would be refused."""
        if not IVouching.providedBy(self.checker):
            return principal
        own = replace(principal, name=principal.name.removeprefix(self.prefix))
        found: Principal | None = self.checker.vouch(own)
        return None if found is None else self._named(found)

    def _named(self, principal: Principal) -> Principal:
        return replace(principal, name=self.prefix + principal.name, scheme=self.origin)

    def _spelled(self, credentials: Any) -> Any:
        """Return the credentials in a form that the checker accepts, None if it accepts none."""
        if any(each.providedBy(credentials) for each in self._interfaces):
            return credentials
        if isinstance(credentials, Password) and IUsernamePassword in self._interfaces:
            return UsernamePassword(
                *(each.encode(errors="surrogatepass") for each in (credentials.username, credentials.password))
            )
        return None

    def requestAvatar(self, avatarId: Any, mind: object, *interfaces: Any) -> tuple[Any, Principal, Callable[[], None]]:
        """Return the principal; raises UnauthorizedLogin if the checker returned no name or an invalid one."""
        if isinstance(avatarId, bytes):
            avatarId = avatarId.decode(errors="surrogateescape")
        who = avatarId if isinstance(avatarId, Principal) else Principal(str(avatarId) if avatarId else "")
        named = self._named(who)
        if not isName(who.name) or not isName(named.name):
            raise UnauthorizedLogin("nobody can be called so")
        return IPrincipal, named, lambda: None


@dataclass(eq=False, repr=False)
class Authenticator:
    """Tries methods in order until one accepts the credentials; ``counted`` is called with :data:`WRONG` and 1."""

    methods: Sequence[AuthenticationMethod]
    _attempts: AttemptDelays
    _clock: IReactorTime
    _counted: Callable[[str, int], object]

    def __post_init__(self) -> None:
        self._logLimit = LogLimit(1)

    async def identify(self, credentials: Any, address: object) -> Principal:
        """Return the principal of these credentials.

        :raises Unauthorized: they are wrong; raised after a delay.
        :raises AuthenticationFailed: no method checks credentials of that kind.
        :raises NoCapacity: they cannot be checked now.
        """
        ways = [way for way in self.methods if way.accepts(credentials)]
        if not ways:
            raise AuthenticationFailed("nothing here checks credentials of this kind")
        place = addressKey(address)
        place = THIS_MACHINE if place is None else place
        attempt = self._attempts.attempt(place)
        try:
            found = await _first(ways, credentials, place, attempt)
            if found is not None:
                return found
            delay = attempt.fail()
        except CancelledError:
            attempt.fail()  # disconnecting early does not shorten the next delay
            raise
        finally:
            attempt.leave()
        self._counted(WRONG, 1)
        more = self._logLimit.passes(self._clock.seconds())
        if more is not None:
            words = "Refusing {peer}: wrong credentials ({more} more since the last such line)"
            _log.info(words, peer=peerAddress(address), more=more)
        await deferLater(self._clock, delay)
        raise Unauthorized("these credentials are not valid here")

    def vouch(self, principal: Principal) -> Principal | None:
        """Return an admitted principal as it would be admitted now, None if it would be refused."""
        for way in self.methods:
            if way.origin == principal.scheme:
                found = way.vouch(principal)
                if found is not None:
                    return found
        return None


async def _first(
    ways: Sequence[AuthenticationMethod], credentials: Any, place: Hashable, attempt: Attempt
) -> Principal | None:
    """Return the principal of the first method that accepts the credentials, else raise NoCapacity if one could not."""
    failed: NoCapacity | None = None
    for way in ways:
        try:
            found = way.remembered(credentials)
            if found is None:
                if way.guarded:
                    attempt.enter()
                found = await way.ask(credentials, place)
        except NoCapacity as error:
            failed = error
        else:
            if found is not None:
                return found
    if failed is not None:
        raise failed
    return None
