"""Admission of those who do not come too often."""

from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from fleximq.config.rate_options import Rate
from fleximq.errors import JoinRejected
from fleximq.interfaces import IAdmission
from fleximq.rights import EVERYTHING
from fleximq.security.bans import Ban, Bans
from fleximq.security.peer_address import addressKey, clientKey
from fleximq.security.principal import Admitted, Principal
from fleximq.security.rates.admission_rate import BANNED, FLAPS, TOO_OFTEN, RateLimitedAdmission
from fleximq.security.rates.flapping import FlappingLimit
from fleximq.security.rates.token_bucket import KeyedBuckets

LOCAL = IPv4Address("TCP", "127.0.0.1", 1)
FAR = IPv4Address("TCP", "192.0.2.1", 1)


@implementer(IAdmission)
class _Open:
    """Admits everybody as whom it shows itself."""

    required = True

    def __init__(self) -> None:
        self.asked = 0

    def refusal(self, address: Any) -> str | None:
        return None if address is LOCAL else "no"

    def admit(self, credentials: Any, address: Any) -> "Deferred[Admitted]":
        self.asked += 1
        return succeed(Admitted(None if credentials is None else Principal(credentials), EVERYTHING))

    def renewed(self, admitted: Any) -> Any:
        return admitted


class RateLimitedAdmissionTests(SynchronousTestCase):
    """Two attempts a second from each address; two departures mean a minute."""

    def setUp(self) -> None:
        """Nobody came so far."""
        self.clock = Clock()
        self.inner = _Open()
        self.counted: list[str] = []
        self.bans = Bans(self.clock.seconds)
        self.flapping = FlappingLimit(2, 60.0, self.clock.seconds)
        self.admission = RateLimitedAdmission(
            self.inner,
            KeyedBuckets(Rate(2, 2)),
            self.flapping,
            self.clock.seconds,
            lambda event, number: self.counted.append(event),
            self.bans,
        )

    def flap(self, who: Any) -> None:
        """Come and go too often."""
        for _ in range(2):
            self.flapping.left(who, 1.0)

    def test_interface(self) -> None:
        """It is an admission, and says of itself what the one behind it does."""
        verifyObject(IAdmission, self.admission)
        self.assertTrue(self.admission.required)
        self.assertEqual([self.admission.refusal(LOCAL), self.admission.refusal(FAR)], [None, "no"])

    def test_attempts(self) -> None:
        """An address over its rate is turned away before anybody looks at what it shows."""
        for _ in range(2):
            self.successResultOf(self.admission.admit("anna", FAR))
        error = self.failureResultOf(self.admission.admit("anna", FAR), JoinRejected).value
        self.assertEqual(str(error), "this address tries to join too often")
        self.assertEqual((self.inner.asked, self.counted), (2, [TOO_OFTEN]))
        self.clock.advance(0.5)
        self.successResultOf(self.admission.admit("anna", FAR))

    def test_local(self) -> None:
        """This machine's own may try as often as they like."""
        for _ in range(100):
            self.successResultOf(self.admission.admit(None, LOCAL))

    def test_principalFlaps(self) -> None:
        """A principal that came and went too often has to wait, wherever it comes from."""
        self.flap(clientKey("anna", None))
        for place in (LOCAL, FAR):
            error = self.failureResultOf(self.admission.admit("anna", place), JoinRejected).value
            self.assertEqual(str(error), "this client came and went too often and has to wait for 60 s")
            self.assertEqual(error.principal, "anna")
        self.assertEqual(self.counted, [FLAPS] * 2)
        self.successResultOf(self.admission.admit("bert", LOCAL))
        self.clock.advance(60)
        self.successResultOf(self.admission.admit("anna", LOCAL))

    def test_addressFlaps(self) -> None:
        """An address that came and went too often has to wait, whatever it shows."""
        self.flap(addressKey(FAR))
        self.failureResultOf(self.admission.admit("anna", FAR), JoinRejected)
        self.assertEqual(self.inner.asked, 0)

    def test_banned(self) -> None:
        """An address is refused from its ban on, also if its credentials are being checked."""
        check: Deferred[Admitted] = Deferred()
        self.patch(self.inner, "admit", lambda credentials, address: check)
        self.inner.refusal = lambda address: None  # type: ignore[method-assign]
        admitted = self.admission.admit("anna", FAR)
        self.assertIsNone(self.admission.refusal(FAR))
        self.bans.add(Ban("address", "192.0.2.1", 60.0, "", "x"))
        check.callback(Admitted(Principal("anna"), EVERYTHING))
        sentence = "this client is banned for another 60 s"
        self.assertEqual(str(self.failureResultOf(admitted, JoinRejected).value), sentence)
        self.assertEqual([self.admission.refusal(FAR), self.admission.refusal(LOCAL)], [sentence, None])
        self.assertEqual(self.counted, [BANNED] * 2)
        self.clock.advance(60)
        self.assertIsNone(self.admission.refusal(FAR))

    def test_peers(self) -> None:
        """Clients are told apart by principal, else by address; no name can be taken for an address."""
        self.assertEqual(clientKey("anna", FAR), clientKey("anna", LOCAL))
        self.assertEqual(clientKey(None, FAR), addressKey(FAR))
        self.assertNotEqual(clientKey("192.0.2.1", FAR), addressKey(FAR))
        self.assertIsNone(clientKey(None, LOCAL))
