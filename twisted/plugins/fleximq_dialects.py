"""FlexiMQ's own dialects. Twisted reads this file whenever it looks for plug-ins: names only.

:mod:`fleximq.dialects.sniffing` distinguishes them by their first bytes, before those of plug-ins.
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
