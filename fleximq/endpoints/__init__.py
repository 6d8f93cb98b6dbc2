"""From endpoint strings, the values of ``--listen``, to listening ports."""
