"""The credential checkers of FlexiMQ. Twisted reads this file when it searches plug-ins, so it holds names only."""

from fleximq.plugin import Checker

_TOKEN = "fleximq.security.credentials.IToken"
_PASSWORD = "fleximq.security.credentials.IPassword"
_API_KEY = "fleximq.security.credentials.IApiKey"
_SIGNATURE = "fleximq.security.credentials.ISignature"
_CERTIFICATE = "fleximq.security.credentials.ICertificate"

tokens = Checker(
    "tokens",
    "FILE",
    "Tokens, of which FILE holds the hashes; fleximq token makes them.",
    [_TOKEN],
    "fleximq.security.checkers.hashed_secrets.tokens",
)

jsonWebTokens = Checker(
    "jwt",
    "secret=FILE | key=FILE | jwks=FILE or URL | issuer=URL, and audience=, require=, revoked=, roles=, ...",
    "JSON Web Tokens: HS256 with a secret of random bytes, RS256 or ES256 with a public key, a certificate or a JWKS.",
    [_TOKEN],
    "fleximq.security.checkers.json_web_tokens.tokens",
)

passwords = Checker(
    "passwords",
    "FILE",
    "Names and passwords, of which FILE holds the Argon2 hashes; fleximq passwd makes them.",
    [_PASSWORD],
    "fleximq.security.checkers.passwords.passwords",
)

apiKeys = Checker(
    "apikeys",
    "FILE",
    "API keys, of which FILE holds the hashes; fleximq apikey makes them.",
    [_API_KEY],
    "fleximq.security.checkers.hashed_secrets.apiKeys",
)

publicKeys = Checker(
    "publickeys",
    "FILE",
    "Signatures of the broker's challenge, by the public keys in FILE; fleximq keypair makes key pairs.",
    [_SIGNATURE],
    "fleximq.security.checkers.hashed_secrets.publicKeys",
)

certificates = Checker(
    "certificate",
    "[name=cn|dns|email|uri]",
    "TLS client certificates that the listener has verified; name says where in them the client's name stands.",
    [_CERTIFICATE],
    "fleximq.security.checkers.certificates.certificates",
)

webService = Checker(
    "http",
    "URL[,timeout=SECONDS][,cache=SECONDS][,bearer=FILE][,ca=FILE]",
    "A web service, which is asked by POST about tokens, passwords and API keys.",
    [_TOKEN, _PASSWORD, _API_KEY],
    "fleximq.security.checkers.web_options.webService",
)
