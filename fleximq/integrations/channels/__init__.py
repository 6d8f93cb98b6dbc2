"""The channel layer of Django Channels: ``"BACKEND": "fleximq.integrations.channels.ChannelLayer"``.

A group is a topic, to which each process with members is subscribed. A channel of one process is its buffer, which
other processes fill by requests, so that they learn when it is full. Any other channel is a queue of the broker. See
docs/guides/channels.rst for the differences from other layers.
"""

try:
    import channels  # noqa: F401
except ImportError as error:
    raise ImportError('the layer of Django Channels needs channels: pip install "fleximq[channels]"') from error

from fleximq.integrations.channels.layer import ChannelLayer

__all__ = ["ChannelLayer"]
