"""The broker's security: who comes in, and what they may do. One object, which takes over another's at a reload.

The rule of one listener: who comes in there, and as whom.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from fleximq.config.settings import Settings
from fleximq.errors import Unauthorized
from fleximq.interfaces import IAdmission, IRights
from fleximq.security.anonymous_access import AnonymousAccess
from fleximq.security.authentication.attempt_delays import AttemptDelays
from fleximq.security.authentication.authenticator import Authenticator
from fleximq.security.authentication.schemes import methodsOf
from fleximq.security.permissions import Permissions
from fleximq.security.principal import SPAWN, Admitted, Principal


@implementer(IAdmission)
class Admission:
    """Asks the broker's security, as it is at the time.

    :param protection: whether the listener's peers stand behind a proxy.
    """

    def __init__(self, security: "AccessPolicy", protection: AnonymousAccess) -> None:
        self._security = security
        self._protection = protection

    @property
    def required(self) -> bool:
        """Whether nobody comes in without credentials."""
        return self._security.required

    def refusal(self, address: Any) -> str | None:
        """Return the sentence for a peer that is turned away whatever it shows: only where nobody can show anything."""
        return self._security.refusal(self._protection, address)

    def admit(self, credentials: Any, address: Any) -> Deferred[Admitted]:
        """See :meth:`fleximq.security.access_policy.AccessPolicy.admit`. Cancel it when the connection is lost."""
        return Deferred.fromCoroutine(self._security.admit(credentials, address))

    def renewed(self, admitted: Admitted) -> Admitted:
        """Return who was admitted a while ago, with the roles and rights of today.

        :raises Unauthorized: it would not be admitted any more.
        """
        return self._security.renewed(admitted)


_log = Logger("fleximq.security.door.Security")


class AccessPolicy:
    """Holds the ways in and the permissions.

    :param authenticator: None if nothing checks credentials; then nobody has to show any.
    :param allowAnonymous: whether who shows no credentials comes in, from everywhere.
    :param attempts: what is known of wrong attempts, for the one that will take this one's place.
    """

    def __init__(
        self,
        authenticator: Authenticator | None = None,
        permissions: Permissions = Permissions(),  # noqa: B008  (a value)
        allowAnonymous: bool = False,
        attempts: AttemptDelays | None = None,
    ) -> None:
        self._authenticator = authenticator
        self._permissions = permissions
        self._allowAnonymous = allowAnonymous
        self.attempts = attempts

    @classmethod
    def of(
        cls,
        settings: Settings,
        reactor: IReactorTime,
        counted: Callable[[str, int], object] = lambda event, number: None,
        attempts: AttemptDelays | None = None,
    ) -> "AccessPolicy":
        """Make what these settings ask for; their files are read now.

        :param counted: called with what happened, for counting, and how often.
        :param attempts: what is known of wrong attempts so far; a reload hands on that of the one it replaces.
        :raises SettingError: a scheme is unknown, or a file is not as it must be.
        """
        ways = methodsOf(settings.auth)
        for way in ways:
            way.useReactor(reactor)
            for sentence in way.warnings:
                _log.warn("{sentence}", sentence=sentence)
        attempts = attempts or AttemptDelays(reactor)
        authenticator = Authenticator(ways, attempts, reactor, counted) if ways else None
        permissions = Permissions(settings.roles, settings.principals)
        return cls(authenticator, permissions, settings.allowAnonymous, attempts)

    def replace(self, other: "AccessPolicy") -> None:
        """Become the other. Every admission that was made of this one asks the new ways from now on."""
        self._authenticator = other._authenticator
        self._permissions = other._permissions
        self._allowAnonymous = other._allowAnonymous
        self.attempts = other.attempts

    def admissionFor(self, protection: AnonymousAccess) -> Admission:
        """Return the rule of a listener, which follows this object. Its ``allowAnonymous`` is not looked at."""
        return Admission(self, protection)

    @property
    def authenticates(self) -> bool:
        """Whether anything checks credentials."""
        return self._authenticator is not None

    @property
    def required(self) -> bool:
        """Whether nobody comes in without credentials."""
        return self._authenticator is not None and not self._allowAnonymous

    def refusal(self, protection: AnonymousAccess, address: object) -> str | None:
        """Return the sentence for a peer that is turned away whatever it shows, None if there is none."""
        if self._authenticator is not None:
            return None
        return replace(protection, allowAnonymous=self._allowAnonymous).refusal(address)

    async def admit(self, credentials: Any, address: object) -> Admitted:
        """Return who somebody is and what it may do.

        Where nothing checks credentials, they are not looked at. Otherwise what is shown must be right, even where
        nothing has to be shown.

        :raises Unauthorized: there are none, or wrong ones.
        :raises AuthenticationFailed: nothing checks credentials of that kind.
        :raises NoCapacity: they cannot be checked now.
        """
        if self._authenticator is None or credentials is None:
            if self.required:
                raise Unauthorized("credentials are required here")
            return Admitted(None, self.rightsOf(None))
        principal = self.current(await self._authenticator.identify(credentials, address))
        if principal is None:  # it was revoked while it was checked
            raise Unauthorized("these credentials are not valid any more")
        return Admitted(principal, self.rightsOf(principal))

    def renewed(self, admitted: Admitted) -> Admitted:
        """Return who was admitted a while ago, with the roles and rights of today.

        :raises Unauthorized: it would not be admitted any more.
        """
        who = admitted.principal
        principal = None if who is None else self.current(who)
        if not self.vouchesFor(who):
            raise Unauthorized("these credentials are not valid any more")
        return Admitted(principal, self.rightsOf(principal))

    def rightsOf(self, principal: Principal | None) -> IRights:
        """Return what somebody may do, None: who shows nothing."""
        return self._permissions.rightsOf(principal)

    def current(self, principal: Principal) -> Principal | None:
        """Return somebody who was let in as it would be let in now, with today's roles; None if it would not be."""
        if principal.name.startswith(SPAWN):
            return principal
        return None if self._authenticator is None else self._authenticator.vouch(principal)

    def vouchesFor(self, principal: Principal | None) -> bool:
        """Say whether somebody who was let in still would be, as far as credentials go."""
        return not self.required if principal is None else self.current(principal) is not None
