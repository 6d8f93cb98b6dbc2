"""Reads the settings again while the broker runs: all of them are taken, or none.

Who depends on settings is a *party*: it is given the new ones, reads and checks whatever else it needs (files of
credentials, certificates), and returns what puts them in force. Only when all parties have done so is any of that
called. docs/operating.rst, "Reloading".

What follows new settings: each function returns a party for :class:`fleximq.services.reload.Reload`.
"""

from collections.abc import Callable, Iterable
from typing import Any

from twisted.logger import Logger

from fleximq.broker.broker import Broker
from fleximq.broker.envelope import ConnectedClient
from fleximq.config.settings import Settings
from fleximq.dialects.connection.slow_consumer import policyOf
from fleximq.dialects.context import Context
from fleximq.dialects.http.origins import Origins
from fleximq.errors import Conflict, SettingError, Unauthorized
from fleximq.security.access_policy import AccessPolicy
from fleximq.services.broker_service import rulesOf
from fleximq.services.network.connection_limit import ConnectionLimit
from fleximq.startup.setting_changes import Difference, SettingsRefused, difference, lostProtections, merged

#: Checks new settings, or raises SettingError; returns what makes a part of the broker follow them, and never fails.
Participant = Callable[[Settings], Callable[[], None]]

_log = Logger("fleximq.services.reload")


class Reload:
    """Holds the settings in force, and changes them.

    ``parties`` are asked and changed in their order. ``onBegin`` and ``onEnd`` are told of each attempt.

    :param again: reads the settings as a start would; raises SettingError.
    """

    def __init__(self, settings: Settings, again: Callable[[], Settings]) -> None:
        self.settings = settings
        self.participants: list[Participant] = []
        self.onBegin: Callable[[], object] = _nothing
        self.onEnd: Callable[[], object] = _nothing
        self._again = again

    def reload(self) -> Difference:
        """Read and take the settings, and return what differs from those that were in force.

        :raises Refused: something is wrong with them; nothing has changed.
        """
        self.onBegin()
        try:
            return self._take(self._again())
        except SettingsRefused as refused:
            for sentence in refused.sentences:
                _log.error("The settings stay as they are: {sentence}", sentence=sentence)
            raise
        except SettingError as error:
            _log.error("The settings stay as they are: {sentence}", sentence=error)
            raise SettingsRefused([str(error)]) from error
        except Exception as error:
            _log.failure("The settings stay as they are")
            raise SettingsRefused(["internal error, see the log"]) from error
        finally:
            self.onEnd()

    def signalled(self) -> None:
        """Reload for somebody who reads the log."""
        try:
            self.reload()
        except SettingsRefused:
            pass

    def asked(self) -> dict[str, Any]:
        """Reload for a client, and return the names of what has ``changed``, and of what needs a ``restart``.

        :raises Conflict: nothing has changed; it has all sentences, one a line.
        """
        try:
            found = self.reload()
        except SettingsRefused as refused:
            raise Conflict(str(refused)) from refused
        return {"changed": list(found.changed), "restart": list(found.waiting)}

    def _take(self, wanted: Settings) -> Difference:
        sentences = list(lostProtections(self.settings, wanted))
        found = difference(self.settings, wanted)
        settings = merged(self.settings, wanted)
        steps: list[Callable[[], None]] = []
        for participant in self.participants:
            try:
                steps.append(participant(settings))
            except SettingsRefused as refused:
                sentences += refused.sentences
            except SettingError as error:
                sentences.append(str(error))
        if sentences:
            raise SettingsRefused(sentences)
        self.settings = settings
        for step in steps:
            try:
                step()
            except Exception:
                _log.failure("A part of the broker could not follow the new settings")
        _tell(found)
        return found


def _tell(found: Difference) -> None:
    _log.info("The settings were read again; changed: {names}", names=", ".join(found.changed) or "nothing in them")
    if found.waiting:
        _log.warn("These settings need a restart to change: {names}", names=", ".join(found.waiting))


def _nothing() -> None:
    """Nobody is told."""


_securityLog = Logger("fleximq.services.parties")


def securityParticipant(
    security: AccessPolicy, broker: Broker, reactor: Any, counted: Callable[[str, int], object]
) -> Participant:
    """Let credentials and permissions change: who would not be let in any more is expelled, others get their rights."""

    def prepare(settings: Settings) -> Callable[[], None]:
        other = AccessPolicy.of(settings, reactor, counted, security.attempts)

        def follow() -> None:
            security.replace(other)
            for client in tuple(broker.clients):
                review(security, broker, client)

        return follow

    return prepare


def review(security: AccessPolicy, broker: Broker, client: ConnectedClient) -> None:
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
        _securityLog.failure("What {client} may do now could not be found out: it is expelled", client=client.name)
        conversation.expel(Unauthorized("what this client may do could not be found out"))


def brokerParticipant(broker: Broker) -> Participant:
    """Let the broker's rules change."""

    def prepare(settings: Settings) -> Callable[[], None]:
        rules = rulesOf(settings)
        return lambda: broker.changeRules(rules)

    return prepare


def limitParticipant(connectionLimit: ConnectionLimit) -> Participant:
    """Let change how many connections there may be."""

    def prepare(settings: Settings) -> Callable[[], None]:
        def follow() -> None:
            connectionLimit.limits = settings.limits

        return follow

    return prepare


def originsOf(settings: Settings) -> Origins:
    """Return which web pages may come; names are believed where more than this machine is served."""
    return Origins(frozenset(settings.allowedOrigin), settings.allowAnonymous or bool(settings.auth))


def originsParticipant(origins: Origins) -> Participant:
    """Let change which web pages may come."""

    def prepare(settings: Settings) -> Callable[[], None]:
        other = originsOf(settings)

        def follow() -> None:
            origins.added, origins.namesTrusted = other.added, other.namesTrusted

        return follow

    return prepare


def contextParticipant(contexts: Iterable[Context]) -> Participant:
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
