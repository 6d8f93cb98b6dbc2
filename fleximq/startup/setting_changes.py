"""Compares settings on reload: changed now, by a restart, or refused (docs/guides/operating.rst, "Reloading")."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from fleximq.config.option_table import OPTIONS, TABLES
from fleximq.config.settings import Settings
from fleximq.errors import SettingError

#: The settings that a reload changes, by option name.
LIVE = frozenset(
    """
    auth allow-anonymous allowed-origin roles principals tls-certificate tls-key tls-ciphers
    keepalive request-timeout consume-wait drain-timeout slow-consumer bcast-echo strict-fleximq history
    max-message max-line max-text max-clients max-waiting unadmitted-bytes max-clients-per-address max-subscriptions
    max-queues max-requests max-schedules max-schedules-per-principal max-values
    max-values-per-principal outbox-bytes schedules queues schema
    max-message-rate max-byte-rate max-subscribe-rate principal-message-rate principal-byte-rate
    principal-subscribe-rate over-rate max-connect-rate max-join-rate max-disconnects flapping-wait
    """.split()
)


class SettingsRefused(SettingError):
    """New settings with faults; ``sentences`` name all of them."""

    def __init__(self, sentences: Sequence[str]) -> None:
        super().__init__("\n".join(sentences))
        self.sentences = tuple(sentences)


class Difference(NamedTuple):
    """The names of settings that a reload changes, and of those that need a restart."""

    changed: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()


def difference(old: Settings, new: Settings) -> Difference:
    """Compare settings, by name."""
    names = [each.name for each in (*OPTIONS, *TABLES) if each.of(old) != each.of(new)]
    return Difference(tuple(name for name in names if name in LIVE), tuple(name for name in names if name not in LIVE))


def merged(old: Settings, new: Settings) -> Settings:
    """Return the new settings with the old values of those that need a restart; raises SettingError if invalid."""
    unchanged = [each for each in OPTIONS if each.name not in LIVE]
    limits = replace(new.limits, **{each.field: each.of(old) for each in unchanged if each.isLimit})
    return replace(new, **{each.field: each.of(old) for each in unchanged if not each.isLimit}, limits=limits)


def lostProtections(old: Settings, new: Settings) -> Iterator[str]:
    """Yield a sentence for each protection that the new settings would remove completely.

    A truncated or empty file is still valid TOML; so this needs a restart.
    """
    if old.auth and not new.auth:
        yield "auth is gone, but nobody would have to show credentials then: only a restart does that"
    if (old.roles, old.principals) != (None, None) and new.roles is None and new.principals is None:
        yield "roles and principals are gone, but everybody might do everything then: only a restart does that"
