"""Commands that connect to a running broker as clients in the FlexiMQ dialect."""
