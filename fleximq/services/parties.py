"""What follows new settings: each function returns a party for :class:`fleximq.services.reload.Reload`."""

from collections.abc import Callable, Iterable
from typing import Any

from twisted.logger import Logger

from fleximq.broker.broker import Broker
from fleximq.broker.envelope import Client
from fleximq.config.settings import Settings
from fleximq.dialects.connection.slow_consumer import policyOf
from fleximq.dialects.context import Context
from fleximq.dialects.http.origins import Origins
from fleximq.errors import Unauthorized
from fleximq.security.access_policy import AccessPolicy
from fleximq.services.broker_service import rulesOf
from fleximq.services.network.connection_limit import Gate
from fleximq.services.reload import Party

_log = Logger("fleximq.services.parties")


def securityParty(security: AccessPolicy, broker: Broker, reactor: Any, counted: Callable[[str, int], object]) -> Party:
    """Let credentials and permissions change: who would not be let in any more is expelled, others get their rights."""

    def prepare(settings: Settings) -> Callable[[], None]:
        other = AccessPolicy.of(settings, reactor, counted, security.attempts)

        def follow() -> None:
            security.replace(other)
            for client in tuple(broker.clients):
                review(security, broker, client)

        return follow

    return prepare


def review(security: AccessPolicy, broker: Broker, client: Client) -> None:
    """Look again at a client that was let in by what is replaced; one of an extension is left alone."""
    conversation = client.conversation
    if conversation is None:
        return
    try:
        refusal = conversation.refusal()
        if refusal is not None:
            conversation.expel(Unauthorized(refusal))
            return
        if not security.vouchesFor(client.identity):
            conversation.expel(Unauthorized("these credentials are not valid any more"))
            return
        if client.identity is not None:
            client.identity = security.current(client.identity)
        rights = security.rightsOf(client.identity)
        if rights is not client.rights:
            broker.changeRights(client, rights)
    except Exception:
        _log.failure("What {client} may do now could not be found out: it is expelled", client=client.name)
        conversation.expel(Unauthorized("what this client may do could not be found out"))


def brokerParty(broker: Broker) -> Party:
    """Let the broker's rules change."""

    def prepare(settings: Settings) -> Callable[[], None]:
        rules = rulesOf(settings)
        return lambda: broker.changeRules(rules)

    return prepare


def gateParty(gate: Gate) -> Party:
    """Let change how many connections there may be."""

    def prepare(settings: Settings) -> Callable[[], None]:
        def follow() -> None:
            gate.limits = settings.limits

        return follow

    return prepare


def originsOf(settings: Settings) -> Origins:
    """Return which web pages may come; names are believed where more than this machine is served."""
    return Origins(frozenset(settings.allowedOrigin), settings.allowAnonymous or bool(settings.auth))


def originsParty(origins: Origins) -> Party:
    """Let change which web pages may come."""

    def prepare(settings: Settings) -> Callable[[], None]:
        other = originsOf(settings)

        def follow() -> None:
            origins.added, origins.namesTrusted = other.added, other.namesTrusted

        return follow

    return prepare


def contextParty(contexts: Iterable[Context]) -> Party:
    """Let new connections, and new questions of those there are, find the new settings."""

    def prepare(settings: Settings) -> Callable[[], None]:
        def follow() -> None:
            for context in contexts:
                if settings.slowConsumer is not context.settings.slowConsumer:
                    broker = context.broker
                    context.policy = policyOf(settings.slowConsumer, context.clock, broker.observers.counted)
                context.settings = settings

        return follow

    return prepare
