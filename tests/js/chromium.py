"""Pages in Chromium, served from this process, which report what they found."""

import json
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

from twisted.trial.unittest import SkipTest

from tests.js.workshop import PATIENCE

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
_KINDS = {".js": "text/javascript", ".mjs": "text/javascript"}


@cache
def chromium() -> str:
    """Return the path of Chromium; raises SkipTest without one."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        raise SkipTest("this test needs Chromium")
    return found


class Browser:
    """A page in Chromium, with these files by path.

    A POST to a path of ``acts`` calls it, and one to ``/result`` is what the page reports.
    """

    def __init__(self, files: Mapping[str, bytes], acts: Mapping[str, Callable[[], object]] | None = None) -> None:
        chromium()
        self.files, self._acts = dict(files), dict(acts or {})
        self._result: Any = None
        self._isOver = threading.Event()

    def __enter__(self) -> "Browser":
        browser = self

        class Page(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self, status: int, body: bytes, kind: str = "text/plain") -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self) -> None:
                body = browser.files.get(self.path.partition("?")[0])
                kind = _KINDS.get(Path(self.path.partition("?")[0]).suffix, "text/html")
                self.answer(404 if body is None else 200, body or b"", kind)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path == "/result":
                    browser._result = json.loads(body)
                    browser._isOver.set()
                else:
                    browser._acts[self.path]()
                self.answer(200, b"")

            def log_message(self, *words: object) -> None:
                """Be silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self._folder = tempfile.mkdtemp(prefix="fleximq-chromium-")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def origin(self) -> str:
        """The origin of the pages."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def result(self, path: str) -> Any:
        """Open a page, and return what it reports."""
        url = f"{self.origin}{path}"
        program = subprocess.Popen(
            [chromium(), *_FLAGS, f"--user-data-dir={self._folder}", url],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            if not self._isOver.wait(2 * PATIENCE):
                raise AssertionError("the page reported nothing")
        finally:
            program.terminate()
            program.wait(PATIENCE)
        return self._result
