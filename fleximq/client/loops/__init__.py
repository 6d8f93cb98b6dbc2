"""What clients need of an event loop, and how asyncio and Twisted's reactor do that."""
