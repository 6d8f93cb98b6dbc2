"""What a checker of credentials may offer beside ``ICredentialsChecker``; one that offers nothing of it works too.

A checker is made by an ``ICheckerFactory`` of ``twisted.cred.strcred``. Its ``requestAvatarId`` gives a
:class:`fleximq.security.principal.Principal`, or a name as bytes or text, or fails with ``UnauthorizedLogin``.
:exc:`fleximq.errors.NoCapacity` says that it cannot tell now.
"""

from typing import Any

from zope.interface import Attribute, Interface


class IUnguessable(Interface):
    """Checks secrets that are too long to be guessed, and does it at once.

    Such a checker is asked without any wait. Every other one is asked only so often at a time, in a line in which
    every address has its turn.
    """


class IRemembering(Interface):
    """Knows for a while whom it has vouched for, so that they need not wait in line."""

    def remembered(credentials: Any) -> Any:
        """Return the principal that these very credentials belong to, or None; without any work."""


class IManyAtOnce(Interface):
    """Knows how often it may be asked at a time."""

    atOnce = Attribute("""How many checks it makes side by side.""")


class IVouching(Interface):
    """Can be asked again about somebody it let in, after its files were read anew."""

    def vouch(principal: Any) -> Any:
        """Return the principal as it would be let in now, with today's roles; None if it would not be."""


class INeedsReactor(Interface):
    """Does work in threads, over the network or by the clock."""

    def useReactor(reactor: Any) -> None:
        """Take the reactor; called once, before the first check."""


class ICautious(Interface):
    """Has something to say to the operator about its files."""

    warnings = Attribute("""Sentences, for the log and for ``fleximq check-config``.""")
