"""Finds faults of a configuration without opening or starting files, ports or services, and advises on valid ones."""

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fleximq.config.extension_options import EnabledExtension
from fleximq.config.option_table import TABLES
from fleximq.config.permission_options import faultsOf, unknownRoles
from fleximq.config.queue_options import queueFaults
from fleximq.config.schedule_options import scheduleFaults
from fleximq.config.schema_options import schemaOf
from fleximq.config.settings import NO_ENDPOINT, Settings
from fleximq.dialects.registry import Registry
from fleximq.endpoints.listen import Listen, ListenDefaults, WebListen, isPassedBySystemd
from fleximq.endpoints.principal_argument import withoutPrincipal
from fleximq.errors import SettingError
from fleximq.schemas.payload_checks import PayloadChecks
from fleximq.security.authentication import schemes

#: For each kind of tables, what yields a sentence for each fault in them.
_TABLES: dict[str, Callable[[str, object], Iterator[str]]] = {table.name: faultsOf for table in TABLES}
_TABLES |= {"schedules": scheduleFaults, "queues": queueFaults}
_NO_ADMIN = (
    "no client may use /broker/reload or act as operator over HTTP: to name an admin, add admin = true to "
    '[principals.NAME], and to [roles.everyone] what all others may do, see "Permissions" in the security guide'
)
#: The files with private keys of an endpoint; a certificate's file has its key if no other is named.
_KEY, _CERTIFICATE = re.compile(r":(?:privateKey|key)=([^:\\]+)"), re.compile(r":cert=([^:\\]+)")


def faults(
    values: Mapping[str, object], registry: Registry, elsewhere: bool = False, embedded: bool = False
) -> Iterator[str]:
    """Yield a sentence for each fault of these settings, as far as each can be parsed.

    :param elsewhere: the broker will run in another process, so sockets of systemd cannot be checked here.
    :param embedded: the broker will run inside an application, so it may be without a listener.
    """
    good = {}
    for name, value in values.items():
        found = list(_TABLES[name](name, value)) if name in _TABLES else []
        try:
            if not found:
                Settings.of({name: value})
                good[name] = value
        except SettingError as error:
            found = [str(error)]
        yield from found
    try:
        settings = Settings.of(good)
    except SettingError as error:
        yield str(error)
    else:
        if not (settings.listen or embedded):
            yield NO_ENDPOINT
        yield from _faultsOfJournal(settings)
        try:
            registry = registry.without(settings.disableDialect)
        except SettingError as error:
            yield str(error)
        yield from _faultsOfListeners(settings, registry, elsewhere)
        yield from unknownRoles(settings.roles, settings.principals)
        yield from schemes.faults(settings.auth)
        for line in settings.schema:
            try:
                PayloadChecks([schemaOf(line)])
            except SettingError as error:
                yield str(error)
        for chosen in settings.extension:
            try:
                configurationOf(chosen, registry)
            except SettingError as error:
                yield str(error)


def adviceAbout(settings: Settings, path: str | None = None) -> Iterator[str]:
    """Yield a sentence for each warning; ``path`` is the settings file."""
    if path is not None and (settings.auth or settings.extension or settings.spawn or settings.roles):
        yield from _openness(path)
    keys = {settings.tlsKey or settings.tlsCertificate or ""}
    for endpoint in (*settings.listen, *settings.http):
        keys.update(_KEY.findall(endpoint) or _CERTIFICATE.findall(endpoint))
    for key in sorted(keys):
        yield from _openness(key)
    if (settings.auth or settings.allowAnonymous) and settings.roles is None and settings.principals is None:
        yield _NO_ADMIN
    if settings.roles is not None or settings.principals is not None:
        yield from _listenersWithoutRights(settings)


def _listenersWithoutRights(settings: Settings) -> Iterator[str]:
    """Yield a sentence for each principal of a listener without a table, which may be a misspelt one."""
    known = {each.name for each in settings.principals or ()}
    for text in settings.listen:
        name = withoutPrincipal(text)[1]
        if name is not None and name not in known:
            yield (
                f"listen is {text!r}, but there is no [principals.{name}]: its clients may only do what "
                "[roles.everyone] and [roles.authenticated] grant"
            )


def _openness(path: str) -> Iterator[str]:
    """Yield a sentence if all users of the machine may read or change a file."""
    try:
        othersMay = os.stat(path).st_mode & stat.S_IRWXO
    except OSError:
        return
    if othersMay and os.path.dirname(os.path.abspath(path)) != os.environ.get("CREDENTIALS_DIRECTORY"):
        yield f"{path} is open to all users of this machine: chmod o= {path}"


def configurationOf(chosen: EnabledExtension, registry: Registry) -> Any:
    """Return the checked options of an extension; raises SettingError if it is missing or broken, or refuses them."""
    extension = registry.extensions.get(chosen.name)
    if extension is None:
        known = ", ".join(registry.extensions) or "none"
        raise SettingError(f"there is no extension named {chosen.name!r}; installed: {known}")
    try:
        return extension.configure(chosen.options)
    except SettingError as error:
        raise SettingError(f"extension {chosen.name}: {error}") from error
    except Exception as error:
        raise SettingError(f"the extension {chosen.name} cannot be loaded: {error}") from error


def _faultsOfListeners(settings: Settings, registry: Registry, elsewhere: bool) -> Iterator[str]:
    defaults = ListenDefaults.of(settings, registry.dialects)
    onStdio = []
    served: set[str | None] = set()
    for text in settings.listen:
        if elsewhere and isPassedBySystemd(text):
            continue
        try:
            listen = Listen.parse(text, defaults)
            served |= set() if listen.onlyWebSockets else {listen.dialect}
            if listen.isStdio:
                onStdio.append(text)
            if listen.principal is not None and settings.cluster:
                yield f"listen is {text!r}, but a listener of a cluster's node cannot have a principal"
        except SettingError as error:
            yield str(error)
    for dialect in served:
        try:
            registry.checkClaims(dialect)
        except SettingError as error:
            yield str(error)
    for text in settings.http:
        if not (elsewhere and isPassedBySystemd(text)):
            try:
                WebListen.parse(text, defaults)
            except SettingError as error:
                yield str(error)
    if len(onStdio) > 1:
        yield f"listen is {' and '.join(onStdio)}, but only one client can be at standard input"


def _faultsOfJournal(settings: Settings) -> Iterator[str]:
    """Settings of durable topics need a journal, and its size must permit removing a file."""
    for name in ("durable", "retain", "retention", "history") if settings.journal is None else ():
        if getattr(settings, name):
            yield f"{name} is set, but nothing is kept without a journal: name its folder with journal (--journal)"
    for queue in settings.queues if settings.journal is None else ():
        if queue.durable:
            yield f"queues.{queue.name}.durable is true, but there is no journal: name its folder with journal"
    if settings.clusterKey is not None and settings.clusterCertificate is None:
        yield "cluster-key is set, but not cluster-certificate: the certificate that it belongs to"
    if settings.cluster:
        if settings.node is None:
            yield "cluster is set, but not node: each node of a cluster needs a name"
        if settings.journal is None:
            yield "cluster is set, but not journal: the folder of this node's copy of the messages"
    if settings.mesh and not settings.cluster:
        yield "mesh is set, but not cluster: the NATS servers by which the nodes reach each other"
    if 0 < settings.journalMaxBytes < 2 * settings.journalSegment:
        yield (
            f"journal-max-bytes is {settings.journalMaxBytes}, but must be 0 or at least "
            f"twice journal-segment, which is {2 * settings.journalSegment}"
        )
