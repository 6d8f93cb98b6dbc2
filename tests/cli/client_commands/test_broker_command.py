"""Listings of a broker in pages."""

import io
from collections.abc import Iterator
from contextlib import redirect_stderr
from itertools import count
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.cli.client_commands import broker_command
from fleximq.client.errors import ClientError
from fleximq.client.payloads import packed


class _Broker:
    """Answers requests for pages."""

    def __init__(self, pages: Iterator[dict[str, Any]]) -> None:
        self._pages = pages
        self.asked: list[Any] = []

    def ask_packed(self, path: str, value: dict[str, Any], timeout: float) -> bytes:
        """Return the next page."""
        self.asked.append(value.get("after"))
        return packed(next(self._pages))


class PageTests(SynchronousTestCase):
    """Pages that end, and others."""

    def listed(self, pages: Iterator[dict[str, Any]], most: int | None = None) -> list[Any]:
        """Return all rows."""
        self.broker = _Broker(pages)
        return list(broker_command.pagedRows(self.broker, "/broker/all", "all", 1.0, most))  # type: ignore[arg-type]

    def test_pages(self) -> None:
        """All pages are read, an empty one among them; with a limit no page after it."""
        pages: list[dict[str, Any]] = [{"all": [1], "next": 5}, {"all": [], "next": 6}, {"all": [2], "next": None}]
        self.assertEqual((self.listed(iter(pages)), self.broker.asked), ([1, 2], [None, 5, 6]))
        self.assertEqual((self.listed(iter(pages), 1), self.broker.asked), ([1], [None]))

    def test_missing(self) -> None:
        """Nodes of a mesh that did not answer are told on standard error, unless the listing is shown again soon."""
        for most, told in ((None, "fleximq: no answer from the nodes b, c\n"), (5, "")):
            with redirect_stderr(io.StringIO()) as written:
                self.listed(iter([{"all": [1], "next": None, "missing": ["b", "c"]}]), most)
            self.assertEqual(written.getvalue(), told)

    def test_endless(self) -> None:
        """Answers without an end are an error: without progress, in many pages, and in many bytes."""
        self.patch(broker_command, "MAX_PAGES", 20)
        self.patch(broker_command, "MAX_BYTES", 5000)
        for row, step, asked in ((0, 0, 2), (0, 1, 20), ("x" * 1000, 1, 5)):
            pages = ({"all": [row], "next": number * step} for number in count())
            error = self.assertRaises(ClientError, self.listed, pages)
            self.assertIn("the listing of /broker/all does not end", str(error))
            self.assertEqual(len(self.broker.asked), asked)
