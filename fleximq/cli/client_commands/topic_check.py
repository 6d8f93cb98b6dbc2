"""Refuses topics and patterns with wildcards of other systems, and warns of probable typing errors."""

from collections.abc import Iterable

from fleximq.cli.command import switch
from fleximq.cli.output import say
from fleximq.errors import SettingError
from fleximq.values.patterns import doubtIn, mistakeIn

#: The option that turns warnings into errors.
STRICT = switch("--strict", "refuse topics that may not mean what was typed, such as a..b")


def checkTopics(names: Iterable[str], strict: bool, publishes: bool = False) -> None:
    """Warn on standard error of names that may not mean what was typed.

    :param publishes: the names are topics of messages, not of subscriptions.
    :raises SettingError: a name is a URL; a subscription cannot mean what was typed; if ``strict``, also in place of a
        warning.
    """
    for name in names:
        if "://" in name:
            raise SettingError(f"{name!r} is a URL, not a topic; --url names the broker")
        mistake = None if publishes else mistakeIn(name)
        doubt = mistake or doubtIn(name, publishes)
        if mistake or (doubt and strict):
            raise SettingError(str(doubt))
        if doubt:
            say(f"warning: {doubt}")
