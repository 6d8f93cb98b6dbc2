"""Reads the paged listings of a broker, within bounds that also a hostile one cannot exceed."""

from collections.abc import Iterator, Mapping
from typing import Any

from fleximq.cli.output import say
from fleximq.client.blocking import Client
from fleximq.client.errors import ClientError
from fleximq.client.payloads import unpacked
from fleximq.limits import MEBIBYTE

#: Rows of one request.
PAGE = 1000
#: Limits of one listing: answers, and their bytes in all.
MAX_PAGES, MAX_BYTES = 10_000, 256 * MEBIBYTE

Row = Mapping[str, Any]


def tellMissing(answer: Mapping[str, Any]) -> None:
    """Say on standard error which nodes of a mesh did not answer."""
    if answer.get("missing"):
        say(f"fleximq: no answer from the nodes {', '.join(answer['missing'])}")


def pagedRows(client: Client, path: str, key: str, timeout: float, most: int | None = None) -> Iterator[Row]:
    """Yield the rows of a listing, page by page.

    :param key: the key of the rows in the answers.
    :param most: end with the page that exceeds so many rows; without it, missing nodes are told.
    :raises ClientError: the answers do not end.
    """
    asked: dict[str, Any] = {"limit": PAGE}
    size = found = 0
    for _ in range(MAX_PAGES):
        answer = client.ask_packed(path, asked, timeout)
        size += len(answer)
        page = unpacked(answer)
        yield from page[key]
        found += len(page[key])
        if most is None:
            tellMissing(page)
        if page["next"] is None or (most is not None and found >= most):
            return
        if size > MAX_BYTES or page["next"] == asked.get("after"):
            break
        asked["after"] = page["next"]
    raise ClientError(f"the listing of {path} does not end: {found} rows in {size} bytes were read")
