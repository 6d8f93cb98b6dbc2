"""Errors in BlipMQ's words."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.dialects.blipmq.messages import BlipJoinRefused, nackOf
from fleximq.dialects.connection.error_codes import UnsupportedVersion
from fleximq.errors import BadRequest, BrokerError, Forbidden, InvalidTopic, NoCapacity, NotFound, NotKept, Unauthorized


class NackTests(SynchronousTestCase):
    """The code of each error."""

    def test_codes(self) -> None:
        """Every kind has one of the document's codes, and 500 is for all the rest."""
        for error, code in (
            (UnsupportedVersion("x"), 426),
            (BadRequest("x"), 400),
            (InvalidTopic("x"), 400),
            (Unauthorized("x"), 401),
            (BlipJoinRefused("x"), 401),
            (NotFound("x"), 404),
            (NoCapacity("x"), 500),
            (BrokerError("x"), 500),
        ):
            self.assertEqual(nackOf(error), (code, "x"), type(error))

    def test_forbidden(self) -> None:
        """What is forbidden is not explained."""
        self.assertEqual(nackOf(Forbidden("only the broker may")), (401, "not permitted"))

    def test_notKept(self) -> None:
        """What could not be kept says why."""
        self.assertEqual(nackOf(NotKept("disk full")), (500, "durable publish failed: disk full"))

    def test_closes(self) -> None:
        """Only a peer that is turned away loses its connection."""
        self.assertTrue(BlipJoinRefused.closes)
        self.assertFalse(UnsupportedVersion.closes)
