"""``fleximq broker``: runs a broker in the foreground, as ``twistd -n --pidfile= fleximq`` with the same options."""

import sys
from argparse import REMAINDER, ArgumentParser, Namespace

from fleximq.cli.command import Command


def _prepare(parser: ArgumentParser) -> None:
    parser.prefix_chars = "\0"  # no word is an option of this parser
    parser.add_argument("options", metavar="OPTION", nargs=REMAINDER, help="as for twistd fleximq; --help lists them")


def _run(arguments: Namespace) -> int:
    if "--help" in arguments.options:
        from fleximq.startup.options import Options

        options = Options()
        options.synopsis = f"Usage: fleximq broker {options.synopsis}"
        print(options)
        return 0
    from twisted.scripts import twistd  # loads slowly

    sys.argv = ["twistd", "--nodaemon", "--pidfile=", "fleximq", *arguments.options]
    twistd.run()
    return 0


#: The command.
BROKER = Command("broker", "Run a broker in the foreground, with the options of twistd fleximq.", _prepare, _run)
