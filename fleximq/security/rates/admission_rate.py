"""Limits join attempts, and refuses banned clients and those that reconnect too often.

Addresses are refused before credentials are checked, so that a flood of attempts costs no checks.
"""

import math
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, fail
from zope.interface import implementer

from fleximq.errors import JoinRejected
from fleximq.interfaces import IAdmission
from fleximq.security.bans import Bans
from fleximq.security.peer_address import addressKey, clientKey
from fleximq.security.principal import Admitted
from fleximq.security.rates.flapping import FlappingLimit
from fleximq.security.rates.token_bucket import KeyedBuckets
from fleximq.values.counted_event import CountedEvent, EventFamily

#: The events counted for refused attempts.
TOO_OFTEN = CountedEvent(EventFamily.REFUSED_CONNECTIONS, "too many attempts to join a second from one address")
FLAPS = CountedEvent(EventFamily.REFUSED_CONNECTIONS, "came and went too often")
BANNED = CountedEvent(EventFamily.REFUSED_CONNECTIONS, "banned")


@implementer(IAdmission)
class RateLimitedAdmission:
    """Forwards attempts within the limits to another admission.

    :param inner: checks the credentials.
    :param joins: the rate of attempts per remote address; local peers are not limited.
    :param flapping: the clients that must wait.
    :param seconds: the clock.
    :param counted: called with the reason and 1 for each refusal.
    :param bans: the principals and addresses that may not join.
    """

    def __init__(
        self,
        inner: IAdmission,
        joins: KeyedBuckets,
        flapping: FlappingLimit,
        seconds: Callable[[], float],
        counted: Callable[[str, int], object],
        bans: Bans | None = None,
    ) -> None:
        self._inner = inner
        self._joins = joins
        self._flapping = flapping
        self._seconds = seconds
        self._counted = counted
        self._bans = Bans() if bans is None else bans

    @property
    def required(self) -> bool:
        """Whether credentials are required."""
        return bool(self._inner.required)

    def refusal(self, address: Any) -> str | None:
        """Return the sentence that refuses a peer regardless of its credentials, as its address is banned, or None."""
        return self._banned(addressKey(address)) or self._inner.refusal(address)

    def admit(self, credentials: Any, address: Any) -> "Deferred[Admitted]":
        """Count an attempt, and let the inner admission decide, see :class:`fleximq.interfaces.IAdmission`."""
        place = addressKey(address)
        if place is not None:
            try:
                self._mayCome(place)
                if not self._joins.passes(place, self._seconds()):
                    self._counted(TOO_OFTEN, 1)
                    raise JoinRejected("this address tries to join too often")
            except JoinRejected:
                return fail()
        admitted: Deferred[Admitted] = self._inner.admit(credentials, address)
        return admitted.addCallback(self._mayStay, place)

    def renewed(self, admitted: Any) -> Any:
        """Return an earlier admission as it would be admitted now."""
        return self._notBanned(self._inner.renewed(admitted))

    def _notBanned(self, admitted: Admitted) -> Admitted:
        if admitted.principal is not None:
            _named(admitted.principal.name, self._refuseBanned)
        return admitted

    def _banned(self, who: Any) -> str | None:
        left = self._bans.waits(who)
        if not left:
            return None
        self._counted(BANNED, 1)
        return f"this client is banned for another {math.ceil(left)} s"

    def _refuseBanned(self, who: Any) -> None:
        sentence = self._banned(who)
        if sentence is not None:
            raise JoinRejected(sentence)

    def _mayStay(self, admitted: Admitted, place: Any) -> Admitted:
        self._refuseBanned(place)  # it may have been banned while its credentials were checked
        if admitted.principal is not None:
            _named(admitted.principal.name, self._mayCome)
        return admitted

    def _mayCome(self, who: Any) -> None:
        self._refuseBanned(who)
        left = self._flapping.waits(who)
        if left:
            self._counted(FLAPS, 1)
            raise JoinRejected(f"this client came and went too often and has to wait for {math.ceil(left)} s")


def _named(principal: str, check: Callable[[Any], None]) -> None:
    """Check a principal's key; the error says whose credentials they were."""
    try:
        check(clientKey(principal, None))
    except JoinRejected as error:
        error.principal = principal
        raise
