"""Which requests a browser may have been tricked into.

A page from anywhere can make a browser on this machine send requests here, and a name that was bent to this machine's
address (DNS rebinding) lets it read the answers. So the ``Host`` of a request must be an address or a name of this
machine, unless names are trusted because this is no broker for its own machine alone; and what changes something must
come as JSON, and not from a page of another origin.
"""

from collections.abc import Collection
from urllib.parse import urlsplit

from fleximq.security.host_names import isAddress, isOwnName
from fleximq.web.request import JSON, HttpRefusal


def checkHost(host: str | None, namesTrusted: bool, added: Collection[str] = ()) -> None:
    """See that a request was meant for this broker.

    :param host: the value of its ``Host`` field, None if there is none: no browser leaves it out.
    :param namesTrusted: whether any name will do.
    :param added: origins that an operator has allowed; their hosts are good as well.
    :raises HttpRefusal: 403.
    """
    if host is None or namesTrusted:
        return
    name = _nameOf(f"//{host}")
    if not name or not (isAddress(name) or isOwnName(name) or name in {_nameOf(each) for each in added}):
        raise HttpRefusal(403, "ask by an address or as localhost: other names are not trusted here")


def checkPost(kind: str | None, origin: str | None, host: str | None, site: str | None, added: Collection[str]) -> None:
    """See that a request that changes something does not come from somebody else's page.

    :param kind: its ``Content-Type``.
    :param site: its ``Sec-Fetch-Site``.
    :raises HttpRefusal: 415 for another kind than JSON, 403 for another origin.
    """
    if (kind or "").partition(";")[0].strip().lower() != JSON:
        raise HttpRefusal(415, f"what is posted must be {JSON}")
    if origin is not None and origin in added:
        return
    foreign = origin is not None and (host is None or urlsplit(origin.lower()).netloc != host.lower())
    if foreign or site not in (None, "same-origin", "none"):
        raise HttpRefusal(403, "pages of this origin are not admitted, see --allowed-origin")


def _nameOf(url: str) -> str:
    try:
        return urlsplit(url.lower()).hostname or ""
    except ValueError:
        return ""
