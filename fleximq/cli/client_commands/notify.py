"""``fleximq notify CLIENT PATH [VALUE]``: tells a client something, without an answer."""

from argparse import ArgumentParser, Namespace

from fleximq.cli.client_commands.broker_command import talking
from fleximq.cli.client_commands.broker_options import Address
from fleximq.cli.client_commands.payload_text import addReading, wordRead
from fleximq.cli.client_commands.req import clientId
from fleximq.errors import SettingError


def _prepare(parser: ArgumentParser) -> None:
    parser.add_argument("client", metavar="CLIENT", help="its id, several with commas between them, or all")
    parser.add_argument("path", metavar="PATH", nargs="?", help="what it is about; not for all")
    parser.add_argument("value", metavar="VALUE", nargs="?", help="what goes with it")
    addReading(parser)


def _run(arguments: Namespace, address: Address) -> int:
    toAll = arguments.client == "all"
    written = arguments.path if toAll else arguments.value
    if toAll and arguments.value is not None:
        raise SettingError("what goes to all has no path: give all and a VALUE")
    if not toAll and arguments.path is None:
        raise SettingError("a notification needs a PATH")
    value = None if written is None else wordRead(arguments.as_, written)
    with address.connect() as client:
        if toAll:
            client.broadcast(value)
        else:
            client.notify([clientId(each) for each in arguments.client.split(",")], arguments.path, value)
        client.flush()
    return 0


#: The command.
NOTIFY = talking("notify", "Tell a client, several, or all of them something.", _prepare, _run)
