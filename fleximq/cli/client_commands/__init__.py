"""Commands that talk to a running broker: as its clients, in the FlexiMQ dialect."""
