"""``fleximq apikey`` and ``fleximq token``: the secrets of ``--auth apikeys:FILE`` and ``tokens:FILE``."""

import secrets
import sys
from argparse import ArgumentParser, Namespace
from functools import partial

from fleximq.cli.changing import addArguments, change, inOneSentence, lineOfInput, without
from fleximq.cli.command import Command
from fleximq.errors import SettingError
from fleximq.security.checkers.hashed_secrets import LONGEST, faultOfHash, hashOf
from fleximq.security.entries import Entries, Entry

#: A secret that is shorter can perhaps be guessed, in characters.
SHORT = 22


def setSecret(path: str, name: str, secret: str, roles: tuple[str, ...] | None = None, beside: bool = False) -> None:
    """Give somebody a secret, in the place of all old ones of that name.

    :param roles: the roles from now on; None: those of before.
    :param beside: the old ones stay.
    :raises SettingError: somebody has this secret already, or the file cannot be read or written.
    """
    hash = hashOf(secret)

    def lines(found: Entries) -> tuple[Entry | str, ...]:
        old = [entry for entry in found.all() if entry.name == name]
        others = found.lines if beside else tuple(each for each in found.lines if each not in old)
        for entry in others:
            if isinstance(entry, Entry) and entry.hash == hash:
                raise SettingError(f"{entry.name} has just this secret already")
        return (*others, Entry(name, hash, roles if roles is not None else old[-1].roles if old else ()))

    change(path, faultOfHash, lines)


def deleteSecrets(path: str, name: str) -> None:
    """Take somebody out of a file.

    :raises SettingError: there is nobody of that name, or the file cannot be read or written.
    """
    change(path, faultOfHash, lambda found: without(found, path, name))


def _run(what: str, prefix: str, arguments: Namespace) -> int:
    if arguments.delete:
        deleteSecrets(arguments.file, arguments.name)
        print(f"{arguments.name} is not in {arguments.file} any more")
        return 0
    secret = lineOfInput(what) if arguments.stdin else prefix + secrets.token_urlsafe(32)
    if len(secret) > LONGEST:
        raise SettingError(f"the {what} has more than {LONGEST} characters")
    setSecret(arguments.file, arguments.name, secret, arguments.roles, arguments.beside)
    if arguments.stdin:
        if len(secret) < SHORT:
            print(f"fleximq: the {what} is short; it is safe only if nobody can guess it", file=sys.stderr)
        print(f"the {what} of {arguments.name} is set in {arguments.file}")
    else:
        print(secret)
    return 0


def _prepare(what: str, scheme: str, parser: ArgumentParser) -> None:
    addArguments(parser, f"the file, as for --auth {scheme}:FILE; made if it is not there")
    parser.add_argument("--beside", action="store_true", help="keep what NAME has already, so that both are good")
    parser.add_argument("--stdin", action="store_true", help=f"take the {what} from standard input")


#: The commands.
APIKEY, TOKEN = (
    Command(
        name, f"Make or delete {words}, which is printed once: the file has only its hash.",
        partial(_prepare, what, scheme), inOneSentence(partial(_run, what, prefix)),
    )
    for name, what, words, scheme, prefix in (
        ("apikey", "API key", "an API key", "apikeys", "fmqk_"),
        ("token", "token", "a token", "tokens", "fmqt_"),
    )
)  # fmt: skip
