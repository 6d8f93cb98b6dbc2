"""Installed dialects and extensions, found as Twisted plug-ins; the broker's own dialects too.

Each conflict is reported in one sentence: two plug-ins of one name, overlapping first bytes, a name that cannot precede
a ``+`` in a listener's URL.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from twisted.plugin import getPlugins

from fleximq.dialects.connection.protocol_detection import Decision, mayBeClaimed
from fleximq.errors import SettingError
from fleximq.interfaces import IBrokerExtension, IDialect

#: The broker's own dialects, in the order of listings, before all others.
OWN = ("fleximq", "blipmq", "minimq", "identity")

_NAME = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)
_RESERVED = frozenset({Decision.HTTP.value, Decision.NONE.value})


@dataclass(frozen=True, slots=True)
class Registry:
    """The installed plug-ins by name, in the order of listings."""

    dialects: Mapping[str, IDialect]
    extensions: Mapping[str, IBrokerExtension]

    @classmethod
    def of(cls, dialects: Iterable[IDialect], extensions: Iterable[IBrokerExtension]) -> "Registry":
        """Return these plug-ins in order.

        :raises SettingError: a name or claim conflicts with another or is not allowed.
        """
        named = _byName("a", "dialect", dialects, _RESERVED)
        _checkClaims(named.values())
        return cls(
            {name: named[name] for name in sorted(named, key=_place)},
            dict(sorted(_byName("an", "extension", extensions).items())),
        )

    def claims(self) -> dict[bytes, str]:
        """Return the first bytes that plug-ins claim, with the dialect of each."""
        return dict(_claims(self.dialects.values()))


def installed(find: Callable[[Any], Iterable[Any]] = getPlugins) -> Registry:
    """Return the plug-ins installed now; Twisted skips a drop-in file that it cannot read.

    :raises SettingError: plug-ins conflict.
    """
    return Registry.of(find(IDialect), find(IBrokerExtension))


def _byName(article: str, kind: str, plugins: Iterable[Any], reserved: frozenset[str] = frozenset()) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for plugin in plugins:
        name = plugin.name
        if not _NAME.fullmatch(name) or name in reserved:
            raise SettingError(
                f"a plug-in names its {kind} {name!r}, but a name has lower-case letters, digits and underscores only, "
                "begins with a letter, and is not http or none"
            )
        if name in named:
            raise SettingError(f"two plug-ins bring {article} {kind} named {name}: uninstall one of them")
        named[name] = plugin
    return named


def _place(name: str) -> tuple[int, str]:
    return (OWN.index(name) if name in OWN else len(OWN), name)


def _claims(dialects: Iterable[IDialect]) -> Iterator[tuple[bytes, str]]:
    for dialect in dialects:
        for beginning in dialect.beginnings:
            yield beginning, dialect.name


def _checkClaims(dialects: Iterable[IDialect]) -> None:
    checked: list[tuple[bytes, str]] = []
    for beginning, name in _claims(dialects):
        if not mayBeClaimed(beginning):
            raise SettingError(
                f"the dialect {name} claims connections that begin with {beginning!r}, "
                "but the broker's own dialects may begin so"
            )
        for other, owner in checked:
            if beginning.startswith(other) or other.startswith(beginning):
                raise SettingError(
                    f"the dialects {owner} and {name} both claim connections that begin with "
                    f"{max(beginning, other, key=len)!r}: uninstall one of them"
                )
        checked.append((beginning, name))
