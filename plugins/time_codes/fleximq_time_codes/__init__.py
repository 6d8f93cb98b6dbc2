"""A checker for FlexiMQ: the codes of an authenticator app (RFC 6238) in place of passwords."""
