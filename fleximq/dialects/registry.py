"""Which dialects and extensions are installed, found among Twisted's plug-ins.

The dialects of the broker itself are found in the same way as those of other packages. Whatever collides is one
sentence: two of one name, first bytes that somebody else claims, a name that cannot be written before a ``+``.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from twisted.plugin import getPlugins

from fleximq.dialects.connection.protocol_detection import Decision, mayBeClaimed
from fleximq.errors import SettingError
from fleximq.interfaces import IBrokerExtension, IDialect

#: The dialects of the broker itself, in the order in which they are shown, before all others.
OWN = ("fleximq", "blipmq", "minimq", "identity")

_NAME = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)
_RESERVED = frozenset({Decision.HTTP.value, Decision.NONE.value})


@dataclass(frozen=True, slots=True)
class Registry:
    """The plug-ins that are installed, by name, in the order in which they are shown.

    :raises SettingError: for a name or a claim that collides with another, or cannot be.
    """

    dialects: Mapping[str, IDialect]
    extensions: Mapping[str, IBrokerExtension]

    @classmethod
    def of(cls, dialects: Iterable[IDialect], extensions: Iterable[IBrokerExtension]) -> "Registry":
        """Put these plug-ins in order.

        :raises SettingError: as the class does.
        """
        named = _byName("dialect", dialects, _RESERVED)
        _checkClaims(named.values())
        return cls(
            {name: named[name] for name in sorted(named, key=_place)},
            dict(sorted(_byName("extension", extensions).items())),
        )

    def claims(self) -> dict[bytes, str]:
        """Return which first bytes belong to which dialect, beside those that the broker's own can begin with."""
        return dict(_claims(self.dialects.values()))


def installed(find: Callable[[Any], Iterable[Any]] = getPlugins) -> Registry:
    """Return what is installed now. A drop-in file that cannot be read is logged by Twisted and left out.

    :raises SettingError: if plug-ins collide.
    """
    return Registry.of(find(IDialect), find(IBrokerExtension))


def _byName(kind: str, plugins: Iterable[Any], reserved: frozenset[str] = frozenset()) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for plugin in plugins:
        name = plugin.name
        if not _NAME.fullmatch(name) or name in reserved:
            raise SettingError(
                f"a plug-in names its {kind} {name!r}, but a name has lower-case letters, digits and underscores only, "
                "begins with a letter, and is not http or none"
            )
        if name in found:
            raise SettingError(f"two plug-ins bring {_article(kind)} named {name}: uninstall one of them")
        found[name] = plugin
    return found


def _article(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


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
