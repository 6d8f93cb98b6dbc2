"""``fleximq broker``: runs a broker in the foreground, as ``twistd -n --pidfile= fleximq`` with the same options."""

import sys
from argparse import REMAINDER, ArgumentParser, Namespace

from fleximq.cli.command import argument, command


def _withoutOptions(parser: ArgumentParser) -> None:
    parser.prefix_chars = "\0"  # no word is an option of this parser


@command(
    "broker", "Run a broker in the foreground, with the options of twistd fleximq.",
    _withoutOptions, argument("options", "OPTION", "as for twistd fleximq; --help lists them", nargs=REMAINDER),
)  # fmt: skip
def broker(arguments: Namespace) -> int:
    """Run the broker; with ``--help``, print the help."""
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
