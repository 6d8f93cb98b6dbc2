"""The OpenAPI document: valid, complete, and made from the tables that answer."""

import json
import re
from typing import Any

from openapi_spec_validator import OpenAPIV31SpecValidator
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from fleximq.dialects.http.operations.route_table import ROUTES
from fleximq.rights import EVERYTHING
from fleximq.web.api.api import apiTable
from fleximq.web.openapi import document, openApiPage
from fleximq.web.request import PageRequest


class OpenApiTests(SynchronousTestCase):
    """The document of all operations."""

    def setUp(self) -> None:
        """Make it."""
        self.pages = apiTable()
        self.found = document(self.pages, ROUTES)

    def operations(self) -> dict[tuple[str, str], dict[str, Any]]:
        return {(path, method): each for path, item in self.found["paths"].items() for method, each in item.items()}

    def test_it_is_valid(self) -> None:
        self.assertEqual([str(each) for each in OpenAPIV31SpecValidator(self.found).iter_errors()], [])

    def test_all_routes_and_pages_are_in_it(self) -> None:
        routes = {(each.path, each.method.lower()) for each in ROUTES}
        pages = {(path, method.lower()) for path, page in self.pages.items() for method in page.methods}
        self.assertEqual(self.operations().keys(), routes | {each for each in pages if each[1] != "head"})

    def test_each_has_words_and_an_id_of_its_own(self) -> None:
        operations = self.operations().values()
        self.assertEqual([each for each in operations if not each["summary"].endswith(".")], [])
        self.assertEqual(len({each["operationId"] for each in operations}), len(operations))

    def test_names_in_paths_are_parameters(self) -> None:
        for (path, _), each in self.operations().items():
            named = [one["name"] for one in each.get("parameters", ()) if one["in"] == "path"]
            self.assertEqual(named, re.findall(r"\{(\w+)\}", path))

    def test_parameters_are_header_fields_too(self) -> None:
        parameters = self.operations()["/topics/{topic}", "post"]["parameters"]
        found = {(each["name"], each["in"]) for each in parameters}
        self.assertLessEqual({("expires", "query"), ("FlexiMQ-Expires", "header")}, found)

    def test_the_page_is_the_document(self) -> None:
        page = openApiPage(self.pages, ROUTES)
        answered: Deferred[Any] = Deferred.fromCoroutine(
            page.answer(PageRequest("GET", "/openapi.json", {}, EVERYTHING))
        )
        reply = self.successResultOf(answered)
        self.assertEqual(json.loads(reply.body), json.loads(json.dumps(self.found)))
        self.assertIsNone(page.action)

    def test_without_plain_http_there_are_pages_only(self) -> None:
        self.assertEqual([path for path in document(self.pages, ())["paths"] if not path.startswith("/api/")], [])
