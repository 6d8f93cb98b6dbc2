"""A hostile page in Chromium, whose user has signed in to the console."""

import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SkipTest

from tests.attacks.test_console import ConsoleCase

CHROMIUM = Path("/usr/bin/chromium")
_ARGUMENTS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
_SIGN_IN = """async () => (await fetch("/console/session", {
    method: "POST", headers: {"Content-Type": "application/json"},
    body: JSON.stringify({name: "anna", password: "anna"})})).status"""
#: What a page tries at a broker, by name -> script that returns or resolves to "no" if that was in vain.
_ATTEMPTS = {
    "read": "fetch(at + '/api/clients', {credentials: 'include'}).then(a => a.text(), () => 'no')",
    "read the token": "fetch(at + '/console/session', {credentials: 'include'}).then(a => a.text(), () => 'no')",
    "read opaquely": "fetch(at + '/api/bans', {credentials: 'include', mode: 'no-cors'})"
    ".then(async a => await a.text() || 'no', () => 'no')",
    "post JSON": "fetch(at + '/api/bans/add', {method: 'POST', credentials: 'include', body: ban,"
    " headers: {'Content-Type': 'application/json', 'X-FlexiMQ-CSRF': 'x'}}).then(a => a.text(), () => 'no')",
    "post text": "fetch(at + '/api/bans/add', {method: 'POST', credentials: 'include', mode: 'no-cors', body: ban})"
    ".then(async a => await a.text() || 'no', () => 'no')",
    "publish": "fetch(at + '/topics/open', {method: 'POST', credentials: 'include', mode: 'no-cors', body: 'x'})"
    ".then(async a => await a.text() || 'no', () => 'no')",
    "sign out": "fetch(at + '/console/session', {method: 'DELETE', credentials: 'include', mode: 'cors'})"
    ".then(a => a.text(), () => 'no')",
    "open a WebSocket": "new Promise(done => { const socket = new WebSocket(at.replace('http', 'ws') + '/ws');"
    " socket.onopen = () => done('open'); socket.onerror = () => done('no'); })",
    "read events": "new Promise(done => { const source = new EventSource(at + '/topics/%23', {withCredentials: true});"
    " source.onopen = () => done('open'); source.onerror = () => { source.close(); done('no'); }; })",
    "load a script": "new Promise(done => { const script = document.createElement('script');"
    " script.src = at + '/api/clients'; script.onload = () => done('loaded'); script.onerror = () => done('no');"
    " document.head.append(script); })",
    "load a picture": "new Promise(done => { const image = new Image(); image.onload = () => done('loaded');"
    " image.onerror = () => done('no'); image.src = at + '/favicon.svg'; })",
}


class _Empty(BaseHTTPRequestHandler):
    """Serves an empty page."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!DOCTYPE html><title>hostile</title>")

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing."""


class HostilePageTests(ConsoleCase):
    """A page of another port of the same host, which is of the same site, and one of another host."""

    def setUp(self) -> None:
        """Start Chromium, and sign in."""
        if not CHROMIUM.exists():
            raise SkipTest("chromium is not installed")
        try:
            playwright = import_module("playwright.sync_api")
        except ImportError:
            raise SkipTest("playwright is not installed") from None
        super().setUp()
        started = playwright.sync_playwright().start()
        self.addCleanup(started.stop)
        browser = started.chromium.launch(executable_path=str(CHROMIUM), args=_ARGUMENTS)
        self.addCleanup(browser.close)
        self.context = browser.new_context()
        self.at = f"http://127.0.0.1:{self.broker.port()}"
        self.own = self.context.new_page()
        self.own.goto(f"{self.at}/console/")
        self.assertEqual(self.own.evaluate(_SIGN_IN), 200)

    def serve(self) -> int:
        """Return the port of a server of hostile pages."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), _Empty)
        thread = threading.Thread(target=partial(server.serve_forever, 0.05))
        thread.start()
        self.addCleanup(server.server_close)
        self.addCleanup(thread.join)
        self.addCleanup(server.shutdown)
        return server.server_port

    def status(self) -> int:
        """Return the status of what the signed-in page reads."""
        status: int = self.own.evaluate("async () => (await fetch('/api/clients')).status")
        return status

    def test_attempts(self) -> None:
        """It reads nothing, changes nothing, and opens nothing."""
        port = self.serve()
        for host in ("127.0.0.1", "localhost"):
            page = self.context.new_page()
            page.goto(f"http://{host}:{port}/")
            for name, script in _ATTEMPTS.items():
                words = f"async at => {{ const ban = JSON.stringify({{principal: 'reader'}}); return await {script} }}"
                self.assertEqual(page.evaluate(words, self.at), "no", (host, name))
        self.assertEqual(self.status(), 200)
        bans = self.own.evaluate("async () => (await (await fetch('/api/bans')).json()).bans")
        self.assertEqual(bans, [])

    def test_frame(self) -> None:
        """It shows the console neither in a frame nor in a window that it controls."""
        port = self.serve()
        for host in ("127.0.0.1", "localhost"):
            page = self.context.new_page()
            page.goto(f"http://{host}:{port}/")
            for path in ("/console/", "/", "/api/clients", "/console/session"):
                page.evaluate(
                    "url => new Promise(done => { const frame = document.createElement('iframe'); frame.onload = done;"
                    " frame.src = url; document.body.append(frame); })",
                    f"{self.at}{path}",
                )
                self.assertEqual([each.url for each in page.frames[1:] if each.url.startswith(self.at)], [], path)
            with self.context.expect_page() as opened:
                page.evaluate("url => { window.opened = window.open(url) }", f"{self.at}/console/")
            opened.value.wait_for_load_state()
            self.assertIn("console", opened.value.title().lower())
            page.wait_for_function("window.opened.closed")

    def test_markup(self) -> None:
        """On the page of the console, text cannot become markup or a script, and no script reads the cookie."""
        self.assertEqual(self.own.evaluate("document.cookie"), "")
        self.assertTrue(self.context.cookies(self.at)[0]["httpOnly"])
        for script in (
            "document.body.innerHTML = '<b>x</b>'", "document.write('x')", "setTimeout('window.ran = true', 0)",
            "document.body.insertAdjacentHTML('beforeend', '<b>x</b>')",
            "new DOMParser().parseFromString('<b>x</b>', 'text/html')",
        ):  # fmt: skip
            words = f"() => {{ try {{ {script}; return 'done' }} catch (error) {{ return 'no' }} }}"
            self.assertEqual(self.own.evaluate(words), "no", script)
        self.own.evaluate(
            "() => { const script = document.createElement('script'); script.append('window.ran = true');"
            " document.body.append(script) }"
        )
        self.assertFalse(self.own.evaluate("Boolean(window.ran)"))
