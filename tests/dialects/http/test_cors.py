"""Web pages of other origins that the operator has admitted, and of those that he has not."""

from fleximq.dialects.http.routing.origins import Origins
from tests.dialects.http.case import HttpCase, post, request, responses

PAGE = "https://shop.example"


class CorsTests(HttpCase):
    """What a browser needs to let a page send requests and read the answers."""

    def setUp(self) -> None:
        """Admit a page, and all for WebSockets."""
        super().setUp()
        self.open(self.context, Origins(frozenset({PAGE, "*"}), namesTrusted=True))

    def ask(self, data: bytes) -> tuple[int, dict[str, str]]:
        ((status, fields, _),) = responses(self.join().ask(data))
        return status, fields

    def test_an_admitted_page_may_ask_and_read(self) -> None:
        asked = "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization,content-type"
        status, fields = self.ask(request("OPTIONS /topics/demo", b"", f"Origin: {PAGE}", *asked))
        self.assertEqual((status, fields["access-control-allow-origin"], fields["vary"]), (204, PAGE, "Origin"))
        self.assertIn("POST", fields["access-control-allow-methods"])
        for name in ("authorization", "content-type", "fleximq-message-id", "last-event-id"):
            self.assertIn(name, fields["access-control-allow-headers"].lower())
        status, fields = self.ask(post("/topics/demo", 1, f"Origin: {PAGE}", "Sec-Fetch-Site: cross-site"))
        self.assertEqual((status, fields["access-control-allow-origin"], fields["vary"]), (200, PAGE, "Origin"))
        self.assertIn("Retry-After", fields["access-control-expose-headers"])

    def test_errors_can_be_read_too(self) -> None:
        for data in (post("/nothing/x"), post("/topics/"), request("DELETE /topics/x"), post("/topics/%ff", 1)):
            data = data.replace(b"/nothing/x", b"/request/nobody/x").replace(
                b"\r\n\r\n", b"\r\nOrigin: %b\r\n\r\n" % PAGE.encode()
            )
            status, fields = self.ask(data)
            self.assertGreaterEqual(status, 400)
            self.assertEqual(fields["access-control-allow-origin"], PAGE, status)

    def test_no_other_page_may(self) -> None:
        for origin in ("https://evil.example", "null", "*", "http://shop.example", "https://shop.example:444"):
            for data in (
                request("OPTIONS /topics/demo", b"", f"Origin: {origin}"),
                post("/topics/demo", 1, f"Origin: {origin}"),
            ):
                status, fields = self.ask(data)
                self.assertEqual((status, [each for each in fields if each.startswith("access-control")]), (403, []))

    def test_a_form_of_a_foreign_page_is_refused(self) -> None:
        """A browser sends these without asking; it names the page in each."""
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
            for fields in (("Origin: https://evil.example",), ("Sec-Fetch-Site: cross-site",), ("Origin: null",)):
                status, _ = self.ask(request("POST /topics/demo", b"x", f"Content-Type: {kind}", *fields))
                self.assertEqual(status, 403)
        self.assertEqual(len(self.broker.clients), 0)

    def test_the_brokers_own_page_needs_no_fields(self) -> None:
        status, fields = self.ask(
            post("/topics/demo", 1, "Origin: http://127.0.0.1:7890", "Sec-Fetch-Site: same-origin")
        )
        self.assertEqual((status, "access-control-allow-origin" in fields), (200, False))

    def test_credentials_of_the_browser_are_never_sent(self) -> None:
        for data in (
            request("OPTIONS /topics/demo", b"", f"Origin: {PAGE}"),
            post("/topics/demo", 1, f"Origin: {PAGE}"),
        ):
            self.assertNotIn("access-control-allow-credentials", self.ask(data)[1])

    def test_the_field_is_of_each_request(self) -> None:
        """One connection may serve pages and programs."""
        peer = self.join()
        found = responses(
            peer.ask(post("/topics/a", 1) + post("/topics/a", 1, f"Origin: {PAGE}") + post("/topics/a", 1))
        )
        self.assertEqual(["access-control-allow-origin" in fields for _, fields, _ in found], [False, True, False])
