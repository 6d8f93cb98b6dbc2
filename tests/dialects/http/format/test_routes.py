"""Paths: which route they mean, and which name."""

from collections.abc import Callable

from twisted.trial.unittest import SynchronousTestCase

from fleximq.dialects.http.format.request_head import HttpError
from fleximq.dialects.http.format.routes import isServed
from fleximq.dialects.http.operations.route_table import ROUTES


class PathTests(SynchronousTestCase):
    """The names in paths."""

    def code(self, call: Callable[..., object], *arguments: object) -> int:
        error: HttpError = self.assertRaises(HttpError, call, *arguments)
        return error.code

    def test_the_rest_of_a_path_is_the_name(self) -> None:
        for path, name in (
            ("/topics/a", "a"),
            ("/topics/a.b", "a.b"),
            ("/topics/a/b", "a/b"),
            ("/topics/a%2Fb", "a/b"),
            ("/topics/a%2fb/", "a/b/"),
            ("/topics/a%252Fb", "a%2Fb"),
            ("/topics/..", ".."),
            ("/topics/../../etc", "../../etc"),
            ("/topics/%2e%2e/a", "../a"),
            ("/topics//a", "/a"),
            ("/topics/a+b", "a+b"),
            ("/topics/%C3%A9%F0%9F%98%80", "é😀"),
            ("/topics/%24sys%2Fx", "$sys/x"),
            ("/topics/a%00b", "a\x00b"),
            ("/topics/%3Cb%3E", "<b>"),
            ("/topics/take", "take"),
            ("/queues/take", "take"),
        ):
            self.assertEqual(ROUTES.find(path)[1], (name,), path)

    def test_the_last_segment_may_be_an_action(self) -> None:
        for path, name, method, action in (
            ("/queues/mails/take", "mails", "POST", "take"),
            ("/queues/mails/settle", "mails", "POST", "settle"),
            ("/queues/a/b/take", "a/b", "POST", "take"),
            ("/queues/mails%2Ftake", "mails/take", "POST", ""),
            ("/queues/take/take", "take", "POST", "take"),
            ("/topics/a/take", "a/take", "POST", ""),
        ):
            routes, names = ROUTES.find(path)
            self.assertEqual((names, routes[method].action), ((name,), action), path)

    def test_a_request_has_two_names(self) -> None:
        for path, names in (
            ("/request/calc/add", ("calc", "add")),
            ("/request/calc/", ("calc", "")),
            ("/request/a%2Fb/c/d", ("a/b", "c/d")),
        ):
            self.assertEqual(ROUTES.find(path)[1], names, path)

    def test_unknown_paths(self) -> None:
        for path in ("/topics/", "/topics", "/other/a", "/queues/", "/request/calc", "/request//a", "/queues//take"):
            self.assertEqual(self.code(ROUTES.find, path), 404, path)

    def test_misspelt_paths(self) -> None:
        """They are answered here, with the path that was probably meant."""
        for path, meant in (("/topic/a/b", "topics"), ("/queue/q/take", "queues"), ("/requests/calc/add", "request")):
            error = self.assertRaises(HttpError, ROUTES.find, path)
            self.assertEqual((error.code, isServed(path)), (404, True))
            self.assertIn(f"did you mean /{meant}/?", str(error))

    def test_malformed_names(self) -> None:
        for path in ("/topics/%", "/topics/a%2", "/topics/%GG", "/topics/%ff", "/topics/%ed%a0%80", "/topics/%+1"):
            self.assertEqual(self.code(ROUTES.find, path), 400, path)

    def test_what_belongs_to_the_web_site(self) -> None:
        for path in (
            "/",
            "/topics",
            "/api/topics",
            "/topics.js",
            "/console/topics/x",
            "//topics/a",
            "/Topics/a",
            "topics/a",
        ):
            self.assertFalse(isServed(path), path)
        for path in ("/topics/a", "/queues/a", "/request/a/b", "/topics/"):
            self.assertTrue(isServed(path), path)
