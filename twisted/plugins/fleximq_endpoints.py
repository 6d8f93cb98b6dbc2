"""FlexiMQ's own kinds of endpoints. Twisted reads this file whenever it looks for plug-ins."""

from fleximq.plugin import ServerEndpoint

fleximqtls = ServerEndpoint("fleximqtls", "fleximq.endpoints.fleximqtls.parseStreamServer")
