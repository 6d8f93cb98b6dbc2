"""Installed dialects and extensions, found as Twisted plug-ins, and their conflicts; the broker's own dialects too."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from twisted.plugin import getPlugins

from fleximq.dialects.connection.protocol_detection import Decision, mayBeClaimed
from fleximq.errors import SettingError
from fleximq.interfaces import IBrokerExtension, IDialect

#: The broker's own dialects, in the order of listings, before all others.
OWN = ("fleximq", "blipmq", "minimq", "identity", "http")

_NAME = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)
_REMEDY = "turn one off by disable-dialect, e.g. --disable-dialect"
_RESERVED = frozenset({Decision.NONE.value})


@dataclass(frozen=True, slots=True)
class Registry:
    """The installed plug-ins by name, in the order of listings."""

    dialects: Mapping[str, IDialect]
    extensions: Mapping[str, IBrokerExtension]

    @classmethod
    def of(cls, dialects: Iterable[IDialect], extensions: Iterable[IBrokerExtension]) -> "Registry":
        """Return these plug-ins in order.

        :raises SettingError: a name conflicts with another or is not allowed.
        """
        named = _byName("a", "dialect", dialects, _RESERVED)
        return cls(
            {name: named[name] for name in sorted(named, key=_place)},
            dict(sorted(_byName("an", "extension", extensions).items())),
        )

    def without(self, names: Iterable[str]) -> "Registry":
        """Return the plug-ins without the dialects of these names; raises SettingError if one is not installed."""
        for name in names:
            if name not in self.dialects:
                known = ", ".join(self.dialects)
                raise SettingError(f"disable-dialect is {name!r}, but must be one of {known}")
        return Registry({name: each for name, each in self.dialects.items() if name not in names}, self.extensions)

    def checkClaims(self, only: str | None = None) -> None:
        """Check the first bytes that the dialects of one port claim: of all, or of the one of this name.

        :raises SettingError: two of them claim the same, or one claims what the broker's own dialects may begin with.
        """
        checked: list[tuple[bytes, str]] = []
        for beginning, name in _claims(each for name, each in self.dialects.items() if only in (None, name)):
            if not mayBeClaimed(beginning):
                raise SettingError(
                    f"the dialect {name} claims connections that begin with {beginning!r}, "
                    f"but the broker's own dialects may begin so: {_REMEDY} {name}"
                )
            for other, owner in checked:
                if beginning.startswith(other) or other.startswith(beginning):
                    raise SettingError(
                        f"the dialects {owner} and {name} both claim connections that begin with "
                        f"{max(beginning, other, key=len)!r}: {_REMEDY} {name}, "
                        f"or give each a listener of its own, e.g. {name}+tcp:7891"
                    )
            checked.append((beginning, name))

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
                "begins with a letter, and is not none"
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
