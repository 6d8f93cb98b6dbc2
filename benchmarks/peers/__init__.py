"""The brokers that are measured, and what each one's protocol looks like in bytes.

:mod:`benchmarks.peers.peer` says what a peer is. Each module beside it holds one: how its broker is found and
started, how a connection is opened and subscribed, and what its publications and deliveries are, byte for byte.
"""
