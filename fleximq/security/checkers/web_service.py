"""Checks credentials by a POST request to a web service, and caches its answers.

If the answer is late, malformed or missing, the client is refused.
"""

import json
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from twisted.cred.checkers import ICredentialsChecker
from twisted.cred.error import UnauthorizedLogin
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers
from twisted.web.iweb import IBodyProducer
from zope.interface import implementer

from fleximq import __version__
from fleximq.errors import NoCapacity
from fleximq.security.authentication.checker_interfaces import (
    ICautious,
    IManyAtOnce,
    INeedsReactor,
    IRemembering,
    IVouching,
)
from fleximq.security.authentication.result_cache import ResultCache
from fleximq.security.checkers.bounded_agent import MAX_ANSWER_BYTES, TOO_LARGE, agentOf, reasonOf, withoutQuery
from fleximq.security.checkers.claims import WrongClaim, grantsOf, rolesOf, textsIn
from fleximq.security.credentials import ApiKey, IApiKey, IPassword, IToken, Password, Token
from fleximq.security.principal import Principal, isName
from fleximq.values.log_limit import LogLimit

_log = Logger()

#: Maximum number of concurrent requests.
AT_ONCE = 32
#: Maximum lifetime of a cached refusal in seconds.
REFUSED_FOR = 10.0


def body(response: Any) -> Deferred[bytes]:
    """Return the body of an answer. It fails with :exc:`WrongClaim` if that is over :data:`MAX_ANSWER_BYTES`."""
    reader = _Reader()
    response.deliverBody(reader)
    return reader.done


def principalOf(answer: bytes, proof: str) -> Principal:
    """Return the principal that the service names, with this ``proof``; raises WrongClaim if it is malformed."""
    try:
        said = json.loads(answer)
    except (ValueError, RecursionError):
        raise WrongClaim("the answer is no JSON") from None
    if not isinstance(said, dict) or not isName(said.get("principal")):
        raise WrongClaim("the answer names no principal")
    expires = said.get("expires")
    if expires is not None and (isinstance(expires, bool) or not isinstance(expires, int | float)):
        raise WrongClaim("the answer has a time of expiry that is no number")
    if expires is not None and not math.isfinite(expires):
        raise WrongClaim("the answer has a time of expiry that never comes")
    claims = said.get("claims", {})
    if not isinstance(claims, dict):
        raise WrongClaim("the answer has claims that are no map")
    return Principal(
        said["principal"],
        rolesOf(said.get("roles")),
        grantsOf(said["permissions"]) if "permissions" in said else {},
        expires=expires,
        proof=proof,
        claims=textsIn(claims),
    )


class _Reader(Protocol):
    """Collects a body, up to the limit; ``done`` fires with it."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self.done: Deferred[bytes] = Deferred(lambda _: self._abort())

    def dataReceived(self, data: bytes) -> None:
        self._size += len(data)
        if self._size <= MAX_ANSWER_BYTES:
            self._pieces.append(data)
        elif not self.done.called:
            self.done.errback(WrongClaim(TOO_LARGE))
            self._abort()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self.done.called:
            return
        if reason.check(ResponseDone, PotentialDataLoss):
            self.done.callback(b"".join(self._pieces))
        else:
            self.done.errback(reason)

    def _abort(self) -> None:
        abort = getattr(self.transport, "abortConnection", None) or getattr(self.transport, "loseConnection", None)
        if abort is not None:
            abort()


class Service(NamedTuple):
    """The URL and the options of requests. Times are in seconds, ``headers`` are additional; ``policy`` is as above."""

    url: str
    timeout: float = 5.0
    cache: float = 60.0
    headers: tuple[tuple[str, str], ...] = ()
    policy: Any = None
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Service(url={withoutQuery(self.url)!r})"


#: The cached result for wrong credentials.
_NOBODY = Principal("")


@implementer(ICredentialsChecker, IManyAtOnce, IRemembering, IVouching, INeedsReactor, ICautious)
class WebService:
    """Asks a web service; ``agent`` replaces the one made for the reactor, ``wall`` returns seconds since 1970."""

    credentialInterfaces = (IToken, IPassword, IApiKey)
    atOnce = AT_ONCE

    def __init__(self, service: Service, agent: Any = None, wall: Callable[[], float] = time.time) -> None:
        self.warnings = service.warnings
        self._service = service
        self._agent = agent
        self._wall = wall
        self._logLimit = LogLimit(1)

    def useReactor(self, reactor: Any) -> None:
        """Use connections and the clock of a reactor."""
        self._reactor = reactor
        self._known: ResultCache[Principal] = ResultCache(reactor.seconds, self._service.cache)
        if self._agent is None:
            self._agent = agentOf(reactor, self._service.timeout, self._service.policy)

    def remembered(self, credentials: Any) -> Principal | None:
        """Return the cached principal of these credentials, or None."""
        found = self._known.get(*_shown(credentials).values())
        return None if found is _NOBODY else found

    def requestAvatarId(self, credentials: Any) -> Any:
        """Return the principal; fails with UnauthorizedLogin or, without a valid answer, with NoCapacity."""
        return Deferred.fromCoroutine(self._check(_shown(credentials)))

    def vouch(self, principal: Principal) -> Principal | None:
        """Return the principal if this service admitted it; sends no request."""
        return principal if principal.proof == self._service.url else None

    async def _check(self, shown: Mapping[str, str]) -> Principal:
        found = self._known.get(*shown.values())
        if found is None:
            found = await self._askInTime(shown)
            lasting = self._service.cache
            if found is _NOBODY:
                lasting = REFUSED_FOR
            elif found.expires is not None:
                lasting = found.expires - self._wall()
            self._known.put(found, *shown.values(), lasting=lasting)
        if found is _NOBODY:
            raise UnauthorizedLogin()
        return found

    async def _askInTime(self, shown: Mapping[str, str]) -> Principal:
        """Return the service's answer, :data:`_NOBODY` if it refuses; raises NoCapacity if it is late or malformed."""
        try:
            return await Deferred.fromCoroutine(self._ask(shown)).addTimeout(self._service.timeout, self._reactor)
        except CancelledError:
            raise
        except DeferredTimeout:
            self._complain(f"no answer in {self._service.timeout:g} seconds")
        except Exception as error:
            self._complain(reasonOf(error))
        raise NoCapacity("the credentials cannot be checked now")

    async def _ask(self, shown: Mapping[str, str]) -> Principal:
        headers = Headers({"Content-Type": ["application/json"], "User-Agent": [f"FlexiMQ/{__version__}"]})
        for name, value in self._service.headers:
            headers.addRawHeader(name, value)
        question = _Question(json.dumps(shown).encode())
        response = await self._agent.request(b"POST", self._service.url.encode("ascii"), headers, question)
        answer = await body(response)
        if response.code in (401, 403):
            return _NOBODY
        if response.code != 200:
            raise WrongClaim(f"the answer is {response.code}")
        found = principalOf(answer, self._service.url)
        return _NOBODY if found.expires is not None and found.expires <= self._wall() else found

    def _complain(self, reason: str) -> None:
        if self._logLimit.passes(self._reactor.seconds()) is not None:
            _log.error("Nobody can be let in by {url}: {reason}", url=withoutQuery(self._service.url), reason=reason)


@implementer(IBodyProducer)
class _Question:
    """A request body in memory."""

    def __init__(self, content: bytes) -> None:
        self.length = len(content)
        self._content = content

    def startProducing(self, consumer: Any) -> Deferred[None]:
        consumer.write(self._content)
        return succeed(None)

    def pauseProducing(self) -> None:
        """Ignored: the body is complete."""

    resumeProducing = stopProducing = pauseProducing


def _shown(credentials: Token | Password | ApiKey) -> dict[str, str]:
    """Return credentials in the form of the request: as in a FlexiMQ JOIN."""
    if isinstance(credentials, Token):
        return {"type": "token", "token": credentials.token}
    if isinstance(credentials, Password):
        return {"type": "basic", "username": credentials.username, "password": credentials.password}
    return {"type": "api_key", "api_key": credentials.key}
