"""Clients on an event loop, and adapters for asyncio and Twisted's reactor."""
