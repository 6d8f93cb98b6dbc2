"""A stand-in of a schema registry: the requests of Confluent's Python client, in memory, on loopback.

It has subjects, versions, numbers, references and the lookup of a schema. It parses no schema; so it has those of
Protocol Buffers as clients send them, descriptors in base64, and refuses to write them as text. Of compatibility it
knows one rule: a new field of an Avro record needs a default.
"""

import json
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

_TYPE = "application/vnd.schemaregistry.v1+json"


class RegistryError(Exception):
    """A request is answered with a status and the registry's own code."""

    def __init__(self, status: int, code: int, words: str) -> None:
        super().__init__(words)
        self.status, self.code = status, code


class Registry:
    """Listens on loopback while it is entered; ``url`` is for clients, ``asked`` has the paths of all requests.

    ``failures`` are the statuses of the next answers, None for a connection that ends without an answer; ``login`` is
    what the header Authorization must be, ``logins`` has those of all requests. ``isProxy``: it is a server that knows
    no path. ``redirection`` is the URL of another registry, to which it sends clients. ``made`` is the content of all
    answers in place of its own, ``trickles`` that they come byte by byte.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.failures: list[int | None] = []
        self.login: str | None = None
        self.logins: list[str | None] = []
        self.isProxy = False
        self.redirection = ""
        self.made: bytes | None = None
        self.trickles = False
        self._schemas: list[dict[str, Any]] = []
        self._subjects: dict[str, list[int]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Requests", (_Requests,), {"registry": self}))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "Registry":
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        """Add a schema to a subject, and return its number."""
        wanted = {name: schema[name] for name in ("schema", "schemaType", "references") if schema.get(name)}
        if not self._fits(subject, wanted):
            raise RegistryError(409, 409, f"Schema being registered is incompatible with {subject}")
        if wanted not in self._schemas:
            self._schemas.append(wanted)
        number = self._schemas.index(wanted) + 1
        versions = self._subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        """Return the answer to a request."""
        steps = [unquote(each) for each in path.strip("/").split("/")]
        match (method, *steps):
            case ("GET", "schemas", "ids", number):
                if not number.isdigit() or not 0 < int(number) <= len(self._schemas):
                    raise RegistryError(404, 40403, f"Schema {number} not found")
                return self._formatted(self._schemas[int(number) - 1], query)
            case ("POST", "subjects", subject, "versions"):
                return {"id": self.register(subject, body)}
            case ("POST", "subjects", subject):
                return self._found(subject, body)
            case ("GET", "subjects"):
                return list(self._subjects)
            case ("GET", "subjects", subject, "versions"):
                return list(range(1, len(self._known(subject)) + 1))
            case ("GET", "subjects", subject, "versions", version):
                return self._version(subject, version, query)
            case ("POST", "compatibility", "subjects", subject, "versions", _):
                return {"is_compatible": self._fits(subject, body)}
        raise RegistryError(404, 404, "HTTP 404 Not Found")

    def _known(self, subject: str) -> list[int]:
        if subject not in self._subjects:
            raise RegistryError(404, 40401, f"Subject '{subject}' not found.")
        return self._subjects[subject]

    def _found(self, subject: str, body: dict[str, Any]) -> dict[str, Any]:
        for place, number in enumerate(self._known(subject)):
            schema = self._schemas[number - 1]
            if schema["schema"] == body["schema"]:
                return {"subject": subject, "version": place + 1, "id": number, **schema}
        raise RegistryError(404, 40403, "Schema not found")

    def _version(self, subject: str, version: str, query: dict[str, str]) -> dict[str, Any]:
        known = self._known(subject)
        place = len(known) if version == "latest" else int(version)
        if not 0 < place <= len(known):
            raise RegistryError(404, 40402, f"Version {version} not found.")
        number = known[place - 1]
        return {"subject": subject, "version": place, "id": number, **self._formatted(self._schemas[number - 1], query)}

    def _formatted(self, schema: dict[str, Any], query: dict[str, str]) -> dict[str, Any]:
        if schema.get("schemaType") == "PROTOBUF" and query.get("format") != "serialized":
            return {**schema, "schema": "// this stand-in writes no descriptor as text"}
        return schema

    def _fits(self, subject: str, schema: dict[str, Any]) -> bool:
        if schema.get("schemaType", "AVRO") != "AVRO" or not self._subjects.get(subject):
            return True
        old, new = json.loads(self._schemas[self._subjects[subject][-1] - 1]["schema"]), json.loads(schema["schema"])
        known = {each["name"] for each in old.get("fields", ())}
        return all(each["name"] in known or "default" in each for each in new.get("fields", ()))


class _Requests(BaseHTTPRequestHandler):
    registry: Registry
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._respond("GET", None)

    def do_POST(self) -> None:
        self._respond("POST", json.loads(self.rfile.read(int(self.headers.get("content-length", 0)))))

    def _respond(self, method: str, body: Any) -> None:
        registry, parts = self.registry, urlsplit(self.path)
        registry.asked.append(self.path)
        registry.logins.append(self.headers.get("authorization"))
        if registry.redirection:
            self._send(302, b"", registry.redirection + self.path)
            return
        if registry.trickles:
            self._trickle()
            return
        if registry.made is not None:
            self._send(200, registry.made)
            return
        if registry.isProxy:
            self._send(404, b"<html>404 page not found</html>")
            return
        failure: int | None = registry.failures.pop(0) if registry.failures else 200
        if failure is None:
            self.close_connection = True
            return
        status, answer = failure, {"error_code": failure, "message": "made up"}
        if failure == 200 and registry.login not in (None, self.headers.get("authorization")):
            status, answer = 401, {"error_code": 401, "message": "Unauthorized"}
        elif failure == 200:
            try:
                query = {name: values[0] for name, values in parse_qs(parts.query).items()}
                answer = registry.answer(method, parts.path, query, body)
            except RegistryError as error:
                status, answer = error.status, {"error_code": error.code, "message": str(error)}
        self._send(status, json.dumps(answer).encode())

    def _trickle(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.close_connection = True
        with suppress(OSError):
            while not threading.Event().wait(0.005):
                self.wfile.write(b" ")

    def _send(self, status: int, content: bytes, location: str = "") -> None:
        self.send_response(status)
        self.send_header("content-type", _TYPE)
        if location:
            self.send_header("location", location)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
