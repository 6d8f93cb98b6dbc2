"""Programs that the broker has started itself."""

from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from fleximq.interfaces import IAdmission, IRights
from fleximq.rights import EVERYTHING
from fleximq.security.principal import Admitted, Principal
from fleximq.services.process.child_service import SpawnedAdmission


class InvitedTests(SynchronousTestCase):
    """One program."""

    def setUp(self) -> None:
        """Invite it."""
        self.asked: list[Principal | None] = []
        self.admission = SpawnedAdmission("worker", self.rightsOf)

    def rightsOf(self, principal: Principal | None) -> IRights:
        """Note who asks."""
        self.asked.append(principal)
        return EVERYTHING

    def test_interface(self) -> None:
        """It is an admission, which asks for nothing and refuses nobody."""
        verifyObject(IAdmission, self.admission)
        self.assertFalse(self.admission.required)
        self.assertIsNone(self.admission.refusal(None))

    def test_principal(self) -> None:
        """The program is let in as itself, whatever it shows, with the rights of that name."""
        wanted = Admitted(Principal("spawn:worker", scheme="spawn"), EVERYTHING)
        for credentials in (None, "anything"):
            self.assertEqual(self.successResultOf(self.admission.admit(credentials, None)), wanted)
        self.assertEqual(self.admission.renewed(wanted), wanted)
        self.assertEqual(self.asked, [wanted.principal] * 3)
