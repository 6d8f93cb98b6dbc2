"""A Protocol and a Factory for each wire format: the only room that knows both wire and broker."""
