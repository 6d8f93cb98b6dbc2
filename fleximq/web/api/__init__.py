"""The JSON API: the state of the broker, and acts of its operators."""
