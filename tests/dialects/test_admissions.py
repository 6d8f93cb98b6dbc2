"""The admission that other tests use keeps to the interface of real ones."""

from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from fleximq.errors import NoCapacity, Unauthorized
from fleximq.interfaces import IAdmission
from fleximq.security.credentials import Token
from fleximq.security.principal import Principal
from tests.dialects.admissions import OPEN, REFUSAL, REFUSING, FakeAdmission


class FakeTests(SynchronousTestCase):
    """Those of tests.dialects.admissions."""

    def test_interface(self) -> None:
        """All are admissions."""
        for admission in (OPEN, REFUSING, FakeAdmission({})):
            verifyObject(IAdmission, admission)
        self.assertEqual((OPEN.refusal(None), REFUSING.refusal(None)), (None, REFUSAL))

    def test_known(self) -> None:
        """It knows what it was told, and nothing else."""
        admission = FakeAdmission({Token("a"): Principal("alice"), Token("f"): NoCapacity("full")})
        self.assertEqual(self.successResultOf(admission.admit(Token("a"), None)).principal, Principal("alice"))
        self.failureResultOf(admission.admit(Token("f"), None), NoCapacity)
        for wrong in (Token("b"), None):
            self.failureResultOf(admission.admit(wrong, None), Unauthorized)

    def test_later(self) -> None:
        """What is decided later is decided in order; what was cancelled is not."""
        admission = FakeAdmission({None: None}, later=True)
        first, second = admission.admit(None, None), admission.admit(Token("x"), None)
        self.assertNoResult(first)
        first.cancel()
        self.failureResultOf(first)
        admission.decide()
        self.failureResultOf(second, Unauthorized)
        self.assertEqual((admission.waiting, admission.dropped), (0, 1))
