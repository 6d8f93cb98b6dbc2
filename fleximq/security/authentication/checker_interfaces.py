"""Optional interfaces that a checker of credentials may implement in addition to ``ICredentialsChecker``.

A checker is made by an ``ICheckerFactory`` of ``twisted.cred.strcred``. Its ``requestAvatarId`` returns a
:class:`fleximq.security.principal.Principal`, or a name as bytes or text, or fails with ``UnauthorizedLogin``.
:exc:`fleximq.errors.NoCapacity` means that it cannot check now.
"""

from typing import Any

from zope.interface import Attribute, Interface


class IUnguessable(Interface):
    """Checks secrets that are too long to be guessed, at once: others wait in a queue that is fair per address."""


class IRemembering(Interface):
    """Caches results, so that known credentials skip the queue."""

    def remembered(credentials: Any) -> Any:
        """Return the cached principal of these credentials, or None; without further checks."""


class IManyAtOnce(Interface):
    """Sets the number of concurrent checks."""

    atOnce = Attribute("""The maximum number of concurrent checks.""")


class IVouching(Interface):
    """Can check an admitted principal again after its files were reloaded."""

    def vouch(principal: Any) -> Any:
        """Return the principal with today's roles; None if it would be refused now."""


class INeedsReactor(Interface):
    """Uses threads, the network or timers."""

    def useReactor(reactor: Any) -> None:
        """Receive the reactor; called once, before the first check."""


class ICautious(Interface):
    """Has warnings about its files for the operator."""

    warnings = Attribute("""Sentences, for the log and for ``fleximq check-config``.""")
