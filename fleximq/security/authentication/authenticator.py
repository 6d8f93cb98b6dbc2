"""Finds out who somebody is: asks each way in turn, and lets who is wrong wait for the answer.

What a peer hears, and after which time, is the same for a name that nobody has and for a secret that is wrong.
"""

from collections.abc import Callable, Hashable, Sequence
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

_log = Logger("fleximq.security.authenticator.Authenticator")

#: What is counted for each wrong attempt.
WRONG = CountedEvent(EventFamily.REFUSED_CONNECTIONS, "wrong credentials")
#: Where all peers on this machine come from; their wrong attempts count together.
THIS_MACHINE = "this machine"
#: Seconds between two lines of the log about this; a flood of attempts must not become one of lines.
QUIET = 1.0

_WORDS = "these credentials are not valid here"


class Authenticator:
    """Asks the ways, in their order; the first that knows somebody decides who it is.

    :param counted: called with :data:`WRONG` and 1 for each wrong attempt.
    """

    def __init__(
        self,
        ways: Sequence[AuthenticationMethod],
        attempts: AttemptDelays,
        clock: IReactorTime,
        counted: Callable[[str, int], object],
    ) -> None:
        self.methods = tuple(ways)
        self._attempts = attempts
        self._clock = clock
        self._counted = counted
        self._quietUntil = 0.0
        self._unsaid = 0

    async def identify(self, credentials: Any, address: object) -> Principal:
        """Return whose credentials these are.

        :raises Unauthorized: nobody's, said after a while.
        :raises AuthenticationFailed: they are of a kind that none of the ways checks.
        :raises NoCapacity: it cannot be found out now.
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
            attempt.fail()  # who goes before the answer does not get the next one sooner
            raise
        finally:
            attempt.leave()
        self._note(address)
        await deferLater(self._clock, delay)
        raise Unauthorized(_WORDS)

    def vouch(self, principal: Principal) -> Principal | None:
        """Return somebody who was let in as it would be today, None if it would not be."""
        for way in self.methods:
            if way.scheme == principal.scheme:
                found = way.vouch(principal)
                if found is not None:
                    return found
        return None

    def _note(self, address: object) -> None:
        self._counted(WRONG, 1)
        now = self._clock.seconds()
        if now < self._quietUntil:
            self._unsaid += 1
            return
        self._quietUntil = now + QUIET
        _log.info(
            "Refusing {peer}: wrong credentials ({more} more since the last such line)",
            peer=peerAddress(address),
            more=self._unsaid,
        )
        self._unsaid = 0


async def _first(
    ways: Sequence[AuthenticationMethod], credentials: Any, place: Hashable, attempt: Attempt
) -> Principal | None:
    """Return whom the first way knows that knows somebody; one that cannot tell is passed over as long as it can be.

    :raises NoCapacity: nobody knows these credentials, but somebody could not tell.
    """
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
