"""What errors say, and that they can be sent to another process."""

import pickle

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.errors import Answered, ConnectionLost, JoinRefused, PublishFailed, RequestFailed, SubscribeFailed


class AnsweredTests(SynchronousTestCase):
    """Errors with a status."""

    def test_text(self) -> None:
        """The text has the number, its name where it has one, and the words where there are some."""
        texts = [str(RequestFailed(404, "no such path")), str(RequestFailed(404, "")), str(RequestFailed(499, "own"))]
        self.assertEqual(texts, ["404 not found: no such path", "404 not found", "499: own"])

    def test_pickled(self) -> None:
        """All that is in an error comes back, the errors beside it as well."""
        for kind in (JoinRefused, RequestFailed, SubscribeFailed, PublishFailed):
            error = pickle.loads(pickle.dumps(kind(503, "full", "a", b"\x01")))
            self.assertIs(type(error), kind)
            self.assertEqual((str(error), error.status, error.words), ("503 service unavailable: full", 503, "full"))
            self.assertEqual((error.path, error.payload), ("a", b"\x01"))
        many = PublishFailed(503, "full")
        many.others, many.count = (PublishFailed(400, "odd"),), 7
        again = pickle.loads(pickle.dumps(many))
        self.assertEqual((again.others[0].words, again.count), ("odd", 7))
        self.assertEqual(str(pickle.loads(pickle.dumps(ConnectionLost("gone")))), "gone")

    def test_family(self) -> None:
        """One name catches all of them."""
        for kind in (JoinRefused, RequestFailed, SubscribeFailed, PublishFailed):
            self.assertTrue(issubclass(kind, Answered))
