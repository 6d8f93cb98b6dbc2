"""The kinds of work that are measured.

A kind is a frozen value. Its ``on(peer, effort)`` is a context manager: entering makes connections, checks with one
message that deliveries look as they should, and finds out how much work fills the time; what it returns runs that
work once and returns figures by name. Every run does the same work again, so that brokers can take turns.
"""
