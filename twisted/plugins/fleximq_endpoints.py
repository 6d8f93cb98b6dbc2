"""Endpoint types that FlexiMQ adds to those of Twisted, which reads this file when it searches plug-ins."""

from fleximq.plugin import ServerEndpoint

fleximqtls = ServerEndpoint("fleximqtls", "fleximq.endpoints.fleximqtls.parseStreamServer")
