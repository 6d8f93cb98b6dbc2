r"""``fleximqtls:cert=FILE:key=FILE[:clientCA=FILE][:clientRequired=yes|no][:crl=FILE][:ciphers=LIST]:inner=ENDPOINT``.

TLS on any other endpoint, including sockets of systemd; the colons of the inner one are escaped by a backslash:
``inner=tcp\:7890``. A client's certificate is verified before the first byte of a dialect. docs/guides/operating.rst,
"TLS".
"""

from typing import Any

from twisted.internet.endpoints import serverFromString

from fleximq.config.settings import DEFAULT_CIPHERS
from fleximq.endpoints.endpoint_string import FILES, INNER, withBacklog
from fleximq.endpoints.tls_context import TlsFiles
from fleximq.endpoints.tls_endpoint import RenewingCertificate, TlsEndpoint
from fleximq.errors import SettingError

_CHOICES = {"yes": True, "no": False}
_NAMES = frozenset({*FILES, "clientRequired", "ciphers", INNER})


def parseStreamServer(reactor: Any, *arguments: str, **named: str) -> TlsEndpoint:
    """Return the endpoint; reads its files. Raises SettingError for a wrong argument or an unusable file."""
    if arguments:
        raise SettingError("the colons of what stands behind inner= need a backslash each: inner=tcp\\:7890")
    for name in named:
        if name not in _NAMES:
            raise SettingError(f"fleximqtls has no argument {name}=")
    for name in ("cert", INNER):
        if not named.get(name):
            raise SettingError(f"fleximqtls needs {name}=")
    inner = serverFromString(reactor, withBacklog(named[INNER]))
    return TlsEndpoint(inner, RenewingCertificate(_files(named), reactor), reactor)


def _files(named: dict[str, str]) -> TlsFiles:
    authorities, revoked = named.get("clientCA"), named.get("crl")
    required = named.get("clientRequired", "yes")
    if required not in _CHOICES:
        raise SettingError(f"clientRequired={required} must be yes or no")
    if authorities is None and ("clientRequired" in named or revoked is not None):
        raise SettingError("clientRequired= and crl= need clientCA=")
    ciphers = named.get("ciphers", DEFAULT_CIPHERS)
    return TlsFiles(named["cert"], named.get("key"), authorities, _CHOICES[required], revoked, ciphers)
