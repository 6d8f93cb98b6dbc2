"""The command line of ``twistd fleximq``, made of the table of settings; an error is one sentence and exit code 1."""

import difflib
import os
import shutil
import signal
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from twisted.python import usage

from fleximq import __version__
from fleximq.compiled.choice import IMPLEMENTATION
from fleximq.config.option_help import default, words
from fleximq.config.option_table import OPTIONS, REPEATED, Option, grouped
from fleximq.config.option_values import flag, read
from fleximq.config.setting_origins import Origin, originsIn
from fleximq.config.settings import Settings
from fleximq.dialects.registry import installed
from fleximq.errors import SettingError
from fleximq.startup.configuration_check import faults
from fleximq.startup.pid_file import clearPidFile
from fleximq.startup.setting_changes import SettingsRefused

_INTRODUCTION = """
A message broker that speaks four dialects and HTTP over one space of topics.
Unless a listener names one, it tells them apart by a connection's first bytes.
Without --auth or --allow-anonymous only this machine is served.

"""

_EXAMPLES = """
ENDPOINT is a URL (tcp:// tls:// ipc:// ws:// wss:// stdio://) or a server
endpoint of Twisted (tcp: unix: ssl: systemd: ...), DIALECT one of fleximq,
blipmq, minimq, identity, http, or a plug-in's. Sizes may end in KiB, MiB or
GiB; times are seconds and may have a fraction.

Examples:
  twistd -n fleximq
      all dialects on port 7890
  twistd -n fleximq --listen tcp:7890:interface=127.0.0.1 \\
                    --listen unix:/run/fleximq.sock
      on one address and on a UNIX socket
  twistd -n fleximq --listen tcp:7890 --listen minimq+tcp:5677
      a second port for MiniMQ alone
  twistd -n fleximq --config /etc/fleximq/fleximq.toml
      with the settings of a file, which "fleximq check-config" checks
  twistd -n fleximq --allow-anonymous --allowed-origin https://example.com
      serve other machines, and the WebSockets of one web site
"""

#: Options of other brokers, and ours in their place.
_OTHER_NAMES = {
    **dict.fromkeys(("port", "p"), "listen PORT"),
    **dict.fromkeys(("addr", "address", "bind", "host"), "listen tcp:PORT:interface=ADDRESS"),
    **dict.fromkeys(("data", "data-dir", "dir", "store_dir"), "journal FOLDER"),
    **dict.fromkeys(("cert", "certfile", "tlscert"), "tls-certificate FILE"),
    **dict.fromkeys(("key", "keyfile", "tlskey"), "tls-key FILE"),
    **dict.fromkeys(("password-file", "passwords", "users"), "auth passwords:FILE"),
}
#: Options of twistd that people give to the broker.
_OF_TWISTD = ("chroot", "gid", "logfile", "nodaemon", "pidfile", "reactor", "rundir", "syslog", "uid", "umask")
_CONFIG = "A TOML file with any of these settings; the command line wins over it."


class Options(usage.Options):
    """Parses the command line into :attr:`settings`."""

    synopsis = "[--listen [DIALECT+]ENDPOINT] ..."
    longdesc = ""
    settings: Settings
    #: Where they come from, by name, as read last; those that are missing have their defaults.
    origins: Mapping[str, Origin]

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        super().__init__()

    def opt_version(self) -> None:
        """Print version and implementation, and exit."""
        _print(f"FlexiMQ {__version__} ({IMPLEMENTATION})")

    def parseArgs(self, *arguments: str) -> None:
        if arguments:
            raise usage.UsageError(f"unexpected argument {arguments[0]!r}, all options begin with --")

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        """Parse the command line; raises SystemExit with a sentence about an error; Python exits with 1 then."""
        try:
            super().parseOptions(options)
        except usage.UsageError as error:
            name = str(error).split()[1].removeprefix("--") if str(error).endswith("not recognized") else ""
            nearest = difflib.get_close_matches(name, [each.rstrip("=") for each in self.longOpt], 1)
            if name in _OTHER_NAMES:
                hint = f"it is --{_OTHER_NAMES[name]}"
            elif name in _OF_TWISTD:
                hint = f"it is an option of twistd: twistd --{name} ... fleximq"
            else:
                hint = f"did you mean --{nearest[0]}?" if nearest else "twistd fleximq --help lists the options"
            raise SystemExit(f"fleximq: {error}; {hint}") from None
        except SettingError as error:
            raise SystemExit(f"fleximq: {error}") from None

    def postOptions(self) -> None:
        """Combine command line and settings file into checked settings. The command line takes precedence."""
        self._folder = os.getcwd()
        path = self.get("config")
        written = {} if path is None else read(path)
        for sentence in self._faults(written):
            raise SettingError(sentence)
        self.settings = Settings.of({**written, **self._given()})
        self.origins = self._originsOf(path, written)
        twistd: Mapping[str, Any] = self.parent or {}
        if twistd.get("pidfile") and not twistd.get("chroot"):
            clearPidFile(twistd["pidfile"])

    def again(self) -> Settings:
        """Read the settings file again; raises SettingError if it is unreadable, empty or invalid."""
        path = self.get("config")
        written = {} if path is None else read(os.path.join(self._folder, path))
        if path is not None and not written:
            raise SettingError(f"{path} is empty")
        if sentences := list(self._faults(written)):
            raise SettingsRefused(sentences)
        settings = Settings.of({**written, **self._given()})
        self.origins = self._originsOf(path, written)
        return settings

    def _originsOf(self, path: str | None, written: Mapping[str, object]) -> dict[str, Origin]:
        """Return where the settings come from that are not at their defaults."""
        found: dict[str, Origin] = {}
        if path is not None:
            text = Path(self._folder, path).read_text(errors="replace")
            found = originsIn(path, text, written)
        return found | dict.fromkeys(self._given(), Origin("command line"))

    def _faults(self, written: Mapping[str, object]) -> Iterator[str]:
        """Yield a sentence for each fault of the settings file, or if it has none, of the command line.

        Settings that the file lacks, e.g. the journal of its durable topics, may be on the command line.
        """
        registry, given = installed(), self._given()
        alone = list(faults(written, registry))
        found = [each for each in faults({**given, **written}, registry) if each in alone] if alone else []
        yield from [f"{self.get('config')}: {each}" for each in found] or faults({**written, **given}, registry)

    def _given(self) -> dict[str, object]:
        given: dict[str, object] = {name: tuple(values) for name, values in self._texts.items()}
        for option in OPTIONS:
            value = self.get(option.name)  # 0 or 1 for a flag, None for a repeated option
            if value if option.read is flag else value is not None:
                given[option.name] = True if option.read is flag else value
        return given

    def getUsage(self, width: int | None = None) -> str:
        return _INTRODUCTION + _groups(width or shutil.get_terminal_size().columns) + _EXAMPLES

    def opt_help(self) -> None:
        """Print this help, and exit."""
        _print(str(self))


def _print(text: str) -> NoReturn:
    """Print a text, and exit; its reader may have ended."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that the final flush succeeds
        raise SystemExit(128 + signal.SIGPIPE) from None
    raise SystemExit(0)


def _groups(width: int) -> str:
    lines = []
    for group, options in grouped().items():
        lines += ["", f"{group}:"]
        for each in options:
            lines += _paragraph(each.name + ("" if each.read is flag else "="), _described(each), width)
    for name, text in (("config=", _CONFIG), ("version", "Print version and exit."), ("help", "Print this.")):
        lines += _paragraph(name, text, width)
    return "\n".join([*lines[1:], ""])


def _paragraph(name: str, words: str, width: int) -> list[str]:
    return textwrap.wrap(f"  --{name:<26} {words}", width, subsequent_indent=" " * 31)


def _described(option: Option) -> str:
    """Return an option's help text with its default; a default of 0 is part of the text."""
    value = default(option)
    return words(option) + (f" [default: {value}]" if value not in ("", "0") else "")


def _repeated(option: Option) -> Callable[[Options, str], None]:
    """Return the method that Twisted calls for each occurrence of a repeatable option."""

    def take(self: Options, value: str) -> None:
        self._texts.setdefault(option.name, []).append(value)

    take.__doc__ = _described(option)
    return take


Options.optFlags = [[each.name, None, _described(each)] for each in OPTIONS if each.read is flag]  # type: ignore[attr-defined]
Options.optParameters = [  # type: ignore[attr-defined]
    ["config", None, None, _CONFIG],
    *([each.name, None, None, _described(each)] for each in OPTIONS if each.read not in (flag, *REPEATED)),
]
for _each in OPTIONS:
    if _each.read in REPEATED:
        setattr(Options, "opt_" + _each.name.replace("-", "_"), _repeated(_each))
