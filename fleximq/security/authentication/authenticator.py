"""Finds the principal of credentials: tries each method in turn, and delays wrong answers.

The answer and its delay are the same for an unknown name and for a wrong secret.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import InitVar, dataclass
from typing import Any

from twisted.internet.defer import CancelledError
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from fleximq.errors import AuthenticationFailed, NoCapacity, Unauthorized
from fleximq.security.authentication.attempt_delays import Attempt, AttemptDelays
from fleximq.security.authentication.authentication_method import AuthenticationMethod
from fleximq.security.peer_address import addressKey, peerAddress
from fleximq.security.principal import Principal
from fleximq.values.counted_event import CountedEvent, EventFamily
from fleximq.values.log_limit import LogLimit

_log = Logger()

#: The event counted for each wrong attempt.
WRONG = CountedEvent(EventFamily.REFUSED_CONNECTIONS, "wrong credentials")
#: The key of all local peers; their wrong attempts count together.
THIS_MACHINE = "this machine"


@dataclass(eq=False, repr=False)
class Authenticator:
    """Tries the methods in order; the first that accepts the credentials decides the principal.

    ``counted`` is called with :data:`WRONG` and 1 for each wrong attempt.
    """

    ways: InitVar[Sequence[AuthenticationMethod]]
    _attempts: AttemptDelays
    _clock: IReactorTime
    _counted: Callable[[str, int], object]

    def __post_init__(self, ways: Sequence[AuthenticationMethod]) -> None:
        self.methods = tuple(ways)
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
        self._note(address)
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

    def _note(self, address: object) -> None:
        self._counted(WRONG, 1)
        more = self._logLimit.passes(self._clock.seconds())
        if more is not None:
            words = "Refusing {peer}: wrong credentials ({more} more since the last such line)"
            _log.info(words, peer=peerAddress(address), more=more)


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
