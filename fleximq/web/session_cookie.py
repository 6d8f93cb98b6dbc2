"""The cookie of the console's sessions, as a request has it and as an answer sets it.

Browsers send cookies for every port of a host, so its name has the port that the browser asked. Inside TLS its name has
the prefix with which browsers accept it from this host alone. It is ignored in requests of pages of other origins.
"""

from dataclasses import dataclass, field
from typing import Any

NAME = "fleximq_session"
#: Maximum length of its value; ours are shorter.
_CHARACTERS = 100


@dataclass(frozen=True, slots=True)
class SessionCookie:
    """The name for this request, whether only TLS may carry it, and its value: "" without exactly one."""

    name: str
    secure: bool
    text: str = field(repr=False)

    @classmethod
    def of(cls, request: Any) -> "SessionCookie":
        """Return the cookie of a request of ``twisted.web``."""
        fields: Any = request.requestHeaders
        forwarded = b",".join(fields.getRawHeaders(b"x-forwarded-proto", ()))
        secure = request.isSecure() or b"https" in [each.strip() for each in forwarded.split(b",")]
        host = (request.getHeader(b"host") or b"").decode("latin-1").lower()
        port = host.rpartition(":")[2] if not host.endswith("]") else ""
        name = ("__Host-" if secure else "") + NAME + (f"_{port}" if port.isdecimal() and len(port) <= 5 else "")
        pairs = b";".join(fields.getRawHeaders(b"cookie", ())).decode("latin-1").split(";")
        found = [value.strip() for key, _, value in (each.partition("=") for each in pairs) if key.strip() == name]
        usable = len(found) == 1 and len(found[0]) <= _CHARACTERS and _isOwnPage(request, host)
        return cls(name, secure, found[0] if usable else "")

    def begun(self, text: str) -> str:
        """Return the header value that sets the cookie until the browser ends."""
        return f"{self.name}={text}; Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if self.secure else "")

    def ended(self) -> str:
        """Return the header value that removes the cookie."""
        return f"{self.begun('')}; Max-Age=0"


def _isOwnPage(request: Any, host: str) -> bool:
    """Return whether no header shows that a page of another origin made the request; ports are other origins."""
    origin = request.getHeader(b"origin")
    return request.getHeader(b"sec-fetch-site") in (None, b"same-origin", b"none") and (
        origin is None or origin.decode("latin-1").lower().partition("://")[2] == host
    )
