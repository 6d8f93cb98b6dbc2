"""Listings of a broker in pages."""

import io
import os
from argparse import Namespace
from collections.abc import Iterator
from contextlib import redirect_stderr
from itertools import count
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.cli import commands
from fleximq.cli.client_commands import client_command
from fleximq.cli.client_commands.broker_options import Address
from fleximq.client.errors import ClientError, JoinRefused
from fleximq.client.payloads import packed
from fleximq.status import Status


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
        return list(client_command.pagedRows(self.broker, "/broker/all", "all", 1.0, most))  # type: ignore[arg-type]

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
        self.patch(client_command, "MAX_PAGES", 20)
        self.patch(client_command, "MAX_BYTES", 5000)
        for row, step, asked in ((0, 0, 2), (0, 1, 20), ("x" * 1000, 1, 5)):
            pages = ({"all": [row], "next": number * step} for number in count())
            error = self.assertRaises(ClientError, self.listed, pages)
            self.assertIn("the listing of /broker/all does not end", str(error))
            self.assertEqual(len(self.broker.asked), asked)


class CredentialTests(SynchronousTestCase):
    """Advice about credentials that a broker refused."""

    def said(self, refusal: Exception, **credentials: str) -> str:
        """Return what is said about a refusal of these credentials."""

        def work(arguments: Any, address: Any) -> None:
            raise refusal

        address = Address("tcp://localhost:1", credentials or None)
        self.patch(client_command, "addressOf", lambda arguments: address)
        with redirect_stderr(io.StringIO()) as written:
            self.assertEqual(client_command.run(work, Namespace()), 1)
        return written.getvalue()

    def test_hints(self) -> None:
        """A key given as a token, and a password without a user, are named; nothing else is guessed."""
        refused = JoinRefused(Status.UNAUTHORIZED, "no")
        plain = f"fleximq: {refused}"
        self.assertEqual(
            self.said(refused, type="token", token="fmqk_x"),
            f"{plain}; this token is an API key: give it as --api-key\n",
        )
        self.assertEqual(self.said(refused, type="token", token="x"), f"{plain}\n")
        self.assertEqual(self.said(refused), f"{plain}\n")
        self.patch(os, "environ", {"FLEXIMQ_PASSWORD": "secret"})
        self.assertEqual(self.said(refused), f"{plain}; FLEXIMQ_PASSWORD is set, --user is missing\n")
        other = JoinRefused(Status.SERVICE_UNAVAILABLE, "no")
        self.assertEqual(self.said(other), f"fleximq: {other}\n")


class TextTests(SynchronousTestCase):
    """Arguments with bytes that are not UTF-8."""

    def test_bytes(self) -> None:
        """Arguments that are sent as texts are refused by name before the broker is reached."""
        word = os.fsdecode(b"a\xffb")
        for words, name in {
            ("pub", word, "x"): "topic",
            ("pub", "t", "x", "--key", word): "key",
            ("produce", word, "x"): "topic",
            ("consume", word): "topic",
            ("sub", "t", word): "topics",
            ("req", word, "/a"): "client",
            ("req", "svc", word): "path",
            ("ban", "add", "--principal", word): "principal",
            ("ping", "--user", word): "user",
            ("ping", "--token", word): "token",
            ("ping", "--api-key", word): "api-key",
        }.items():
            with redirect_stderr(io.StringIO()) as written:
                self.assertEqual(commands.run(words), 1)
            self.assertEqual(written.getvalue(), f"fleximq: the argument {name} is not UTF-8\n")
