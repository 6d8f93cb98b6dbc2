"""Warnings about settings that are valid, for the log at the start and for ``fleximq check-config``."""

import os
import re
import stat
from collections.abc import Iterator

from fleximq.config.settings import Settings

_NO_ADMIN = (
    "no client may use /broker/reload or act as operator over HTTP: to name an admin, add admin = true to "
    '[principals.NAME], and to [roles.everyone] what all others may do, see "Permissions" in the security guide'
)
#: The files with private keys of an endpoint; a certificate's file has its key if no other is named.
_KEY, _CERTIFICATE = re.compile(r":(?:privateKey|key)=([^:\\]+)"), re.compile(r":cert=([^:\\]+)")


def adviceAbout(settings: Settings, path: str | None = None) -> Iterator[str]:
    """Yield a sentence for each warning.

    :param path: the settings file; None without one.
    """
    if path is not None and (settings.auth or settings.extension or settings.spawn or settings.roles):
        yield from _openness(path)
    keys = {settings.tlsKey or settings.tlsCertificate or ""}
    for endpoint in (*settings.listen, *settings.http):
        keys.update(_KEY.findall(endpoint) or _CERTIFICATE.findall(endpoint))
    for key in sorted(keys):
        yield from _openness(key)
    if (settings.auth or settings.allowAnonymous) and settings.roles is None and settings.principals is None:
        yield _NO_ADMIN


def _openness(path: str) -> Iterator[str]:
    """Yield a sentence if all users of the machine may read or change a file."""
    try:
        open = os.stat(path).st_mode & stat.S_IRWXO
    except OSError:
        return
    if open and os.path.dirname(os.path.abspath(path)) != os.environ.get("CREDENTIALS_DIRECTORY"):
        yield f"{path} is open to all users of this machine: chmod o= {path}"
