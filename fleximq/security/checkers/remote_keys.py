"""Fetches the public keys of an identity provider, and fetches them again when it changes them.

A known key is used at once, also while the provider is slow or down. An unknown ``kid`` causes at most one fetch in
:data:`COOLDOWN` seconds, for which its clients wait. Unlike with PyJWT's ``PyJWKClient``, an answer has a deadline and
a maximum size.
"""

import json
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.logger import Logger
from twisted.python.failure import Failure

from fleximq.errors import NoCapacity
from fleximq.security.checkers.bounded_agent import agentOf, reasonOf, withoutQuery
from fleximq.security.checkers.claims import WrongClaim
from fleximq.security.checkers.signing_keys import SigningKey, keysIn
from fleximq.security.checkers.web_options import checkedUrl, isPrivate
from fleximq.security.checkers.web_service import body

_log = Logger()

#: Deadline of a fetch in seconds, all requests of it together.
TIMEOUT = 5.0
#: Minimum interval of fetches in seconds.
COOLDOWN = 10.0
#: Ages of the keys in seconds: from the first on they are fetched again when one is used, from the second on clients
#: wait for that, unless the last fetch failed, and from the third on they are not used.
STALE, EXPIRED, MAX_AGE = 300.0, 600.0, 86400.0
#: Maximum number of clients that wait for a fetch, and how many of them continue in one turn of the reactor.
MAX_WAITING, RELEASED = 1000, 32

_LATER = "the keys for tokens cannot be fetched now"
_DISCOVERY = "/.well-known/openid-configuration"


class KeySource(NamedTuple):
    """The URL of a JSON Web Key Set, None: that of the ``issuer`` (OpenID Connect Discovery 1.0, 4); its trust."""

    url: str | None
    issuer: str = ""
    policy: Any = None

    @property
    def place(self) -> str:
        """The URL, or that of the issuer."""
        return self.url or self.issuer

    def __repr__(self) -> str:
        return withoutQuery(self.place)


class RemoteKeys:
    """The keys of a provider. ``agent``: sends the requests instead of the one made for the reactor."""

    def __init__(self, source: KeySource, agent: Any = None) -> None:
        self.keys: tuple[SigningKey, ...] = ()
        self.source = source
        self._agent = agent
        self._fetched = self._next = float("-inf")
        self._fetch: Deferred[None] | None = None
        self._failed = False
        self._waiting: list[Deferred[None]] = []

    def useReactor(self, reactor: Any) -> None:
        """Use connections and the clock of a reactor."""
        self._reactor = reactor
        if self._agent is None:
            self._agent = agentOf(reactor, TIMEOUT, self.source.policy)

    def refreshed(self, known: bool) -> Deferred[None] | None:
        """Fetch the keys if needed; return a Deferred if a client must wait for that, None if it need not.

        :param known: the client's key is one of ``keys``.
        :raises NoCapacity: the keys cannot be fetched now; the Deferred fails likewise.
        """
        now = self._reactor.seconds()
        age = now - self._fetched
        if self._fetch is None and now >= self._next and (not known or age >= STALE):
            self._next = now + COOLDOWN
            self._fetch = Deferred.fromCoroutine(self._fetchKeys()).addTimeout(TIMEOUT, self._reactor)
            self._fetch.addBoth(self._done)
        if known and age < (MAX_AGE if self._failed else EXPIRED) or self._fetch is None and not self._failed:
            return None
        if self._fetch is None or len(self._waiting) >= MAX_WAITING:
            raise NoCapacity(_LATER)
        waiting: Deferred[None] = Deferred(self._waiting.remove)
        self._waiting.append(waiting)
        return waiting

    def _done(self, result: object) -> None:
        self._fetch = None
        self._failed = isinstance(result, Failure)
        waiting, self._waiting = self._waiting, []
        if isinstance(result, Failure):
            late = f"no answer in {TIMEOUT:g} seconds"
            reason = late if isinstance(result.value, DeferredTimeout) else reasonOf(result.value)
            words = "The keys for tokens of {source} cannot be fetched: {reason}"
            _log.error(words, source=self.source, reason=reason)
        else:
            self._fetched = self._reactor.seconds()
        self._release(waiting, self._failed)

    def _release(self, waiting: list[Deferred[None]], failed: bool) -> None:
        """Let clients continue, a few in each turn of the reactor, since each has a signature verified."""
        for _ in range(min(len(waiting), RELEASED)):
            each = waiting.pop(0)
            if failed:
                each.errback(NoCapacity(_LATER))
            else:
                each.callback(None)
        if waiting:
            self._reactor.callLater(0, self._release, waiting, failed)

    async def _fetchKeys(self) -> None:
        url, issuer = self.source.url, self.source.issuer
        if url is None:
            try:
                said = json.loads(await self._get(issuer.removesuffix("/") + _DISCOVERY))
                found, url = said["issuer"], said["jwks_uri"]
                parsed = checkedUrl(url)
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise WrongClaim("its discovery document is malformed") from error
            if found != issuer:
                raise WrongClaim("its discovery document is that of another issuer")
            if not isPrivate(parsed):
                raise WrongClaim("its discovery document names keys at a URL without encryption")
        self.keys = keysIn(withoutQuery(url), await self._get(url))

    async def _get(self, url: str) -> bytes:
        response = await self._agent.request(b"GET", url.encode("ascii"))
        content = await body(response)
        if response.code != 200:
            raise WrongClaim(f"the answer is {response.code}")
        return content
