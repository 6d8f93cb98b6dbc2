"""The certificates of all listeners, which can be read anew together.

Each of them renews itself when its files change (:mod:`fleximq.endpoints.renewal`); this is for those who ask for it,
and want to be told what is wrong.
"""

from collections.abc import Callable, Sequence

from fleximq.config.settings import Settings
from fleximq.endpoints.listen import Ground
from fleximq.services.network.listeners import ListenerService


class Certificates:
    """Those of listeners that are open.

    :param listeners: all there are; those without a certificate of ours do not count.
    """

    def __init__(self, listeners: Sequence[ListenerService]) -> None:
        self._listeners = tuple(listeners)

    def prepare(self, settings: Settings | None = None) -> Callable[[], None]:
        """Read all files, and return what makes new handshakes use them; nothing changes until it is called.

        :param settings: new ones, for what ``tls://`` and ``wss://`` show; None: the files are the same.
        :raises SettingError: one cannot be used; none is used then.
        """
        files = None if settings is None or settings.tlsCertificate is None else Ground.of(settings).tlsFiles
        ready = [
            certificate.prepare(files if each.listen.url is not None else None)
            for each in self._listeners
            if (certificate := each.certificate) is not None
        ]

        def use() -> None:
            for each in ready:
                each()

        return use

    def reload(self) -> None:
        """Read all files anew for the next handshakes.

        :raises SettingError: one cannot be used; all stay as they are.
        """
        self.prepare()()
