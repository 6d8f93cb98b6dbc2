"""The client library: FlexiMQ for programs in Python. It knows the wire, and never the broker."""
