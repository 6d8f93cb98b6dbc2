"""Reloads the settings of a running broker: all changes are applied, or none.

A *participant* receives the new settings, reads and checks its other inputs, e.g. certificates, and returns a
function that applies them, called only after every participant has succeeded. docs/guides/operating.rst, "Reloading".
"""

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from twisted.logger import Logger

from fleximq.broker.broker import Broker
from fleximq.broker.envelope import ConnectedClient
from fleximq.config.schema_options import schemaOf
from fleximq.config.setting_origins import Origin
from fleximq.config.settings import Settings
from fleximq.dialects.connection.slow_consumer import policyOf
from fleximq.dialects.context import ListenerContext
from fleximq.dialects.http.routing.origins import Origins
from fleximq.endpoints.endpoint_string import FILES
from fleximq.endpoints.listen import tlsFilesOf
from fleximq.errors import Conflict, SettingError, Unauthorized, systemReason
from fleximq.interfaces import IConversation
from fleximq.security.access_policy import AccessPolicy
from fleximq.security.authentication.schemes import split
from fleximq.services.audit_log import AuditLog, NoAuditLog
from fleximq.services.broker_service import checkQueues, checksOf, repeatsOf, rulesOf
from fleximq.services.network.connection_limit import ConnectionLimit
from fleximq.services.network.open_files import raiseLimit, withinOpenFiles
from fleximq.startup.setting_changes import Difference, SettingsRefused, difference, lostProtections, merged
from fleximq.values.unadmitted_budget import UnadmittedBudget

#: Checks new settings, or raises SettingError; returns a function that applies them and never fails.
Participant = Callable[[Settings], Callable[[], None]]

_log = Logger()


class ReloadWatcher(Protocol):
    """Learns each attempt to reload."""

    def reloading(self) -> None:
        """Learn that an attempt begins."""

    def reloaded(self) -> None:
        """Learn that it has ended, with or without a change."""


class Reload:
    """Holds and changes the current settings.

    ``participants`` are called in order; ``readiness`` reports each attempt to the service manager, and the
    ``auditLog`` gets its result, after it was opened again. ``again`` reads the settings as at the start; raises
    SettingError. ``origins`` returns where the settings come from that are not at their defaults.
    """

    def __init__(
        self,
        settings: Settings,
        again: Callable[[], Settings],
        origins: Callable[[], Mapping[str, Origin]] = dict,
    ) -> None:
        self.settings = settings
        self.origins = origins
        self.participants: list[Participant] = []
        self.readiness: ReloadWatcher | None = None
        self.auditLog: AuditLog | NoAuditLog = NoAuditLog()
        self._again = again
        self._stamps = _stamps(settings)

    def reload(self) -> Difference:
        """Read and apply the settings, and return the differences from the previous ones.

        A setting with a changed file counts as changed; the files of ``fleximqtls:`` listeners have the names of
        their arguments, such as ``crl``.

        :raises SettingsRefused: the settings are invalid; no change was made.
        """
        try:
            changes = self._reloaded()
        except SettingsRefused as refused:
            self.auditLog.record("reload", error=refused.sentences)
            raise
        self.auditLog.record("reload", changed=changes.changed)
        return changes

    def _reloaded(self) -> Difference:
        if self.readiness is not None:
            self.readiness.reloading()
        self.auditLog.reopen()
        try:
            return self._apply(self._again())
        except (SettingError, OSError) as error:
            refused = error if isinstance(error, SettingsRefused) else SettingsRefused([_sentence(error)])
            for sentence in refused.sentences:
                _log.error("The settings stay as they are: {sentence}", sentence=sentence)
            raise refused from (None if refused is error else error)
        except Exception as error:
            _log.failure("The settings stay as they are")
            raise SettingsRefused(["internal error, see the log"]) from error
        finally:
            if self.readiness is not None:
                self.readiness.reloaded()

    def reloadOnSignal(self) -> None:
        """Reload on a signal; errors are logged."""
        with suppress(SettingsRefused):
            self.reload()

    def reloadForClient(self) -> dict[str, Any]:
        """Reload; return the names of ``changed`` settings and those that need a ``restart``; raises Conflict."""
        try:
            changes = self.reload()
        except SettingsRefused as refused:
            raise Conflict(str(refused)) from refused
        return {"changed": list(changes.changed), "restart": list(changes.waiting)}

    def _apply(self, requested: Settings) -> Difference:
        sentences = list(lostProtections(self.settings, requested))
        changes = difference(self.settings, requested)
        settings = merged(self.settings, requested)
        stamps = _stamps(settings)
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
        files = [name for name in stamps if stamps[name] != self._stamps[name]]
        changes = changes._replace(changed=tuple(dict.fromkeys((*changes.changed, *files))))
        self.settings, self._stamps = settings, stamps
        for step in steps:
            try:
                step()
            except Exception:
                _log.failure("A part of the broker could not follow the new settings")
        names = ", ".join(changes.changed) or "none"
        _log.info("The settings and their files were read again; changed: {names}", names=names)
        if changes.waiting:
            _log.warn("These settings need a restart to change: {names}", names=", ".join(changes.waiting))
        return changes


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError):  # e.g. too many open files while plug-ins are looked for
        return f"{error.filename or 'a file'} cannot be read: {systemReason(error)}"
    return str(error)


def _stamps(settings: Settings) -> dict[str, list[object]]:
    """Return inode, size and time of the files of credentials, certificates and schemas, by the name of the setting."""
    words = [each.rpartition("=")[2] for text in settings.auth for each in split(text.partition(":")[2])]
    named: dict[str, list[Any]] = {
        "auth": words,
        "tls-certificate": [settings.tlsCertificate],
        "tls-key": [settings.tlsKey],
        "schema": [each for line in settings.schema for each in schemaOf(line)[1].split(",")],
        **{name: [] for name in FILES},
    }
    for text in (*settings.listen, *settings.http):
        for name, path in tlsFilesOf(text).items():
            named[name].append(path)
    return {name: [_stamp(path) for path in paths if path] for name, paths in named.items()}


def _stamp(path: str) -> object:
    try:
        found = os.stat(path)
    except (OSError, ValueError):  # not a file, but another part of a scheme
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def prepareSecurity(security: AccessPolicy, broker: Broker, reactor: Any, settings: Settings) -> Callable[[], None]:
    """Apply credentials and permissions: expel clients that may not join any more, give others their new rights."""
    other = AccessPolicy.of(settings, reactor, broker.observers.counted, security.attempts)

    def apply() -> None:
        security.replace(other)
        for client in tuple(broker.clients):
            if client.conversation is not None:  # clients of extensions are exempt
                _review(security, broker, client, client.conversation)

    return apply


def _review(security: AccessPolicy, broker: Broker, client: ConnectedClient, conversation: IConversation) -> None:
    try:
        refusal = conversation.refusal()
        if refusal is None and not security.vouchesFor(client.identity):
            refusal = "these credentials are not valid any more"
        if refusal is not None:
            conversation.expel(Unauthorized(refusal))
            return
        if client.identity is not None:
            client.identity = security.current(client.identity)
        rights = security.rightsOf(client.identity)
        if rights is not client.rights:
            broker.changeRights(client, rights)
    except Exception:
        _log.failure("The new rights of {client} could not be determined: it is expelled", client=client.name)
        conversation.expel(Unauthorized("the rights of this client could not be determined"))


def prepareQueues(broker: Broker, settings: Settings) -> Callable[[], None]:
    """Apply the queues of the settings file; raises SettingError if the broker cannot have them."""
    checkQueues(broker, settings)
    return lambda: broker.queueSettings.settle(settings.queues)


def prepareSchemas(broker: Broker, settings: Settings) -> Callable[[], None]:
    """Read the schemas of topics again; raises SettingError for a file that cannot be used."""
    checks = checksOf(settings)
    return lambda: broker.setSchemas(checks.of)


def follow(
    broker: Broker,
    connectionLimit: ConnectionLimit,
    unadmitted: UnadmittedBudget,
    origins: Origins,
    contexts: Iterable[ListenerContext],
    settings: Settings,
) -> None:
    """Apply settings that need no check: to the broker, new connections, and new requests of existing ones."""
    raiseLimit(settings.limits)
    broker.changeRules(rulesOf(settings))
    broker.schedules.settle(repeatsOf(settings, broker))
    connectionLimit.limits, unadmitted.limit = withinOpenFiles(settings), settings.limits.unadmittedBytes
    other = originsOf(settings)
    origins.added, origins.namesTrusted, origins.strict = other.added, other.namesTrusted, other.strict
    for context in contexts:
        if settings.slowConsumer is not context.settings.slowConsumer:
            context.policy = policyOf(settings.slowConsumer, context.clock, context.broker.observers.counted)
        context.settings = settings


def originsOf(settings: Settings) -> Origins:
    """Return the rule about web pages: strict with authentication; names are trusted if other machines are served."""
    strict = bool(settings.auth)
    return Origins(frozenset(settings.allowedOrigin), settings.allowAnonymous or strict, strict)
