"""The sources of ``sql`` and ``describe``, and their output."""
