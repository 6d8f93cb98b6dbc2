"""The credential checkers of FlexiMQ. Twisted reads this file when it searches plug-ins, so it holds names only."""

from fleximq.plugin import Checker

_CHECKERS, _CREDENTIALS = "fleximq.security.checkers.", "fleximq.security.credentials."
_TOKEN, _PASSWORD, _API_KEY = _CREDENTIALS + "IToken", _CREDENTIALS + "IPassword", _CREDENTIALS + "IApiKey"

tokens = Checker(
    "tokens", "FILE", "Tokens, of which FILE holds the hashes; fleximq token makes them.",
    [_TOKEN], _CHECKERS + "hashed_secrets.tokens",
)  # fmt: skip
jsonWebTokens = Checker(
    "jwt", "secret=FILE | key=FILE | jwks=FILE or URL | issuer=URL, and audience=, require=, revoked=, roles=, ...",
    "JSON Web Tokens: HS256 with a secret of random bytes, RS256 or ES256 with a public key, a certificate or a JWKS.",
    [_TOKEN], _CHECKERS + "json_web_tokens.tokens",
)  # fmt: skip
passwords = Checker(
    "passwords", "FILE", "Names and passwords, of which FILE holds the Argon2 hashes; fleximq passwd makes them.",
    [_PASSWORD], _CHECKERS + "passwords.passwords",
)  # fmt: skip
apiKeys = Checker(
    "apikeys", "FILE", "API keys, of which FILE holds the hashes; fleximq apikey makes them.",
    [_API_KEY], _CHECKERS + "hashed_secrets.apiKeys",
)  # fmt: skip
publicKeys = Checker(
    "publickeys", "FILE",
    "Signatures of the broker's challenge, by the public keys in FILE; fleximq keypair makes key pairs.",
    [_CREDENTIALS + "ISignature"], _CHECKERS + "hashed_secrets.publicKeys",
)  # fmt: skip
certificates = Checker(
    "certificate", "[name=cn|dns|email|uri]",
    "TLS client certificates that the listener has verified; name says where in them the client's name stands.",
    [_CREDENTIALS + "ICertificate"], _CHECKERS + "certificates.certificates",
)  # fmt: skip
webService = Checker(
    "http", "URL[,timeout=SECONDS][,cache=SECONDS][,bearer=FILE][,ca=FILE]",
    "A web service, which is asked by POST about tokens, passwords and API keys.",
    [_TOKEN, _PASSWORD, _API_KEY], _CHECKERS + "web_options.webService",
)  # fmt: skip
