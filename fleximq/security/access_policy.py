"""Decides who may connect, as which principal, and with which rights.

One :class:`AccessPolicy` serves the broker, and a reload replaces its content. :class:`Admission` is its view for one
listener.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from fleximq.config.settings import Settings
from fleximq.errors import Unauthorized
from fleximq.interfaces import IAdmission, IRights
from fleximq.rights import ALL_BUT_ADMIN, EVERYTHING
from fleximq.security.anonymous_access import REFUSAL, isLocal
from fleximq.security.authentication.attempt_delays import AttemptDelays
from fleximq.security.authentication.authenticator import Authenticator
from fleximq.security.authentication.schemes import methodsOf, warnings
from fleximq.security.credentials import Token
from fleximq.security.permissions import Permissions
from fleximq.security.principal import LISTENER, SPAWN, Admitted, Principal
from fleximq.security.web_sessions import TICKET, WebSessions

_log = Logger()


@dataclass(eq=False)
class AccessPolicy:
    """Combines authentication methods and permissions.

    ``authenticator`` is None if no method checks credentials; then none are required. ``allowAnonymous`` says whether
    peers without credentials may connect, from every address. ``attempts`` are the delays after wrong credentials.
    ``sessions`` has the tickets of the console, which are accepted as tokens.
    """

    authenticator: Authenticator | None = None
    permissions: Permissions = Permissions()  # noqa: RUF009  (a value)
    allowAnonymous: bool = False
    attempts: AttemptDelays | None = None
    sessions: WebSessions | None = None

    @classmethod
    def of(
        cls,
        settings: Settings,
        reactor: IReactorTime,
        counted: Callable[[str, int], object] = lambda event, number: None,
        attempts: AttemptDelays | None = None,
    ) -> "AccessPolicy":
        """Make the policy of these settings; reads their files.

        :param counted: called with the name of an event, for counting, and its number.
        :param attempts: the delays of the previous policy, at a reload.
        :raises SettingError: a scheme is unknown, or a file is invalid.
        """
        ways = methodsOf(settings.auth)
        for way in ways:
            way.useReactor(reactor)
        for sentence in warnings(ways, settings.principals):
            _log.warn("{sentence}", sentence=sentence)
        attempts = attempts or AttemptDelays(reactor)
        authenticator = Authenticator(ways, attempts, reactor, counted) if ways else None
        return cls(authenticator, Permissions(settings.roles, settings.principals), settings.allowAnonymous, attempts)

    def replace(self, other: "AccessPolicy") -> None:
        """Take over the content of another policy, not its sessions. Every admission made by this one uses it now."""
        self.authenticator, self.permissions = other.authenticator, other.permissions
        self.allowAnonymous, self.attempts = other.allowAnonymous, other.attempts

    def admissionFor(self, proxied: bool = False) -> "Admission":
        """Return the policy for a listener, which follows this object. ``proxied``: its peers connect by a proxy."""
        return Admission(self, proxied)

    @property
    def required(self) -> bool:
        """Whether credentials are required."""
        return self.authenticator is not None and not self.allowAnonymous

    def admit(self, credentials: Any, address: object) -> Admitted | Deferred[Admitted]:
        """Return the principal of these credentials, and its rights; a Deferred if they must be checked.

        Without an authentication method credentials are ignored. Otherwise they must be right, even if they are
        optional.

        :raises Unauthorized: they are missing or wrong.
        :raises AuthenticationFailed: no method checks credentials of that kind.
        :raises NoCapacity: they cannot be checked now.
        """
        if self.authenticator is not None and credentials is not None:
            if self.sessions is not None and isinstance(credentials, Token) and credentials.token.startswith(TICKET):
                return self.renewed(self.sessions.redeem(credentials.token)._replace(byTicket=True))
            return Deferred.fromCoroutine(self._identified(self.authenticator, credentials, address))
        if self.required:
            raise Unauthorized("credentials are required here")
        return Admitted(None, self.rightsOf(None))

    def accepts(self, credentials: Any) -> bool:
        """Return whether a method can check credentials of this kind."""
        return self.authenticator is not None and any(way.accepts(credentials) for way in self.authenticator.methods)

    async def _identified(self, authenticator: Authenticator, credentials: Any, address: object) -> Admitted:
        principal = self.current(await authenticator.identify(credentials, address))
        if principal is None:  # it was revoked while it was checked
            raise Unauthorized("these credentials are not valid any more")
        return Admitted(principal, self.rightsOf(principal))

    def renewed(self, admitted: Admitted) -> Admitted:
        """Return an earlier admission with today's roles and rights; raises Unauthorized if it would be refused now."""
        principal = admitted.principal
        if not self.vouchesFor(principal):
            raise Unauthorized("these credentials are not valid any more")
        principal = None if principal is None else self.current(principal)
        return admitted._replace(principal=principal, rights=self.rightsOf(principal))

    def rightsOf(self, principal: Principal | None) -> IRights:
        """Return the rights of a principal, None: of anonymous clients.

        Without permissions, ``admin`` is among them only if the broker serves its own machine alone.
        """
        rights = self.permissions.rightsOf(principal)
        isOpen = self.authenticator is not None or self.allowAnonymous
        return ALL_BUT_ADMIN if isOpen and rights is EVERYTHING else rights

    def current(self, principal: Principal) -> Principal | None:
        """Return an admitted principal with today's roles; None if it would be refused now."""
        if principal.name.startswith(SPAWN) or principal.scheme == LISTENER:
            return principal
        return None if self.authenticator is None else self.authenticator.vouch(principal)

    def vouchesFor(self, principal: Principal | None) -> bool:
        """Return whether the credentials of an admitted principal are still valid."""
        return not self.required if principal is None else self.current(principal) is not None


@implementer(IAdmission)
class Admission:
    """The policy for one listener. A peer that connects through a proxy is never local, even if the proxy is."""

    def __init__(self, policy: AccessPolicy, proxied: bool) -> None:
        self._policy = policy
        self._proxied = proxied

    @property
    def required(self) -> bool:
        return self._policy.required

    def admit(self, credentials: Any, address: Any) -> Any:
        return self._policy.admit(credentials, address)

    def renewed(self, admitted: Any) -> Any:
        return self._policy.renewed(admitted)

    def refusal(self, address: Any) -> str | None:
        """Return the sentence that refuses a peer regardless of its credentials, or None."""
        policy = self._policy
        admits = policy.authenticator is not None or policy.allowAnonymous or (isLocal(address) and not self._proxied)
        return None if admits else REFUSAL
