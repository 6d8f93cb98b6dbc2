"""Entry point of ``twistd fleximq``: its options, and the service built from them."""

import sys
from collections.abc import Mapping
from typing import Any

from twisted.application.service import IService
from twisted.logger import Logger

from fleximq.errors import SettingError
from fleximq.services.compose import compose
from fleximq.services.network.listeners import ListenerService
from fleximq.services.process.garbage_collection import GarbageService
from fleximq.services.process.log_lines import withLog
from fleximq.services.process.monotonic_reactor import followMonotonicClock
from fleximq.services.process.signals import SignalService
from fleximq.services.process.startup_failure import StartupFailure
from fleximq.services.reload import Reload
from fleximq.startup.configuration_check import adviceAbout
from fleximq.startup.options import Options

__all__ = ["Options", "makeService"]

_log = Logger()


def makeService(options: Options) -> IService:
    """Return the broker with all its listeners, none of them open yet.

    The reactor's timers follow the monotonic clock from then on. If a client is served on standard output, logs and
    prints are redirected to standard error.

    :raises SystemExit: with a sentence, if a named plug-in cannot be loaded, or a daemon is to serve standard input.
    """
    from twisted.internet import reactor

    followMonotonicClock(reactor)
    twistd: Mapping[str, Any] = options.parent or {}
    startupFailure = StartupFailure(twistd)
    reload = Reload(options.settings, options.again, lambda: options.origins)
    try:
        whole = compose(reactor, options.settings, startupFailure, abortRun=startupFailure.duringRun, reload=reload)
    except SettingError as error:
        raise SystemExit(f"fleximq: {error}") from None
    if any(isinstance(each, ListenerService) and each.listen.isStdio for each in whole):
        if not twistd.get("nodaemon", True):
            raise SystemExit("fleximq: stdio has no client in a daemon; start the broker with twistd -n")
        sys.stdout = sys.stderr
    for sentence in adviceAbout(options.settings, options.get("config")):
        _log.warn("{sentence}", sentence=sentence)
    signals = SignalService(reactor, reload.reloadOnSignal, twistd)
    signals.setServiceParent(whole)
    whole.services.sort(key=lambda each: each is not signals)  # first: a client may stop the open broker
    GarbageService().setServiceParent(whole)
    return withLog(whole, options.settings.logFormat, twistd, reactor, reload.auditLog.reopen)
