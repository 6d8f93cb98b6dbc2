"""Checks TLS client certificates, verified by the listener: takes the principal's name from the certificate."""

from collections.abc import Callable
from typing import Any

from cryptography import x509
from cryptography.x509.oid import ExtensionOID, NameOID
from twisted.cred.checkers import ICredentialsChecker
from twisted.cred.error import UnauthorizedLogin
from zope.interface import implementer

from fleximq.errors import SettingError
from fleximq.security.authentication import schemes
from fleximq.security.authentication.checker_interfaces import IUnguessable, IVouching
from fleximq.security.credentials import ICertificate
from fleximq.security.principal import Principal, isName


def _commonNames(certificate: x509.Certificate) -> list[Any]:
    return [each.value for each in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]


def _alternative(kind: Any) -> Callable[[x509.Certificate], list[Any]]:
    def names(certificate: x509.Certificate) -> list[Any]:
        try:
            extension = certificate.extensions.get_extension_for_oid(ExtensionOID.SUBJECT_ALTERNATIVE_NAME)
        except x509.ExtensionNotFound:
            return []
        value: Any = extension.value
        return list(value.get_values_for_type(kind))

    return names


#: Fields that can contain the name: the subject's common name, or an alternative name of some kind.
PLACES: dict[str, Callable[[x509.Certificate], list[Any]]] = {
    "cn": _commonNames,
    "dns": _alternative(x509.DNSName),
    "email": _alternative(x509.RFC822Name),
    "uri": _alternative(x509.UniformResourceIdentifier),
}


@implementer(ICredentialsChecker, IUnguessable, IVouching)
class CertificateChecker:
    """Reads the name from a certificate. ``place``: its field, one of :data:`PLACES`."""

    credentialInterfaces = (ICertificate,)

    def __init__(self, place: str = "cn") -> None:
        self._place, self._namesIn = place, PLACES[place]

    def requestAvatarId(self, credentials: Any) -> Any:
        """Return the principal, valid as long as the certificate; raises UnauthorizedLogin without exactly one name."""
        certificate = credentials.certificate
        try:
            names = self._namesIn(certificate)
        except ValueError:  # an extension that cannot be read
            names = []
        if len(names) != 1 or not isName(names[0]):
            raise UnauthorizedLogin()
        return Principal(names[0], expires=certificate.not_valid_after_utc.timestamp(), proof=self._place)

    def vouch(self, principal: Principal) -> Principal | None:
        """Return the principal if names are read from the same field as before; the listener checks certificates."""
        return principal if principal.proof == self._place else None


def certificates(argument: str) -> CertificateChecker:
    """Make the checker of ``--auth certificate:`` or ``certificate:name=PLACE``; raises SettingError."""
    place = schemes.pairs(schemes.split(argument), ("name",)).get("name", "cn")
    if place not in PLACES:
        raise SettingError(f"name is {place!r}, but must be one of {', '.join(PLACES)}")
    return CertificateChecker(place)
