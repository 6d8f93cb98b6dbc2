"""What a plug-in of FlexiMQ is made of: a name, and the dotted names of what stands behind it.

Twisted reads every drop-in file in ``twisted/plugins/`` whenever any of its programs looks for plug-ins. Such a file
therefore holds names only, and imports nothing but this module; what is named is imported when it is used. See
docs/extending.rst.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twisted.cred.strcred import ICheckerFactory
from twisted.internet.interfaces import IStreamServerEndpointStringParser
from twisted.plugin import IPlugin
from twisted.python.reflect import namedAny
from zope.interface import implementer

from fleximq.interfaces import IBrokerExtension, IDialect, IExtensionContext


@implementer(IPlugin, IDialect)
class Dialect:
    """A dialect by name.

    :param stream: the dotted name of what makes its stream factory of a context; "" if it is spoken on none.
    :param webSocket: the same for WebSockets.
    :param beginnings: the first bytes by which its connections are told on a port that several dialects share.
    :param title: its name on the welcome page, with ``purpose`` and ``reach``; "" keeps it off that page.
    """

    def __init__(
        self,
        name: str,
        stream: str = "",
        webSocket: str = "",
        beginnings: Sequence[bytes] = (),
        title: str = "",
        purpose: str = "",
        reach: str = "{stream}",
    ) -> None:
        self.name = name
        self.beginnings = tuple(beginnings)
        self.title = title
        self.purpose = purpose
        self.reach = reach
        self._stream = stream
        self._webSocket = webSocket

    def stream(self, context: Any) -> Any:
        """Return a new factory of connections on byte streams, or None."""
        return namedAny(self._stream)(context) if self._stream else None

    def webSocket(self, context: Any) -> Any:
        """Return a new factory of WebSockets, or None."""
        return namedAny(self._webSocket)(context) if self._webSocket else None


@implementer(IPlugin, IBrokerExtension)
class Extension:
    """An extension by name.

    :param words: what it does, in one sentence.
    :param configure: the dotted name of what checks its options, see :meth:`IBrokerExtension.configure`.
    :param service: the dotted name of what makes its service of a context and the checked options.
    """

    def __init__(self, name: str, words: str, configure: str, service: str) -> None:
        self.name = name
        self.words = words
        self._configure = configure
        self._service = service

    def configure(self, options: Mapping[str, object]) -> Any:
        """Return the options, checked."""
        check: Callable[[Mapping[str, object]], Any] = namedAny(self._configure)
        return check(options)

    def makeService(self, context: IExtensionContext, configuration: Any) -> Any:
        """Return the service."""
        return namedAny(self._service)(context, configuration)


@implementer(IPlugin, IStreamServerEndpointStringParser)
class ServerEndpoint:
    """A kind of server endpoint by its name.

    :param prefix: what its strings begin with.
    :param parse: the dotted name of what makes the endpoint of a reactor and the string's arguments.
    """

    def __init__(self, prefix: str, parse: str) -> None:
        self.prefix = prefix
        self._parse = parse

    def parseStreamServer(self, reactor: Any, *arguments: Any, **named: Any) -> Any:
        """Return the endpoint."""
        return namedAny(self._parse)(reactor, *arguments, **named)


@implementer(IPlugin, ICheckerFactory)
class Checker:
    """A way to check credentials by its name, as ``twisted.cred.strcred`` wants it.

    :param authType: what stands before the colon of ``--auth``.
    :param argStringFormat: what stands behind it, in a few words.
    :param authHelp: what it does, in a few sentences.
    :param credentials: the dotted names of the interfaces of the credentials that it checks.
    :param make: the dotted name of what makes the checker of the text behind the colon. It raises
        :exc:`fleximq.errors.SettingError` where that is wrong.
    """

    def __init__(
        self, authType: str, argStringFormat: str, authHelp: str, credentials: Sequence[str], make: str
    ) -> None:
        self.authType = authType
        self.argStringFormat = argStringFormat
        self.authHelp = authHelp
        self._credentials = tuple(credentials)
        self._make = make

    @property
    def credentialInterfaces(self) -> tuple[Any, ...]:
        """The interfaces, imported now."""
        return tuple(namedAny(each) for each in self._credentials)

    def generateChecker(self, argstring: str = "") -> Any:
        """Return the checker."""
        return namedAny(self._make)(argstring)
