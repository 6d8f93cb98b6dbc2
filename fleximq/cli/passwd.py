"""``fleximq passwd FILE NAME``: makes, changes and deletes passwords in a file for ``--auth passwords:FILE``."""

import getpass
import sys
from argparse import ArgumentParser, Namespace

from fleximq.cli.command import Command
from fleximq.cli.credential_files import addArguments, change, inOneSentence, lineOfInput, without
from fleximq.errors import SettingError
from fleximq.security.checkers.passwords import LONGEST, faultOfHash, hashOf
from fleximq.security.secret_files import CredentialEntry, CredentialFile


def setPassword(path: str, name: str, password: str, roles: tuple[str, ...] | None = None) -> None:
    """Give somebody a password, in the place of the old one if there is one.

    :param roles: the roles from now on; None: those of before.
    :raises SettingError: the file cannot be read or written, or is not as it must be.
    """
    hash = hashOf(password)

    def lines(found: CredentialFile) -> tuple[CredentialEntry | str, ...]:
        old = next((entry for entry in found.all() if entry.name == name), CredentialEntry(name, hash))
        new = CredentialEntry(name, hash, old.roles if roles is None else roles)
        return (*(new if each is old else each for each in found.lines), *(() if old in found.lines else (new,)))

    change(path, faultOfHash, lines)


def deletePassword(path: str, name: str) -> None:
    """Take somebody out of a file.

    :raises SettingError: there is nobody of that name, or the file cannot be read or written.
    """
    change(path, faultOfHash, lambda found: without(found, path, name))


def _run(arguments: Namespace) -> int:
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
        password = lineOfInput("password")
    if len(password.encode(errors="surrogateescape")) > LONGEST:
        raise SettingError(f"the password has more than {LONGEST} bytes")
    return password


def _prepare(parser: ArgumentParser) -> None:
    addArguments(parser, "the file, as for --auth passwords:FILE; made if it is not there")


#: The command.
PASSWD = Command(
    "passwd", "Make, change or delete a password; it is asked for, or read from standard input.", _prepare,
    inOneSentence(_run),
)  # fmt: skip
