"""Admits the local peers of one listener as one principal (``--listen minimq+tcp:5677:principal=NAME``)."""

from collections.abc import Callable
from typing import Any

from zope.interface import implementer

from fleximq.interfaces import IAdmission, IRights
from fleximq.security.anonymous_access import REFUSAL, isLocal
from fleximq.security.principal import LISTENER, Admitted, Principal


@implementer(IAdmission)
class ListenerAdmission:
    """Admits local peers as the same principal with its current rights; credentials are ignored."""

    required = False

    def __init__(self, name: str, rightsOf: Callable[[Principal | None], IRights]) -> None:
        self._principal = Principal(name, scheme=LISTENER)
        self._rightsOf = rightsOf

    def refusal(self, address: Any) -> str | None:
        return None if isLocal(address) else REFUSAL

    def admit(self, credentials: Any, address: Any) -> Admitted:
        return self.renewed(None)

    def renewed(self, admitted: Any) -> Admitted:
        return Admitted(self._principal, self._rightsOf(self._principal))
