"""A protocol and a factory for each wire format; the only package that knows both wire and broker."""
