"""``fleximq passwd``, ``apikey``, ``token`` and ``keypair`` change credential files: of hashes and public keys only."""

import getpass
import math
import re
import secrets
import sys
import time
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from fleximq.cli.command import Argument, Command, argument, switch
from fleximq.cli.output import jsonOption, tell
from fleximq.errors import SettingError
from fleximq.security import secret_files
from fleximq.security.checkers import hashed_secrets, passwords
from fleximq.security.principal import isRole
from fleximq.security.secret_files import CredentialEntry
from fleximq.values import key_pairs

Fault = Callable[[str], str | None]  #: Returns the fault of an entry's secret, or None.
Work = Callable[[Namespace], tuple[str, str | None]]  #: Sets a credential; returns its kind, and a secret to print.


def _command(name: str, words: str, scheme: str, fault: Fault, work: Work, *more: Argument) -> Command:
    arguments = (
        argument("file", "FILE", f"the file, as for --auth {scheme}:FILE; created if missing"),
        argument("name", "NAME", "the principal's name", type=_name),
        switch("--delete", "remove all entries of this name from the file"),
        argument("--roles", "ROLE,...", 'the roles of the principal; "" for none', type=_roles),
        argument("--keep", "TIME", "the earlier entry of NAME remains valid so long: 3d, 12h or 30m", type=_time),
        jsonOption("the result as a JSON object"),
        *more,
    )
    return Command(name, words, arguments, partial(_run, fault, work))


def _run(fault: Fault, work: Work, arguments: Namespace) -> int:
    """Delete or set a credential, and report that; errors are one sentence."""
    path, name = arguments.file, arguments.name
    fields = {"file": path, "name": name}
    try:
        if arguments.delete:
            with _changing(path, fault) as lines:
                left = [each for each in lines if isinstance(each, str) or each.name != name]
                if len(left) == len(lines):
                    raise SettingError(f"there is no entry named {name} in {path}")
                lines[:] = left
            tell(arguments, f"{name} is not in {path} any more", **fields)
        else:
            what, secret = work(arguments)
            fields |= {} if secret is None else {"secret": secret}
            tell(arguments, secret or f"the {what} of {name} is set in {path}", **fields)
        return 0
    except SettingError as error:
        words = str(error)
    except (KeyboardInterrupt, EOFError):
        words = "nothing was changed"
    print(f"fleximq: {words}", file=sys.stderr)
    return 1


@contextmanager
def _changing(path: str, fault: Fault) -> Iterator[list[CredentialEntry | str]]:
    """Yield the lines of a file, which may not exist yet, and write them afterwards; other commands wait.

    :raises SettingError: the file cannot be read or written, or is invalid; it is unchanged then.
    """
    with secret_files.alone(path):
        try:
            lines = list(secret_files.readEntries(path, fault).lines)
        except SettingError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            lines = []
        yield lines
        secret_files.writeEntries(path, tuple(lines))


def _firstInputLine(what: str) -> str:
    """Return the first line of standard input, without its end; raises SettingError if it is empty or not UTF-8."""
    try:
        line = sys.stdin.readline()
    except UnicodeDecodeError:
        raise SettingError(f"the {what} at standard input is not UTF-8") from None
    line = line.removesuffix("\n").removesuffix("\r")
    if not line:
        raise SettingError(f"the {what} at standard input is empty")
    return line


def _name(written: str) -> str:
    wrong = secret_files.faultOfName(written)
    if wrong is not None:
        raise ArgumentTypeError(f"{written!r} is not {wrong}")
    return written


def _time(written: str) -> float:
    found = re.fullmatch(r"(\d{1,5})([mhd])", written, re.ASCII)
    if found is None:
        raise ArgumentTypeError(f"{written!r} is not a time like 3d, 12h or 30m")
    return int(found[1]) * {"m": 60.0, "h": 3600.0, "d": 86400.0}[found[2]]


def _roles(written: str) -> tuple[str, ...]:
    roles = tuple(written.split(",")) if written else ()
    for role in roles:
        if not isRole(role):
            raise ArgumentTypeError(f"{role!r} is not a role: letters, digits, _, . and -")
    return roles


MIN_SAFE_CHARACTERS = 22  #: Shorter secrets, in characters, may be guessable.


def setSecret(
    path: str,
    name: str,
    secret: str,
    roles: tuple[str, ...] | None = None,
    beside: bool = False,
    keep: float | None = None,
    fault: Fault = hashed_secrets.faultOfHash,
) -> None:
    """Set the secret of a principal; ``beside`` retains earlier ones, ``keep`` does for so many seconds.

    :param roles: the new roles; None: as before.
    :param fault: that of public keys: ``secret`` is one.
    :raises SettingError: another principal has this secret, or the file cannot be read or written.
    """
    until = None if keep is None else math.ceil(time.time() + keep)
    hashed = hashed_secrets.hashOf(secret) if fault is hashed_secrets.faultOfHash else secret
    with _changing(path, fault) as lines:
        old = [entry for entry in lines if isinstance(entry, CredentialEntry) and entry.name == name]
        others: list[CredentialEntry | str] = []
        for each in lines:
            if isinstance(each, str) or each not in old or (beside and until is None):
                others.append(each)
            elif until is not None and not each.hasExpired(time.time()):
                others.append(each._replace(until=min(until, each.until or until)))
        for entry in others:
            if isinstance(entry, CredentialEntry) and entry.hash == hashed:
                raise SettingError(f"{entry.name} already has this secret")
        new = CredentialEntry(name, hashed, roles if roles is not None else old[-1].roles if old else ())
        lines[:] = [*others, new]


def _setSecret(what: str, prefix: str, arguments: Namespace) -> tuple[str, str | None]:
    secret = _firstInputLine(what) if arguments.stdin else prefix + secrets.token_urlsafe(32)
    if len(secret) > hashed_secrets.LONGEST:
        raise SettingError(f"the {what} has more than {hashed_secrets.LONGEST} characters")
    setSecret(arguments.file, arguments.name, secret, arguments.roles, arguments.beside, arguments.keep)
    if arguments.stdin and len(secret) < MIN_SAFE_CHARACTERS:
        print(f"fleximq: the {what} is short; it is safe only if it cannot be guessed", file=sys.stderr)
    return what, None if arguments.stdin else secret


def _setPublicKey(arguments: Namespace) -> tuple[str, str | None]:
    fault = hashed_secrets.faultOfPublicKey
    private = None if arguments.stdin else key_pairs.newPrivateKey()
    public = _firstInputLine("public key") if private is None else key_pairs.publicKeyOf(private)
    if fault(public) is not None:
        raise SettingError("the public key must be fmqp_ and 43 further characters")
    setSecret(arguments.file, arguments.name, public, arguments.roles, arguments.beside, arguments.keep, fault)
    return "public key", private


def _setPassword(arguments: Namespace) -> tuple[str, str | None]:
    """Set a password; with ``--keep``, the earlier one remains valid for a while, and any before it ends."""
    hashed = passwords.hashOf(_password(arguments.name))
    name, roles, keep = arguments.name, arguments.roles, arguments.keep
    with _changing(arguments.file, passwords.faultOfHash) as lines:
        entries = (each for each in lines if isinstance(each, CredentialEntry))
        old = next((entry for entry in entries if entry.name == name and entry.until is None), None)
        new = CredentialEntry(name, hashed, (() if old is None else old.roles) if roles is None else roles)
        kept = () if old is None or keep is None else (old._replace(until=math.ceil(time.time() + keep)),)
        changed: list[CredentialEntry | str] = []
        for each in lines:
            if each is old:
                changed += [new, *kept]
            elif isinstance(each, str) or each.name != name:
                changed.append(each)
        lines[:] = changed if old is not None else [*changed, new]
    return "password", None


def _password(name: str) -> str:
    """Return the password, prompted for twice at a terminal; raises SettingError if it is invalid."""
    if sys.stdin.isatty():
        password = getpass.getpass(f"Password for {name}: ")
        if password != getpass.getpass("The same again: "):
            raise SettingError("the two passwords differ; nothing was changed")
        if not password:
            raise SettingError("the password is empty; nothing was changed")
    else:
        password = _firstInputLine("password")
    if len(password.encode(errors="surrogateescape")) > passwords.LONGEST:
        raise SettingError(f"the password has more than {passwords.LONGEST} bytes")
    return password


API_KEY_PREFIX = "fmqk_"  #: The beginning of each API key.
_BESIDE = switch("--beside", "retain the earlier entries of NAME, so that both are valid")

PASSWD = _command(
    "passwd", "Make, change or delete a password; it is prompted for, or read from standard input.",
    "passwords", passwords.faultOfHash, _setPassword,
)  # fmt: skip
APIKEY, TOKEN = (
    _command(
        name, f"Make or delete {words}, which is printed once; the file contains only its hash.",
        scheme, hashed_secrets.faultOfHash, partial(_setSecret, what, prefix),
        _BESIDE, switch("--stdin", f"read the {what} from standard input"),
    )
    for name, what, words, scheme, prefix in (
        ("apikey", "API key", "an API key", "apikeys", API_KEY_PREFIX),
        ("token", "token", "a token", "tokens", "fmqt_"),
    )
)  # fmt: skip
KEYPAIR = _command(
    "keypair", "Make or delete a key pair; the private key is printed once, the file contains only the public one.",
    "publickeys", hashed_secrets.faultOfPublicKey, _setPublicKey,
    _BESIDE, switch("--stdin", "read the public key from standard input"),
)  # fmt: skip
