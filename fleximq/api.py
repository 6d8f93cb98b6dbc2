"""The framework's public face: all that plug-ins and programs which embed a broker may import of it.

docs/reference/api/framework.rst says how these names may change. Each is loaded at its first use: Twisted reads the
drop-in files of plug-ins even for ``twistd --help``, and they should load no more than the names that they import.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Type checkers and editors read these imports, the program reads _HOMES; tests.test_api compares both.
# fmt: off
# ruff: isort: off
if TYPE_CHECKING:
    from fleximq.broker.envelope import ConnectedClient, Envelope, MessageSource, QueueDelivery
    from fleximq.client.errors import Answered, RequestFailed
    from fleximq.client.events import Delivery, Notification, Request
    from fleximq.client.payloads import Packed
    from fleximq.client.settings import Codec
    from fleximq.config.option_values import (
        count as readCount, flag as readFlag, seconds as readSeconds, size as readSize, text as readText,
    )
    from fleximq.config.settings import Settings
    from fleximq.dialects.context import ListenerContext
    from fleximq.dialects.outbox import Outbox
    from fleximq.dialects.connection.connection_state import ConnectionState
    from fleximq.dialects.session import StreamSession
    from fleximq.dialects.stream import StreamFactory
    from fleximq.errors import (
        AuthenticationFailed, BadFraming, BadRequest, BrokerError, ClientNotFound, Conflict, Forbidden,
        InvalidRouting, InvalidTopic, JoinRejected, NoCapacity, NoLongerKept, NotFound, NotImplementedByBroker,
        NotKept, NotPermitted, NotRecorded, NotStored, SettingError, SubscriptionFailed, TooLarge, TooManyRequests,
        Unauthorized,
    )
    from fleximq.in_process.client import InProcessClient
    from fleximq.in_process.subscription import Subscription
    from fleximq.interfaces import (
        IBrokerExtension, IBrokerObserver, IConversation, IDialect, IExtensionContext, IForm, IPeer,
        IQueueWatcher, IRecordWatcher, IRights, ISource, ISubscriber,
    )
    from fleximq.limits import TOPIC_BYTES, Limits, OwnLimits
    from fleximq.plugin import Checker, Dialect, Extension
    from fleximq.rights import EVERYTHING, Action
    from fleximq.security.authentication.checker_interfaces import (
        ICautious, IManyAtOnce, INeedsReactor, IRemembering, IUnguessable, IVouching,
    )
    from fleximq.security.credentials import IApiKey, ICertificate, IPassword, ISignature, IToken
    from fleximq.security.principal import Admitted, Principal, isName
    from fleximq.security.secret_files import read as readSecretFile, text as textOfSecretFile
    from fleximq.services.embedding import EmbeddedBroker, makeService
    from fleximq.status import Status
    from fleximq.values.message import Content, Message
    from fleximq.wire.minimq_line import LineScanner
    from fleximq.wire.payload_conversion import toBytes, toMessagePack, toText

__all__ = [
    "EVERYTHING", "TOPIC_BYTES", "Action", "Admitted", "Answered", "AuthenticationFailed", "BadFraming", "BadRequest",
    "BrokerError", "Checker", "ClientNotFound", "Codec", "Conflict", "ConnectedClient", "ConnectionState", "Content",
    "Delivery", "Dialect", "EmbeddedBroker", "Envelope", "Extension", "Forbidden", "IApiKey", "IBrokerExtension",
    "IBrokerObserver", "ICautious", "ICertificate", "IConversation", "IDialect", "IExtensionContext", "IForm",
    "IManyAtOnce", "INeedsReactor", "IPassword", "IPeer", "IQueueWatcher", "IRecordWatcher", "IRemembering", "IRights",
    "ISignature", "ISource", "ISubscriber", "IToken", "IUnguessable", "IVouching", "InProcessClient", "InvalidRouting",
    "InvalidTopic", "JoinRejected", "Limits", "LineScanner", "ListenerContext", "Message", "MessageSource",
    "NoCapacity", "NoLongerKept", "NotFound", "NotImplementedByBroker", "NotKept", "NotPermitted", "NotRecorded",
    "NotStored", "Notification", "Outbox", "OwnLimits", "Packed", "Principal", "QueueDelivery", "Request",
    "RequestFailed", "SettingError", "Settings", "Status", "StreamFactory", "StreamSession", "Subscription",
    "SubscriptionFailed", "TooLarge", "TooManyRequests", "Unauthorized", "isName", "makeService", "readCount",
    "readFlag", "readSeconds", "readSecretFile", "readSize", "readText", "textOfSecretFile", "toBytes", "toMessagePack",
    "toText",
]
# fmt: on

#: The names of each module; ``name=public`` where the public name is another one.
_HOMES = {
    "broker.envelope": "ConnectedClient Envelope MessageSource QueueDelivery",
    "client.errors": "Answered RequestFailed",
    "client.events": "Delivery Notification Request",
    "client.payloads": "Packed",
    "client.settings": "Codec",
    "config.option_values": "count=readCount flag=readFlag seconds=readSeconds size=readSize text=readText",
    "config.settings": "Settings",
    "dialects.context": "ListenerContext",
    "dialects.outbox": "Outbox",
    "dialects.connection.connection_state": "ConnectionState",
    "dialects.session": "StreamSession",
    "dialects.stream": "StreamFactory",
    "errors": "AuthenticationFailed BadFraming BadRequest BrokerError ClientNotFound Conflict Forbidden "
    "InvalidRouting InvalidTopic JoinRejected NoCapacity NoLongerKept NotFound NotImplementedByBroker NotKept "
    "NotPermitted NotRecorded NotStored SettingError SubscriptionFailed TooLarge TooManyRequests Unauthorized",
    "in_process.client": "InProcessClient",
    "in_process.subscription": "Subscription",
    "interfaces": "IBrokerExtension IBrokerObserver IConversation IDialect IExtensionContext IForm IPeer "
    "IQueueWatcher IRecordWatcher IRights ISource ISubscriber",
    "limits": "Limits OwnLimits TOPIC_BYTES",
    "plugin": "Checker Dialect Extension",
    "rights": "Action EVERYTHING",
    "security.authentication.checker_interfaces": "ICautious IManyAtOnce INeedsReactor IRemembering IUnguessable "
    "IVouching",
    "security.credentials": "IApiKey ICertificate IPassword ISignature IToken",
    "security.principal": "Admitted Principal isName",
    "security.secret_files": "read=readSecretFile text=textOfSecretFile",
    "services.embedding": "EmbeddedBroker makeService",
    "status": "Status",
    "values.message": "Content Message",
    "wire.minimq_line": "LineScanner",
    "wire.payload_conversion": "toBytes toMessagePack toText",
}
_PLACES = {
    named.rpartition("=")[2]: (f"fleximq.{module}", named.partition("=")[0])
    for module, names in _HOMES.items()
    for named in names.split()
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"fleximq.api has no name {name!r}")
    module, own = _PLACES[name]
    value = globals()[name] = getattr(import_module(module), own)
    return value


def __dir__() -> list[str]:
    return __all__
