"""The FlexiMQ protocol and the state of a client, without I/O."""
