"""The rule of one listener: who comes in there, and as whom."""

from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from zope.interface import implementer

from fleximq.interfaces import IAdmission
from fleximq.security.anonymous_access import Protection
from fleximq.security.principal import Admitted

if TYPE_CHECKING:
    from fleximq.security.access_policy import Security


@implementer(IAdmission)
class Admission:
    """Asks the broker's security, as it is at the time.

    :param protection: whether the listener's peers stand behind a proxy.
    """

    def __init__(self, security: "Security", protection: Protection) -> None:
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
        """See :meth:`fleximq.security.access_policy.Security.admit`. Cancel it when the connection is lost."""
        return Deferred.fromCoroutine(self._security.admit(credentials, address))

    def renewed(self, admitted: Admitted) -> Admitted:
        """Return who was admitted a while ago, with the roles and rights of today.

        :raises Unauthorized: it would not be admitted any more.
        """
        return self._security.renewed(admitted)
