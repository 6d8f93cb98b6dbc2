"""Which protocol serves a request, and whether its page, host and credentials are admitted."""
