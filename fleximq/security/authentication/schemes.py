"""Parses ``--auth SCHEME:ARGUMENT`` and finds the checker among the plug-ins of ``twisted.cred.strcred``.

An argument may consist of ``key=value`` pairs, separated by commas. A backslash before a comma makes it part of the
value, as in ``--extension``.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from twisted.cred.strcred import ICheckerFactory
from twisted.plugin import getPlugins

from fleximq.config.permission_options import PermissionTable
from fleximq.errors import SettingError
from fleximq.security.authentication.authenticator import CREDENTIAL_KINDS, AuthenticationMethod
from fleximq.security.principal import ANONYMOUS, SPAWN, isName

_COMMA = re.compile(r"(?<!\\),")
_PREFIX = re.compile(r"(?:^|(?<!\\),)prefix=([^,]*)(?=,|$)")


def split(argument: str) -> list[str]:
    """Return the parts between commas; an empty argument has none."""
    return [each.replace("\\,", ",") for each in _COMMA.split(argument)] if argument else []


def pairs(parts: Collection[str], known: Collection[str]) -> dict[str, str]:
    """Return the values by their keys; raises SettingError for a part that is no pair, or an invalid key."""
    found: dict[str, str] = {}
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals or not key:
            raise SettingError(f"{part!r} is not of the form key=value; the keys are {', '.join(known)}")
        if key not in known:
            raise SettingError(f"there is no option {key}, only {', '.join(known)}")
        if key in found:
            raise SettingError(f"{key} is given twice")
        if not value:
            raise SettingError(f"{key} has no value")
        found[key] = value
    return found


#: The schemes of the broker itself; there are no secrets in their arguments.
OWN = ("tokens", "jwt", "passwords", "apikeys", "publickeys", "certificate", "http")
#: Schemes with the option ``prefix`` in their arguments: those of the broker, and Twisted's for passwords.
PREFIXED = (*OWN, "unix", "file")
#: Schemes with files of the broker, in which only the operator decides on names.
_FILES = ("tokens", "passwords", "apikeys", "publickeys")

Find = Callable[[Any], Iterable[Any]]


def methodsOf(texts: Sequence[str], find: Find = getPlugins) -> list[AuthenticationMethod]:
    """Return the methods for these texts; reads their files. Raises SettingError for the first that is wrong."""
    return [_methodOf(text, find) for text in texts]


def faults(texts: Sequence[str], find: Find = getPlugins) -> Iterator[str]:
    """Yield a sentence for each text that is wrong."""
    for text in texts:
        try:
            _methodOf(text, find)
        except SettingError as error:
            yield str(error)


def warnings(ways: Sequence[AuthenticationMethod], principals: Iterable[PermissionTable] | None) -> Iterator[str]:
    """Yield the warnings about checkers; ``principals``: the tables of permissions by name."""
    for way in ways:
        yield from way.warnings
    if any(each.name != ANONYMOUS and not each.name.startswith(SPAWN) for each in principals or ()):
        yield from _sharedNames([way for way in ways if way.scheme in PREFIXED])


def _sharedNames(ways: Sequence[AuthenticationMethod]) -> Iterator[str]:
    """Yield a warning if a checker outside the operator's control can return the name of another's principal."""
    for place, one in enumerate(ways):
        for other in ways[place + 1 :]:
            outside = [each for each in (one, other) if each.scheme not in _FILES]
            short, long = sorted((one.prefix, other.prefix), key=len)
            if outside and (long.startswith(short) if len(outside) == 2 else not outside[0].prefix):
                yield (
                    f"auth {one.scheme} and auth {other.scheme} can give clients the same name, to which [principals] "
                    f"grants permissions: add a prefix, e.g. {outside[0].scheme}:...,prefix=sso:"
                )
                return


def shown(text: str) -> str:
    """Return a text with secrets redacted: the argument of a scheme that is not ours may contain one."""
    scheme = text.partition(":")[0]
    return text if scheme in OWN or ":" not in text else f"{scheme}:..."


def _methodOf(text: str, find: Find) -> AuthenticationMethod:
    scheme, _, argument = text.partition(":")
    factory = _factoryOf(scheme, find)
    prefix = ""
    try:
        if scheme in PREFIXED:
            argument, prefix = _withoutPrefix(argument)
        checker = factory.generateChecker(argument)
    except SettingError as error:
        raise SettingError(f"auth {scheme}: {error}") from error
    except Exception as error:
        raise SettingError(f"auth {scheme} cannot be used: {str(error) or type(error).__name__}") from error
    return AuthenticationMethod(scheme, checker, prefix)


def _withoutPrefix(argument: str) -> tuple[str, str]:
    """Return an argument without the option ``prefix``, and its value, "" without it; raises SettingError."""
    found = _PREFIX.findall(argument)
    if len(found) > 1:
        raise SettingError("prefix is given twice")
    if found and not (found[0] and isName(f"{found[0]}a")):
        raise SettingError(f"prefix is {found[0]!r}, but must be the beginning of a name other than {SPAWN}")
    return _PREFIX.sub("", argument).removeprefix(",") if found else argument, found[0] if found else ""


def _factoryOf(scheme: str, find: Find) -> Any:
    factories = list(find(ICheckerFactory))
    found = [each for each in factories if each.authType == scheme]
    if not found:
        known = sorted({each.authType for each in factories if set(each.credentialInterfaces) & set(CREDENTIAL_KINDS)})
        raise SettingError(f"auth is {scheme!r}, but there is no such scheme; installed: {', '.join(known)}")
    if len(found) > 1:
        raise SettingError(f"two plug-ins bring a scheme named {scheme} for auth: uninstall one of them")
    return found[0]
