"""The rule for a program that the broker has started itself: it comes in without credentials, under its own name."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, succeed
from zope.interface import implementer

from fleximq.interfaces import IAdmission, IRights
from fleximq.security.names import SPAWN
from fleximq.security.principal import Admitted, Principal


@implementer(IAdmission)
class Invited:
    """Lets in whoever comes, as one principal. What it shows is not looked at.

    :param name: the program's; as a principal it is ``spawn:<name>``.
    :param rightsOf: returns what a principal may do at the time.
    """

    required = False

    def __init__(self, name: str, rightsOf: Callable[[Principal | None], IRights]) -> None:
        self._principal = Principal(SPAWN + name, scheme="spawn")
        self._rightsOf = rightsOf

    def refusal(self, address: Any) -> str | None:
        """Turn nobody away."""
        return None

    def admit(self, credentials: Any, address: Any) -> Deferred[Admitted]:
        """Return the one who was invited."""
        return succeed(Admitted(self._principal, self._rightsOf(self._principal)))

    def renewed(self, admitted: Admitted) -> Admitted:
        """Return the one who was invited, with the rights of today."""
        return Admitted(self._principal, self._rightsOf(self._principal))
