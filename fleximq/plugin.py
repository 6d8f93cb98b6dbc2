"""The classes that plug-in files are made of: a name, and dotted names of the implementation.

Twisted reads every drop-in file in ``twisted/plugins/`` whenever any of its programs looks for plug-ins. So each holds
names only, imported at their first use, and imports only this module (docs/guides/extending.rst).
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

    :param stream: the dotted name of a callable that makes its stream factory from a context; "" if it has none.
    :param webSocket: the same for WebSockets.
    :param beginnings: the first bytes that identify its connections on a port that several dialects share.
    :param title: its name on the welcome page, with ``purpose`` and ``reach``; "" omits it from that page.
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
        return namedAny(self._stream)(context) if self._stream else None

    def webSocket(self, context: Any) -> Any:
        return namedAny(self._webSocket)(context) if self._webSocket else None


@implementer(IPlugin, IBrokerExtension)
class Extension:
    """An extension by name.

    :param words: its purpose, in one sentence.
    :param configure: the dotted name of the function that checks its options, see :meth:`IBrokerExtension.configure`.
    :param service: the dotted name of a callable that makes its service from a context and the checked options.
    """

    def __init__(self, name: str, words: str, configure: str, service: str) -> None:
        self.name = name
        self.words = words
        self._configure = configure
        self._service = service

    def configure(self, options: Mapping[str, object]) -> Any:
        check: Callable[[Mapping[str, object]], Any] = namedAny(self._configure)
        return check(options)

    def makeService(self, context: IExtensionContext, configuration: Any) -> Any:
        return namedAny(self._service)(context, configuration)


@implementer(IPlugin, IStreamServerEndpointStringParser)
class ServerEndpoint:
    """A kind of server endpoint by its name.

    :param prefix: the beginning of its strings.
    :param parse: the dotted name of a callable that makes the endpoint from a reactor and the string's arguments.
    """

    def __init__(self, prefix: str, parse: str) -> None:
        self.prefix = prefix
        self._parse = parse

    def parseStreamServer(self, reactor: Any, *arguments: Any, **named: Any) -> Any:
        return namedAny(self._parse)(reactor, *arguments, **named)


@implementer(IPlugin, ICheckerFactory)
class Checker:
    """A checker of credentials by its name, in the form that ``twisted.cred.strcred`` requires.

    :param authType: the scheme, the part of ``--auth`` before the colon.
    :param argStringFormat: the form of the argument, the part after the colon.
    :param authHelp: its purpose, in a few sentences.
    :param credentials: the dotted names of the interfaces of the credentials that it checks.
    :param make: the dotted name of a callable that makes the checker from the argument. It raises
        :exc:`fleximq.errors.SettingError` if the argument is wrong.
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
        return tuple(namedAny(each) for each in self._credentials)

    def generateChecker(self, argstring: str = "") -> Any:
        return namedAny(self._make)(argstring)
