"""Clients for Python programs: FlexiMQ, BlipMQ and MiniMQ, each in a blocking form, on asyncio and on Twisted."""
