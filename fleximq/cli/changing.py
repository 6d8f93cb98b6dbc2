"""What the commands have in common that change a file of passwords, keys or tokens."""

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable

from fleximq.errors import SettingError
from fleximq.security import entries, secret_files
from fleximq.security.entries import Entries, Entry
from fleximq.security.names import isRole


def addArguments(parser: ArgumentParser, file: str) -> None:
    """Add those that all of them take."""
    parser.add_argument("file", metavar="FILE", help=file)
    parser.add_argument("name", metavar="NAME", type=_name, help="the principal's name")
    parser.add_argument("--delete", action="store_true", help="take everything of this name out of the file")
    parser.add_argument(
        "--roles", metavar="ROLE,...", type=_roles, default=None, help='the roles that come with it; "" for none'
    )


def change(path: str, fault: Callable[[str], str | None], by: Callable[[Entries], tuple[Entry | str, ...]]) -> None:
    """Read a file, or nothing where there is none yet, change its lines, and write it anew; nobody else meanwhile.

    :raises SettingError: it cannot be read or written, or is not as it must be; then it stays as it is.
    """
    with secret_files.alone(path):
        entries.write(path, by(_read(path, fault)))


def without(found: Entries, path: str, name: str) -> tuple[Entry | str, ...]:
    """Return the lines but for those of a name.

    :raises SettingError: there are none.
    """
    left = tuple(each for each in found.lines if not (isinstance(each, Entry) and each.name == name))
    if len(left) == len(found.lines):
        raise SettingError(f"there is nobody named {name} in {path}")
    return left


def inOneSentence(work: Callable[[Namespace], int]) -> Callable[[Namespace], int]:
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


def lineOfInput(what: str) -> str:
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


def _read(path: str, fault: Callable[[str], str | None]) -> Entries:
    try:
        return entries.read(path, fault)
    except SettingError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return Entries()
        raise


def _name(written: str) -> str:
    wrong = entries.faultOfName(written)
    if wrong is not None:
        raise ArgumentTypeError(f"{written!r} is not {wrong}")
    return written


def _roles(written: str) -> tuple[str, ...]:
    roles = tuple(written.split(",")) if written else ()
    for role in roles:
        if not isRole(role):
            raise ArgumentTypeError(f"{role!r} is no role: letters, digits, _, . and -")
    return roles
