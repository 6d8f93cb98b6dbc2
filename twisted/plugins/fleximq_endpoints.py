"""The kinds of endpoints that FlexiMQ adds to Twisted's. Twisted reads this file whenever it looks for plug-ins."""

from fleximq.plugin import ServerEndpoint

fleximqtls = ServerEndpoint("fleximqtls", "fleximq.endpoints.fleximqtls.parseStreamServer")
