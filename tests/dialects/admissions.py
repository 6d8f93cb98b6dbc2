"""Who may come in, for tests: a few credentials, known in advance, whose check may take its time."""

from collections.abc import Mapping
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from zope.interface import implementer

from fleximq.errors import Unauthorized
from fleximq.interfaces import IAdmission, IRights
from fleximq.rights import EVERYTHING
from fleximq.security.principal import Admitted, Principal

#: The sentence with which :data:`REFUSING` turns peers away.
REFUSAL = "nobody is served here"
#: What is said of credentials that nobody knows.
WRONG = Unauthorized("these are not known here")


@implementer(IAdmission)
class FakeAdmission:
    """Knows some credentials; ``asked`` are those that were shown, in order.

    :param known: the principal behind each, or the error with which it fails; what is not here is wrong. None stands
        for who shows nothing; where it is missing, credentials are required.
    :param refused: the sentence with which everybody is turned away.
    :param later: nothing is decided before :meth:`decide`.
    """

    def __init__(
        self,
        known: Mapping[Any, Principal | Exception | None],
        refused: str | None = None,
        later: bool = False,
        rights: IRights = EVERYTHING,
    ) -> None:
        self.known = dict(known)
        self.later = later
        self.rights = rights
        self.asked: list[Any] = []
        self.dropped = 0
        self._refused = refused
        self._waiting: list[tuple[Deferred[Admitted], Any]] = []

    @property
    def required(self) -> bool:
        """Whether nothing shown is not enough."""
        return None not in self.known

    def refusal(self, address: Any) -> str | None:
        """Return the sentence."""
        return self._refused

    def admit(self, credentials: Any, address: Any) -> Deferred[Admitted]:
        """Look credentials up, or wait."""
        self.asked.append(credentials)
        if not self.later:
            return self._found(credentials)
        check: Deferred[Admitted] = Deferred(self._drop)
        self._waiting.append((check, credentials))
        return check

    def renewed(self, admitted: Admitted) -> Admitted:
        """Return it as it was, if its principal is still known."""
        if admitted.principal not in self.known.values():
            raise WRONG
        return admitted

    def decide(self) -> None:
        """Decide on the oldest that waits."""
        check, credentials = self._waiting.pop(0)
        self._found(credentials).chainDeferred(check)

    @property
    def waiting(self) -> int:
        """How many are not decided."""
        return len(self._waiting)

    def _found(self, credentials: Any) -> Deferred[Admitted]:
        found = self.known.get(credentials, WRONG)
        if isinstance(found, Exception):
            return fail(found)
        return succeed(Admitted(found, self.rights))

    def _drop(self, check: Deferred[Admitted]) -> None:
        self._waiting = [each for each in self._waiting if each[0] is not check]
        self.dropped += 1


class Everybody(FakeAdmission):
    """Knows nobody, and lets everybody in, whatever is shown."""

    def __init__(self) -> None:
        super().__init__({None: None})

    def admit(self, credentials: Any, address: Any) -> Admitted:  # type: ignore[override]
        """Decide at once, as without a method of authentication."""
        return Admitted(None, self.rights)


#: Lets everybody in, and nobody.
OPEN, REFUSING = Everybody(), FakeAdmission({None: None}, refused=REFUSAL)
