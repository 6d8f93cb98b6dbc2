"""``/console/session`` and ``/console/ticket``: sign-in, sign-out and tickets of the console's page.

A session is a credential for the web site alone. A ticket, which is accepted once and soon ends, is one for WebSockets
and the other paths of HTTP.
"""

from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.defer import Deferred

from fleximq.errors import Unauthorized
from fleximq.interfaces import IAdmission
from fleximq.rights import Action
from fleximq.security.credentials import ApiKey, Password, Token
from fleximq.security.peer_address import peerAddress
from fleximq.security.principal import Admitted
from fleximq.security.web_sessions import MAX_SECONDS, WebSessions
from fleximq.web.request import SIGN_IN, HttpRefusal, HttpReply, Page, PageRequest, jsonReply

#: The ways to sign in: their names, and the credentials of a posted object.
_WAYS: Mapping[str, tuple[Any, tuple[str, ...]]] = {
    "password": (Password, ("name", "password")),
    "token": (Token, ("token",)),
    "api_key": (ApiKey, ("api_key",)),
}
#: Maximum length of each text of credentials.
_CHARACTERS = 8192


class SignIn:
    """The two pages.

    :param accepts: tells whether credentials of this kind can be checked.
    :param wall: returns the system time.
    :param pages: all pages of the site, by path.
    """

    def __init__(
        self,
        sessions: WebSessions,
        admission: IAdmission,
        accepts: Callable[[Any], bool],
        audit: Callable[..., None],
        wall: Callable[[], float],
        pages: Mapping[str, Page],
    ) -> None:
        self._sessions, self._admission, self._accepts = sessions, admission, accepts
        self._audit, self._wall, self._pages = audit, wall, pages

    def pages(self) -> dict[str, Page]:
        """Return the pages by path."""
        return {
            SIGN_IN: Page(self.session, None, words="Sign-in and sign-out of the console.", also=("POST", "DELETE")),
            "/console/ticket": Page(self.ticket, None, post=True, words="A token for one connection of the console."),
        }

    async def session(self, request: PageRequest) -> HttpReply:
        """Begin a session, end it, or tell about it."""
        if request.method == "POST":
            return await self._signIn(request)
        if request.method == "DELETE":
            return self._signOut(request)
        if request.admitted is None:
            return jsonReply({"error": "sign in first", "methods": self._methods()}, 401)
        csrf = None if request.session is None else request.session.csrf
        return self._told(request.admitted, csrf)

    async def ticket(self, request: PageRequest) -> HttpReply:
        """Return a ticket; null for anonymous clients, which need none."""
        if request.admitted is None:
            raise Unauthorized("sign in first")
        _refuseTicket(request.admitted)
        isNamed = request.admitted.principal is not None
        return jsonReply({"token": self._sessions.ticket(request.admitted, request.session) if isNamed else None})

    async def _signIn(self, request: PageRequest) -> HttpReply:
        if not self._methods():
            raise HttpRefusal(409, "this broker checks no credentials, so that there is no sign-in")
        admitted = self._admission.admit(_credentials(request.arguments), request.address)
        if isinstance(admitted, Deferred):
            admitted = await admitted
        _refuseTicket(admitted)
        principal = admitted.principal
        left = MAX_SECONDS if principal.expires is None else principal.expires - self._wall()
        if left <= 0:
            raise Unauthorized("these credentials have expired")
        self._sessions.end(request.cookie.text)
        text, session = self._sessions.begin(admitted, left)
        self._record("login", request, admitted)
        return self._told(admitted, session.csrf)._replace(fields={"set-cookie": request.cookie.begun(text)})

    def _signOut(self, request: PageRequest) -> HttpReply:
        if request.session is not None and request.admitted is not None:
            self._sessions.end(request.cookie.text)
            self._record("logout", request, request.admitted)
        return jsonReply({})._replace(fields={"set-cookie": request.cookie.ended()})

    def _told(self, admitted: Admitted, csrf: str | None) -> HttpReply:
        name = None if admitted.principal is None else admitted.principal.name
        rights = {
            action: [
                path
                for path, page in self._pages.items()
                if page.action is action and admitted.rights.may(action, path[1:])
            ]
            for action in (Action.READ, Action.ADMIN)
        }
        return jsonReply({"principal": name, "csrf": csrf, "methods": self._methods(), "rights": rights})

    def _methods(self) -> list[str]:
        return [name for name, (kind, fields) in _WAYS.items() if self._accepts(kind(*("" for _ in fields)))]

    def _record(self, event: str, request: PageRequest, admitted: Admitted) -> None:
        name = None if admitted.principal is None else admitted.principal.name
        self._audit(event, principal=name, address=peerAddress(request.address), dialect="http", path=SIGN_IN)


def _refuseTicket(admitted: Admitted) -> None:
    """Refuse a peer that a ticket admitted: a session or ticket made from it would outlast its session's sign-out."""
    if admitted.byTicket:
        raise HttpRefusal(403, "a ticket is for one connection, and neither begins a session nor gets a ticket")


def _credentials(posted: Mapping[str, Any]) -> Any:
    """Return the credentials of a posted object; raises HttpRefusal if it has not exactly those of one way."""
    for kind, names in _WAYS.values():
        values = [posted.get(name) for name in names]
        if posted.keys() == set(names) and all(isinstance(each, str) and len(each) <= _CHARACTERS for each in values):
            return kind(*values)
    raise HttpRefusal(400, "post an object with name and password, or token, or api_key, as text")
