"""``/openapi.json``: all requests of HTTP as an OpenAPI 3.1 document, made from the tables that answer them."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from fleximq import __version__
from fleximq.web.request import Argument, HttpReply, Page, PageRequest

_DESCRIPTION = "The operations of a FlexiMQ broker by HTTP: publishing, work queues, requests, and the operator's API."
_ERRORS = {
    400: "The request is malformed.",
    401: "Credentials are missing or wrong.",
    403: "The credentials do not permit this.",
    404: "There is nothing of this name.",
    413: "The body is too large.",
    415: "The body has a content type or encoding that is not taken here.",
    429: "Too much at once; ``Retry-After`` says when to try again.",
    503: "The broker cannot do this now; ``Retry-After`` says when to try again.",
}
#: Errors of the pages.
_PAGE_ERRORS = (400, 401, 403, 404, 409, 503)
_CONFLICT = {409: "The request contradicts the present state."}
_JSON = "application/json"


class Parameter(Protocol):
    """An argument of an operation, as :class:`fleximq.dialects.http.format.routes.Parameter`."""

    @property
    def name(self) -> str:
        """Its name in the query."""

    @property
    def schema(self) -> str:
        """Its type in JSON Schema."""

    @property
    def words(self) -> str:
        """Its purpose."""

    @property
    def field(self) -> str:
        """The header field that may have it instead, "" for none."""


class Operation(Protocol):
    """An operation of plain HTTP, as :class:`fleximq.dialects.http.format.routes.Route`."""

    @property
    def method(self) -> str:
        """Its method."""

    @property
    def path(self) -> str:
        """The shape of its paths, with ``names`` in braces."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names in its path."""

    @property
    def words(self) -> str:
        """A sentence about it."""

    @property
    def right(self) -> str:
        """The action of the right that it needs."""

    @property
    def parameters(self) -> Sequence[Any]:
        """Its arguments, each a :class:`Parameter`."""

    @property
    def takes(self) -> Sequence[str]:
        """The content types of its body."""

    @property
    def answers(self) -> Mapping[int, str]:
        """The meaning of each status."""


def openApiPage(pages: Mapping[str, Page], operations: Iterable[Operation]) -> Page:
    """Return the page with the document about these pages and operations."""
    body = json.dumps(document(pages, operations), indent=1).encode() + b"\n"

    async def answer(request: PageRequest) -> HttpReply:
        return HttpReply(body)

    return Page(answer, None, words="This document.", everywhere=True)


def document(pages: Mapping[str, Page], operations: Iterable[Operation]) -> dict[str, Any]:
    """Return the document as a value for JSON."""
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each)
    for path, page in sorted(pages.items()):
        for method in page.methods:
            if method != "HEAD":
                paths.setdefault(path, {})[method.lower()] = _page(path, method, page)
    schemes = {
        "password": {"type": "http", "scheme": "basic"},
        "token": {"type": "http", "scheme": "bearer"},
        "tokenInQuery": {"type": "apiKey", "in": "query", "name": "token"},
        "apiKeyInQuery": {"type": "apiKey", "in": "query", "name": "api_key"},
    }
    error = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "FlexiMQ", "version": __version__, "description": _DESCRIPTION},
        "security": [{}, *({name: []} for name in schemes)],
        "paths": paths,
        "components": {"securitySchemes": schemes, "schemas": {"Error": error}},
    }


def _operation(each: Operation) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in each.names
    ]  # fmt: skip
    for one in each.parameters:
        shared = {"description": _sentence(one.words), "schema": {"type": one.schema}}
        parameters.append({"name": one.name, "in": "query", **shared})
        if one.field:
            parameters.append({"name": one.field, "in": "header", **shared})
    found = {
        "operationId": _identifier(each.method, each.path),
        "summary": each.words,
        "description": f"Needs the right ``{each.right}``.",
        "parameters": parameters,
        "responses": _responses({**_ERRORS, **each.answers}),
    }
    if each.takes:
        found["requestBody"] = {"content": {kind: {} for kind in each.takes}}
    return found


def _page(path: str, method: str, page: Page) -> dict[str, Any]:
    action = page.action
    found: dict[str, Any] = {
        "operationId": _identifier(method, path),
        "summary": page.words,
        "description": "Needs no right." if action is None else f"Needs the right ``{action.value}``.",
        "responses": _responses({200: "The answer."} | {code: (_ERRORS | _CONFLICT)[code] for code in _PAGE_ERRORS}),
    }
    if page.post and method == "POST":
        schema = {"type": "object", "properties": {each.name: _schema(each) for each in page.arguments}}
        found["requestBody"] = {"content": {_JSON: {"schema": schema}}}
    elif page.arguments:
        found["parameters"] = [
            {"name": each.name, "in": "query", "description": each.words, "schema": {"type": each.kind}}
            for each in page.arguments
        ]
    return found


def _schema(argument: Argument) -> dict[str, Any]:
    return {"type": argument.kind, "description": argument.words}


def _responses(answers: Mapping[int, str]) -> dict[str, Any]:
    return {str(code): _response(code, answers[code]) for code in sorted(answers)}


def _response(code: int, words: str) -> dict[str, Any]:
    found: dict[str, Any] = {"description": words}
    if code >= 400:
        found["content"] = {_JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}
    return found


def _identifier(method: str, path: str) -> str:
    return method.lower() + "".join(word.capitalize() for word in re.findall("[A-Za-z]+", path))


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:] + "."
