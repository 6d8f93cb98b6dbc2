"""The files that the broker serves from its package."""

import gzip
from pathlib import Path

from fleximq.dialects.http.routing.origins import Origins
from fleximq.web import static_files
from fleximq.web.static_files import CONSOLE, StaticFile, staticFiles
from tests.web.asking import SiteCase

FOLDER = Path(static_files.__file__).parent


class ConsoleCase(SiteCase):
    """A site with a script of the console whose text is known."""

    def setUp(self) -> None:
        """Add the script to the table."""
        super().setUp()
        files = {**staticFiles(), "/console/a.js": StaticFile.of("a.js", b"let a;\n" * 100)}
        self.patch(static_files, "staticFiles", lambda: files)


class StaticFilesTests(ConsoleCase):
    """What is served, and how."""

    def test_index(self) -> None:
        """The page is HTML that no cache stores, no frame shows and no other origin gives scripts to."""
        answer = self.ask("GET /console/")
        self.assertEqual((answer.code, answer.body), (200, (FOLDER / "console" / "index.html").read_bytes()))
        self.assertEqual(answer.fields["content-type"], "text/html; charset=utf-8")
        self.assertEqual(answer.fields["cache-control"], "no-store")
        self.assertNotIn("etag", answer.fields)
        policy = [each.strip() for each in answer.fields["content-security-policy"].split(";")]
        for rule in ("default-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"):
            self.assertIn(rule, policy)
        self.assertNotIn("unsafe", answer.fields["content-security-policy"])
        self.assertEqual(answer.fields["x-content-type-options"], "nosniff")
        self.assertEqual(answer.fields["cross-origin-opener-policy"], "same-origin")

    def test_everyFileIsServedWithItsType(self) -> None:
        """Each file of the package is served as it is, with a type that a browser accepts."""
        for path in (FOLDER / "console").rglob("*"):
            if path.is_file():
                name = path.relative_to(FOLDER / "console").as_posix()
                answer = self.ask(f"GET /console/{'' if name == 'index.html' else name}")
                self.assertEqual((answer.code, answer.body), (200, path.read_bytes()), name)
                self.assertNotEqual(answer.fields["content-type"], "application/octet-stream", name)

    def test_sizeInAll(self) -> None:
        """The console, its charts and the client that it loads are at most 150 KB, uncompressed."""
        self.assertLessEqual(sum(len(each.body) for each in staticFiles().values()), 150 * 1024)

    def test_script(self) -> None:
        """A script is asked for again each time, and not sent again while it is the same."""
        answer = self.ask("GET /console/a.js")
        self.assertEqual((answer.code, answer.body), (200, b"let a;\n" * 100))
        self.assertEqual(answer.fields["content-type"], "text/javascript; charset=utf-8")
        self.assertEqual(answer.fields["cache-control"], "no-cache")
        again = self.ask("GET /console/a.js", f'If-None-Match: "other", {answer.fields["etag"]}')
        self.assertEqual((again.code, again.body), (304, b""))
        self.assertEqual(self.ask("GET /console/a.js", 'If-None-Match: W/"other"').code, 200)

    def test_head(self) -> None:
        """HEAD tells what GET would send; a range is answered with all."""
        answer = self.ask("HEAD /console/a.js")
        self.assertEqual((answer.code, answer.body, answer.fields["content-length"]), (200, b"", "700"))
        self.assertEqual(self.ask("GET /console/a.js", "Range: bytes=0-1").body, b"let a;\n" * 100)

    def test_gzip(self) -> None:
        """Clients that accept gzip get it."""
        for accepted in ("gzip", "br, GZIP;q=0.5", "deflate,gzip ; q=1"):
            answer = self.ask("GET /console/a.js", f"Accept-Encoding: {accepted}")
            self.assertEqual(answer.fields["content-encoding"], "gzip", accepted)
            self.assertEqual(gzip.decompress(answer.body), b"let a;\n" * 100)
            self.assertEqual(answer.fields["vary"], "Accept-Encoding")
        for accepted in ("identity", "gzip;q=0", "gzip; q=0.000", "x-gzip", "\xff"):
            answer = self.ask("GET /console/a.js", f"Accept-Encoding: {accepted}")
            self.assertNotIn("content-encoding", answer.fields, accepted)

    def test_folder(self) -> None:
        """The folder without its slash leads to the page."""
        answer = self.ask("GET /console")
        self.assertEqual((answer.code, answer.fields["location"]), (308, CONSOLE))

    def test_onlyRead(self) -> None:
        """Files are read only."""
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            answer = self.ask(f"{method} /console/a.js")
            self.assertEqual((answer.code, answer.fields["allow"], answer.body), (405, "GET, HEAD", b""))

    def test_paths(self) -> None:
        """Only the paths of the table are served, in this spelling."""
        for path in (
            "/console/../static_files.py", "/console/%2e%2e/static_files.py", "/console/..%2fstatic_files.py",
            "/console//a.js", "/console/./a.js", "/console/a.js/", "/console/a.js%00", "/console/\\..\\request.py",
            "/console/index.html", "/consolea.js", "//console/", "/CONSOLE/", "/static/fleximq.js", "/console/vendor/",
            "/console/%61.js", "/fleximq.js/", "/console/....//a.js",
        ):  # fmt: skip
            self.assertEqual(self.ask(f"GET {path}").code, 404, path)

    def test_allowedOrigins(self) -> None:
        """Pages of allowed origins may load the JavaScript client from the broker, and nothing else."""
        files = {**static_files.staticFiles(), "/fleximq.js": StaticFile.of("fleximq.js", b"export let a")}
        self.patch(static_files, "staticFiles", lambda: files)
        self.cors = Origins(frozenset({"https://own.example", "*"})).corsFields
        for path, origin, allowed in (
            ("/fleximq.js", "https://own.example", "https://own.example"), ("/fleximq.js", "https://a.example", None),
            ("/fleximq.js", "null", None), ("/console/a.js", "https://own.example", None),
            ("/api/about", "https://own.example", None),
        ):  # fmt: skip
            answer = self.ask(f"GET {path}", f"Origin: {origin}")
            self.assertEqual((answer.code, answer.fields.get("access-control-allow-origin")), (200, allowed), path)
            self.assertNotIn("access-control-allow-credentials", answer.fields)

    def test_anyoneMayRead(self) -> None:
        """Clients without credentials get the page, which asks for them."""
        self.admitted = None
        self.assertEqual(self.ask("GET /console/").code, 200)


class NoConsoleTests(ConsoleCase):
    """A broker without a console."""

    def setUp(self) -> None:
        """Have no sessions."""
        super().setUp()
        self.sessions = None

    def test_off(self) -> None:
        """There is no console; the JavaScript client does not belong to it."""
        client = {"/fleximq.js": StaticFile.of("fleximq.js", b"export let a")}
        self.patch(static_files, "staticFiles", lambda: client)
        for path in ("/console", "/console/", "/console/a.js"):
            self.assertEqual(self.ask(f"GET {path}").code, 404)
        self.assertEqual(self.ask("GET /fleximq.js").body, b"export let a")
        self.assertNotIn(b"/console/", self.ask("GET /", "Accept: text/html").body)
