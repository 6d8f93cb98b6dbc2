"""The dialects of FlexiMQ. Twisted reads this file when it searches plug-ins, so it holds names only.

:mod:`fleximq.dialects.connection.protocol_detection` distinguishes them by their first bytes, before those of plug-ins.
"""

from fleximq.plugin import Dialect

fleximq = Dialect(
    "fleximq",
    stream="fleximq.dialects.fleximq.FlexiFactory",
    webSocket="fleximq.dialects.fleximq_ws.FlexiWebSocketFactory",
    title="FlexiMQ",
    purpose="publish and subscribe, requests, notifications",
    reach="{stream} or {web}/ws",
)
blipmq = Dialect(
    "blipmq",
    stream="fleximq.dialects.blipmq.BlipFactory",
    title="BlipMQ",
    purpose="subscriptions that are polled and acknowledged",
)
minimq = Dialect(
    "minimq",
    stream="fleximq.dialects.minimq.MiniFactory",
    title="MiniMQ",
    purpose="work queues, one line a command",
    reach="{stream}, e.g. with netcat: PING:",
)
identity = Dialect(
    "identity",
    webSocket="fleximq.dialects.identity_ws.IdentityFactory",
    title="Identity",
    purpose="channels for web pages",
    reach="{web}/",
)
http = Dialect(
    "http",
    stream="fleximq.dialects.http.protocol.HttpFactory",
    title="HTTP",
    purpose="publish without any library",
    reach="curl -d hello {http}/topics/demo",
)
