"""``fleximq passwd``, ``apikey``, ``token`` and ``keypair``: change the credential files of a broker.

``passwd`` changes the file of ``--auth passwords:FILE``, ``apikey`` that of ``apikeys:FILE``, ``token`` that of
``tokens:FILE`` and ``keypair`` that of ``publickeys:FILE``. The files contain hashes and public keys only.
"""

import getpass
import math
import re
import secrets
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from functools import partial

from fleximq.cli.command import Command
from fleximq.cli.output import addJsonOption, tell
from fleximq.errors import SettingError
from fleximq.security import secret_files
from fleximq.security.checkers import hashed_secrets, passwords
from fleximq.security.principal import isRole
from fleximq.security.secret_files import CredentialEntry, CredentialFile
from fleximq.values import key_pairs


def addArguments(scheme: str, parser: ArgumentParser) -> None:
    """Add the arguments that the commands share."""
    parser.add_argument("file", metavar="FILE", help=f"the file, as for --auth {scheme}:FILE; created if missing")
    parser.add_argument("name", metavar="NAME", type=_name, help="the principal's name")
    parser.add_argument("--delete", action="store_true", help="remove all entries of this name from the file")
    parser.add_argument(
        "--roles", metavar="ROLE,...", type=_roles, default=None, help='the roles of the principal; "" for none'
    )
    parser.add_argument(
        "--keep", metavar="TIME", type=_time, help="the earlier entry of NAME remains valid so long: 3d, 12h or 30m"
    )
    addJsonOption(parser, "the result as a JSON object")


def changeFile(
    path: str, fault: Callable[[str], str | None], by: Callable[[CredentialFile], tuple[CredentialEntry | str, ...]]
) -> None:
    """Replace the lines of a file, which may not exist yet, while other commands wait.

    :raises SettingError: the file cannot be read or written, or is invalid; it is unchanged then.
    """
    with secret_files.alone(path):
        secret_files.writeEntries(path, by(_read(path, fault)))


def deleteEntries(arguments: Namespace, fault: Callable[[str], str | None]) -> int:
    """Remove all entries of a name from a file, report that, and return 0.

    :raises SettingError: there is none, or the file cannot be read or written, or is invalid.
    """
    path, name = arguments.file, arguments.name

    def lines(found: CredentialFile) -> tuple[CredentialEntry | str, ...]:
        left = tuple(each for each in found.lines if not (isinstance(each, CredentialEntry) and each.name == name))
        if len(left) == len(found.lines):
            raise SettingError(f"there is no entry named {name} in {path}")
        return left

    changeFile(path, fault, lines)
    tell(arguments, f"{name} is not in {path} any more", file=path, name=name)
    return 0


def reportingErrors(work: Callable[[Namespace], int]) -> Callable[[Namespace], int]:
    """Wrap a function to print its errors as one sentence."""

    def run(arguments: Namespace) -> int:
        try:
            return work(arguments)
        except SettingError as error:
            words = str(error)
        except (KeyboardInterrupt, EOFError):
            words = "nothing was changed"
        print(f"fleximq: {words}", file=sys.stderr)
        return 1

    return run


def firstInputLine(what: str) -> str:
    """Return the first line of standard input, without its end; raises SettingError if it is empty or not UTF-8."""
    try:
        line = sys.stdin.readline()
    except UnicodeDecodeError:
        raise SettingError(f"the {what} at standard input is not UTF-8") from None
    line = line.removesuffix("\n").removesuffix("\r")
    if not line:
        raise SettingError(f"the {what} at standard input is empty")
    return line


def _read(path: str, fault: Callable[[str], str | None]) -> CredentialFile:
    try:
        return secret_files.readEntries(path, fault)
    except SettingError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return CredentialFile()
        raise


def _name(written: str) -> str:
    wrong = secret_files.faultOfName(written)
    if wrong is not None:
        raise ArgumentTypeError(f"{written!r} is not {wrong}")
    return written


def _time(written: str) -> float:
    """Return a duration in seconds."""
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


#: Shorter secrets, in characters, may be guessable.
MIN_SAFE_CHARACTERS = 22


def setSecret(
    path: str,
    name: str,
    secret: str,
    roles: tuple[str, ...] | None = None,
    beside: bool = False,
    keep: float | None = None,
    fault: Callable[[str], str | None] = hashed_secrets.faultOfHash,
) -> None:
    """Set the secret of a principal, replacing earlier ones.

    :param roles: the new roles; None: as before.
    :param beside: retain the earlier secrets.
    :param keep: retain them for so many seconds.
    :param fault: returns the fault of an entry in the file; that of public keys: ``secret`` is one.
    :raises SettingError: another principal has this secret, or the file cannot be read or written.
    """
    until = None if keep is None else math.ceil(time.time() + keep)
    hash = hashed_secrets.hashOf(secret) if fault is hashed_secrets.faultOfHash else secret

    def lines(found: CredentialFile) -> tuple[CredentialEntry | str, ...]:
        old = [entry for entry in found.all() if entry.name == name]
        others: list[CredentialEntry | str] = []
        for each in found.lines:
            if isinstance(each, str) or each not in old or (beside and until is None):
                others.append(each)
            elif until is not None and not each.hasExpired(time.time()):
                others.append(each._replace(until=min(until, each.until or until)))
        for entry in others:
            if isinstance(entry, CredentialEntry) and entry.hash == hash:
                raise SettingError(f"{entry.name} already has this secret")
        new = CredentialEntry(name, hash, roles if roles is not None else old[-1].roles if old else ())
        return (*others, new)

    changeFile(path, fault, lines)


def _runSecret(what: str, prefix: str, arguments: Namespace) -> int:
    if arguments.delete:
        return deleteEntries(arguments, hashed_secrets.faultOfHash)
    secret = firstInputLine(what) if arguments.stdin else prefix + secrets.token_urlsafe(32)
    if len(secret) > hashed_secrets.LONGEST:
        raise SettingError(f"the {what} has more than {hashed_secrets.LONGEST} characters")
    setSecret(arguments.file, arguments.name, secret, arguments.roles, arguments.beside, arguments.keep)
    if arguments.stdin:
        if len(secret) < MIN_SAFE_CHARACTERS:
            print(f"fleximq: the {what} is short; it is safe only if it cannot be guessed", file=sys.stderr)
    return _set(arguments, what, None if arguments.stdin else secret)


def _runKeyPair(arguments: Namespace) -> int:
    fault = hashed_secrets.faultOfPublicKey
    if arguments.delete:
        return deleteEntries(arguments, fault)
    private = None if arguments.stdin else key_pairs.newPrivateKey()
    public = firstInputLine("public key") if private is None else key_pairs.publicKeyOf(private)
    if fault(public) is not None:
        raise SettingError("the public key must be fmqp_ and 43 further characters")
    setSecret(arguments.file, arguments.name, public, arguments.roles, arguments.beside, arguments.keep, fault)
    return _set(arguments, "public key", private)


def _set(arguments: Namespace, what: str, secret: str | None) -> int:
    """Print a new secret, or that one from standard input is set; returns 0."""
    fields = {"file": arguments.file, "name": arguments.name} | ({} if secret is None else {"secret": secret})
    tell(arguments, secret or f"the {what} of {arguments.name} is set in {arguments.file}", **fields)
    return 0


def _prepareSecret(what: str, scheme: str, parser: ArgumentParser) -> None:
    addArguments(scheme, parser)
    parser.add_argument(
        "--beside", action="store_true", help="retain the earlier entries of NAME, so that both are valid"
    )
    parser.add_argument("--stdin", action="store_true", help=f"read the {what} from standard input")


#: The commands.
APIKEY, TOKEN = (
    Command(
        name, f"Make or delete {words}, which is printed once; the file contains only its hash.",
        partial(_prepareSecret, what, scheme), reportingErrors(partial(_runSecret, what, prefix)),
    )
    for name, what, words, scheme, prefix in (
        ("apikey", "API key", "an API key", "apikeys", "fmqk_"),
        ("token", "token", "a token", "tokens", "fmqt_"),
    )
)  # fmt: skip


KEYPAIR = Command(
    "keypair", "Make or delete a key pair; the private key is printed once, the file contains only the public one.",
    partial(_prepareSecret, "public key", "publickeys"), reportingErrors(_runKeyPair),
)  # fmt: skip


def setPassword(
    path: str, name: str, password: str, roles: tuple[str, ...] | None = None, keep: float | None = None
) -> None:
    """Set the password of a principal.

    :param roles: the new roles; None: as before.
    :param keep: the earlier password remains valid for so many seconds, any before it ends.
    :raises SettingError: the file cannot be read or written, or is invalid.
    """
    hash = passwords.hashOf(password)

    def lines(found: CredentialFile) -> tuple[CredentialEntry | str, ...]:
        old = next((entry for entry in found.all() if entry.name == name and entry.until is None), None)
        new = CredentialEntry(name, hash, (() if old is None else old.roles) if roles is None else roles)
        kept = () if old is None or keep is None else (old._replace(until=math.ceil(time.time() + keep)),)
        lines: list[CredentialEntry | str] = []
        for each in found.lines:
            if each is old:
                lines += [new, *kept]
            elif isinstance(each, str) or each.name != name:
                lines.append(each)
        return (*lines, *(() if old is not None else (new,)))

    changeFile(path, passwords.faultOfHash, lines)


def _runPasswd(arguments: Namespace) -> int:
    if arguments.delete:
        return deleteEntries(arguments, passwords.faultOfHash)
    setPassword(arguments.file, arguments.name, _password(arguments.name), arguments.roles, arguments.keep)
    return _set(arguments, "password", None)


def _password(name: str) -> str:
    """Return the password, prompted for twice at a terminal, or read from the first line of standard input.

    :raises SettingError: it is empty or too long, or the two entries differ.
    """
    if sys.stdin.isatty():
        password = getpass.getpass(f"Password for {name}: ")
        if password != getpass.getpass("The same again: "):
            raise SettingError("the two passwords differ; nothing was changed")
        if not password:
            raise SettingError("the password is empty; nothing was changed")
    else:
        password = firstInputLine("password")
    if len(password.encode(errors="surrogateescape")) > passwords.LONGEST:
        raise SettingError(f"the password has more than {passwords.LONGEST} bytes")
    return password


#: The command.
PASSWD = Command(
    "passwd", "Make, change or delete a password; it is prompted for, or read from standard input.",
    partial(addArguments, "passwords"),
    reportingErrors(_runPasswd),
)  # fmt: skip
