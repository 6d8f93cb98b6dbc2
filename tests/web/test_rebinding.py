"""Hosts and origins by themselves; what follows from them is tried in test_site."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.web.request import HttpRefusal, checkHost, checkPost


class HostTests(SynchronousTestCase):
    """Which names are good."""

    def test_none(self) -> None:
        """No name is good: no browser leaves it out."""
        checkHost(None, False)

    def test_empty(self) -> None:
        """An empty one is not."""
        self.assertEqual(self.assertRaises(HttpRefusal, checkHost, "", False).code, 403)

    def test_added(self) -> None:
        """That of an origin that was allowed is good with whatever port."""
        checkHost("console.example:7890", False, ("https://console.example",))

    def test_trusted(self) -> None:
        """Where names are trusted all are good."""
        checkHost("anything", True)


class PostTests(SynchronousTestCase):
    """What may be posted."""

    def test_program(self) -> None:
        """A program that says nothing of an origin may post JSON, with whatever parameters."""
        checkPost("application/json; charset=utf-8", None, None, None, ())

    def test_noKind(self) -> None:
        """What has no kind is refused."""
        self.assertEqual(self.assertRaises(HttpRefusal, checkPost, None, None, None, None, ()).code, 415)

    def test_ownOrigin(self) -> None:
        """A page of the broker's own address may post, by whatever scheme it came."""
        for scheme in ("http", "https"):
            checkPost("application/json", f"{scheme}://127.0.0.1:7890", "127.0.0.1:7890", "same-origin", ())
