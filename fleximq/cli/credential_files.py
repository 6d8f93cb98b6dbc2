"""``fleximq apikey`` and ``fleximq token``: the secrets of ``--auth apikeys:FILE`` and ``tokens:FILE``.

What the commands have in common that change a file of passwords, keys or tokens.

``fleximq passwd FILE NAME``: makes, changes and deletes passwords in a file for ``--auth passwords:FILE``.
"""

import getpass
import secrets
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from functools import partial

from fleximq.cli.command import Command
from fleximq.errors import SettingError
from fleximq.security import secret_files
from fleximq.security.checkers import hashed_secrets, passwords
from fleximq.security.principal import isRole
from fleximq.security.secret_files import CredentialEntry, CredentialFile


def addArguments(parser: ArgumentParser, file: str) -> None:
    """Add those that all of them take."""
    parser.add_argument("file", metavar="FILE", help=file)
    parser.add_argument("name", metavar="NAME", type=_name, help="the principal's name")
    parser.add_argument("--delete", action="store_true", help="take everything of this name out of the file")
    parser.add_argument(
        "--roles", metavar="ROLE,...", type=_roles, default=None, help='the roles that come with it; "" for none'
    )


def changeFile(
    path: str, fault: Callable[[str], str | None], by: Callable[[CredentialFile], tuple[CredentialEntry | str, ...]]
) -> None:
    """Read a file, or nothing where there is none yet, change its lines, and write it anew; nobody else meanwhile.

    :raises SettingError: it cannot be read or written, or is not as it must be; then it stays as it is.
    """
    with secret_files.alone(path):
        secret_files.writeEntries(path, by(_read(path, fault)))


def linesWithout(found: CredentialFile, path: str, name: str) -> tuple[CredentialEntry | str, ...]:
    """Return the lines but for those of a name.

    :raises SettingError: there are none.
    """
    left = tuple(each for each in found.lines if not (isinstance(each, CredentialEntry) and each.name == name))
    if len(left) == len(found.lines):
        raise SettingError(f"there is nobody named {name} in {path}")
    return left


def reportingErrors(work: Callable[[Namespace], int]) -> Callable[[Namespace], int]:
    """Return the same work; what goes wrong is said in one sentence."""

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
    """Return the first line of standard input, without its end.

    :raises SettingError: it is empty or not UTF-8.
    """
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


def _roles(written: str) -> tuple[str, ...]:
    roles = tuple(written.split(",")) if written else ()
    for role in roles:
        if not isRole(role):
            raise ArgumentTypeError(f"{role!r} is no role: letters, digits, _, . and -")
    return roles


#: A secret that is shorter can perhaps be guessed, in characters.
MIN_SAFE_CHARACTERS = 22


def setSecret(path: str, name: str, secret: str, roles: tuple[str, ...] | None = None, beside: bool = False) -> None:
    """Give somebody a secret, in the place of all old ones of that name.

    :param roles: the roles from now on; None: those of before.
    :param beside: the old ones stay.
    :raises SettingError: somebody has this secret already, or the file cannot be read or written.
    """
    hash = hashed_secrets.hashOf(secret)

    def lines(found: CredentialFile) -> tuple[CredentialEntry | str, ...]:
        old = [entry for entry in found.all() if entry.name == name]
        others = found.lines if beside else tuple(each for each in found.lines if each not in old)
        for entry in others:
            if isinstance(entry, CredentialEntry) and entry.hash == hash:
                raise SettingError(f"{entry.name} has just this secret already")
        return (*others, CredentialEntry(name, hash, roles if roles is not None else old[-1].roles if old else ()))

    changeFile(path, hashed_secrets.faultOfHash, lines)


def deleteSecrets(path: str, name: str) -> None:
    """Take somebody out of a file.

    :raises SettingError: there is nobody of that name, or the file cannot be read or written.
    """
    changeFile(path, hashed_secrets.faultOfHash, lambda found: linesWithout(found, path, name))


def _runSecret(what: str, prefix: str, arguments: Namespace) -> int:
    if arguments.delete:
        deleteSecrets(arguments.file, arguments.name)
        print(f"{arguments.name} is not in {arguments.file} any more")
        return 0
    secret = firstInputLine(what) if arguments.stdin else prefix + secrets.token_urlsafe(32)
    if len(secret) > hashed_secrets.LONGEST:
        raise SettingError(f"the {what} has more than {hashed_secrets.LONGEST} characters")
    setSecret(arguments.file, arguments.name, secret, arguments.roles, arguments.beside)
    if arguments.stdin:
        if len(secret) < MIN_SAFE_CHARACTERS:
            print(f"fleximq: the {what} is short; it is safe only if nobody can guess it", file=sys.stderr)
        print(f"the {what} of {arguments.name} is set in {arguments.file}")
    else:
        print(secret)
    return 0


def _prepareSecret(what: str, scheme: str, parser: ArgumentParser) -> None:
    addArguments(parser, f"the file, as for --auth {scheme}:FILE; made if it is not there")
    parser.add_argument("--beside", action="store_true", help="keep what NAME has already, so that both are good")
    parser.add_argument("--stdin", action="store_true", help=f"take the {what} from standard input")


#: The commands.
APIKEY, TOKEN = (
    Command(
        name, f"Make or delete {words}, which is printed once: the file has only its hash.",
        partial(_prepareSecret, what, scheme), reportingErrors(partial(_runSecret, what, prefix)),
    )
    for name, what, words, scheme, prefix in (
        ("apikey", "API key", "an API key", "apikeys", "fmqk_"),
        ("token", "token", "a token", "tokens", "fmqt_"),
    )
)  # fmt: skip


def setPassword(path: str, name: str, password: str, roles: tuple[str, ...] | None = None) -> None:
    """Give somebody a password, in the place of the old one if there is one.

    :param roles: the roles from now on; None: those of before.
    :raises SettingError: the file cannot be read or written, or is not as it must be.
    """
    hash = passwords.hashOf(password)

    def lines(found: CredentialFile) -> tuple[CredentialEntry | str, ...]:
        old = next((entry for entry in found.all() if entry.name == name), CredentialEntry(name, hash))
        new = CredentialEntry(name, hash, old.roles if roles is None else roles)
        return (*(new if each is old else each for each in found.lines), *(() if old in found.lines else (new,)))

    changeFile(path, passwords.faultOfHash, lines)


def deletePassword(path: str, name: str) -> None:
    """Take somebody out of a file.

    :raises SettingError: there is nobody of that name, or the file cannot be read or written.
    """
    changeFile(path, passwords.faultOfHash, lambda found: linesWithout(found, path, name))


def _runPasswd(arguments: Namespace) -> int:
    if arguments.delete:
        deletePassword(arguments.file, arguments.name)
        print(f"{arguments.name} is not in {arguments.file} any more")
    else:
        setPassword(arguments.file, arguments.name, _password(arguments.name), arguments.roles)
        print(f"the password of {arguments.name} is set in {arguments.file}")
    return 0


def _password(name: str) -> str:
    """Return the password: asked for twice at a terminal, else the first line of standard input.

    :raises SettingError: there is none, it is too long, or it was not the same twice.
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


def _preparePasswd(parser: ArgumentParser) -> None:
    addArguments(parser, "the file, as for --auth passwords:FILE; made if it is not there")


#: The command.
PASSWD = Command(
    "passwd", "Make, change or delete a password; it is asked for, or read from standard input.", _preparePasswd,
    reportingErrors(_runPasswd),
)  # fmt: skip
