"""Parses the options of ``--auth http:``: a URL, and options separated by commas."""

import re
from typing import Any

from twisted.internet.ssl import Certificate, trustRootFromCertificates
from twisted.python.url import URL
from twisted.web.client import BrowserLikePolicyForHTTPS

from fleximq.config.option_values import seconds
from fleximq.errors import SettingError
from fleximq.security import secret_files
from fleximq.security.authentication import schemes
from fleximq.security.checkers.bounded_agent import withoutQuery
from fleximq.security.checkers.web_service import Service, WebService

#: Maximum timeout, and maximum lifetime of a cached answer, in seconds.
MOST_TIMEOUT, MOST_CACHE = 60.0, 86400.0

_KNOWN = ("timeout", "cache", "bearer", "ca")
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def webService(argument: str) -> WebService:
    """Make the checker of ``--auth http:URL[,key=value,...]``; raises SettingError."""
    url, *options = schemes.split(argument) or [""]
    given = schemes.pairs(options, _KNOWN)
    parsed = checkedUrl(url)
    warnings: tuple[str, ...] = ()
    if not isPrivate(parsed):
        warnings = (f"auth http sends passwords and tokens to {parsed.host} without encryption: use https",)
    headers: tuple[tuple[str, str], ...] = ()
    if "bearer" in given:
        found = secret_files.read(given["bearer"])
        token = secret_files.text(given["bearer"], found).strip()
        if not re.fullmatch(r"[\x21-\x7e]+", token):
            raise SettingError(f"{given['bearer']} must hold one token of visible ASCII characters")
        headers = (("Authorization", f"Bearer {token}"),)
        warnings += found.warnings
    timeout = _time(given, "timeout", 5.0, 0.001, MOST_TIMEOUT)
    cache = _time(given, "cache", 60.0, 0.0, MOST_CACHE)
    policy = trusting(given["ca"]) if "ca" in given else None
    return WebService(Service(url, timeout, cache, headers, policy, warnings))


def checkedUrl(url: str) -> URL:
    """Return the URL of a web service; raises SettingError if it is invalid."""
    try:
        parsed = URL.fromText(url)
        url.encode("ascii")
    except ValueError:
        parsed = URL()
    if parsed.scheme not in ("http", "https") or not parsed.host or re.search(r"[\s\x00-\x1f]", url):
        raise SettingError(f"the URL is {withoutQuery(url)!r}, but must be like https://auth.example/check")
    if parsed.userinfo or "@" in withoutQuery(url):
        raise SettingError("the URL must not hold a name or password; bearer=FILE names a file with a token")
    return parsed


def isPrivate(url: URL) -> bool:
    """Return whether requests to a URL are encrypted or stay on this machine."""
    return url.scheme == "https" or url.host in _LOCAL


def _time(given: dict[str, str], name: str, default: float, least: float, most: float) -> float:
    value = seconds(name, given[name]) if name in given else default
    if not least <= value <= most:
        raise SettingError(f"{name} is {value:g}, but must be between {least:g} and {most:g} seconds")
    return value


def trusting(path: str) -> Any:
    """Return a policy that trusts only the authorities in a PEM file; raises SettingError if it contains none."""
    try:
        trusted = [Certificate.loadPEM(each) for each in _PEM.findall(secret_files.read(path, public=True).content)]
    except SettingError:
        raise
    except Exception as error:  # OpenSSL raises many kinds
        raise SettingError(f"{path} holds a certificate that cannot be read") from error
    if not trusted:
        raise SettingError(f"{path} holds no certificate in PEM")
    return BrowserLikePolicyForHTTPS(trustRoot=trustRootFromCertificates(trusted))
