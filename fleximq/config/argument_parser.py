"""An argparse parser that reports errors in one sentence."""

import argparse
import difflib
from collections.abc import Collection, Sequence
from typing import Any, NoReturn

#: Arguments that consume all that follow, so that options cannot be placed between them.
_GREEDY = (argparse.PARSER, argparse.REMAINDER)
_MANY = 10  #: More choices than these are left to the help.
#: Names of options and commands in other programs, or of others of ours.
_SYNONYMS = {
    "--as": "--format --json",
    "--format": "--as --json",
    **dict.fromkeys(("--ca", "--cacert", "--cafile", "--ca-file", "--tls-ca", "--tls-ca-file"), "--tls-authority"),
    **dict.fromkeys(("--cert", "--tls-cert"), "--tls-certificate"),
    **dict.fromkeys(("--host", "--server", "--port", "--address"), "--url"),
    **dict.fromkeys(("run", "server", "start"), "broker"),
    **dict.fromkeys(("about", "health", "info", "status"), "doctor"),
    "publish": "pub",
    "send": "pub",
    "subscribe": "sub",
    "listen": "sub",
    "request": "req",
    "list": "topics ls",
    **dict.fromkeys(("rm", "delete"), "remove"),
    "kick": "clients disconnect",
    "bans": "ban ls",
    "unban": "ban remove",
    "reload": "req broker /broker/reload",
}


class CommandParser(argparse.ArgumentParser):
    """Exits with one sentence and 1 after an error; options may be before, between and after the other arguments."""

    _isMixing = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self._isMixing or any(each.nargs in _GREEDY for each in self._get_positional_actions()):
            return super().parse_known_args(args, namespace)
        self._isMixing = True  # the method below calls this one again
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._isMixing = False

    def error(self, message: str, hint: str | None = None) -> NoReturn:
        """Exit with this sentence, and a hint in place of that to the help; raises SystemExit always."""
        for action in self._get_positional_actions():
            if action.metavar == "COMMAND" and action.choices and message.endswith("required: COMMAND"):
                message = f"a command must follow: {', '.join(action.choices)}"
        raise SystemExit(f"{self.prog}: {message}; {hint or f'{self.prog} --help says more'}")

    def refuse(self, words: Sequence[str]) -> NoReturn:
        """Exit with a sentence about unknown arguments: if there are options among them, about these."""
        options = [word.partition("=")[0] for word in words if word.startswith("-")]
        hints = [_nearest(option, self._option_string_actions) for option in options]
        hints += ["--url names the broker" for word in words if "://" in word]
        hints += [] if options else [f"a text with blanks needs quotes; {self.prog} --help says more"]
        self.error(f"unrecognized arguments: {' '.join(options or words)}", next(filter(None, hints), None))

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        value = super()._get_value(action, arg_string)
        # Mostly an unset shell variable: an empty folder would mean the current one, other options would be ignored.
        if value == "" and action.metavar is not None and action.default != "":
            if action.option_strings:
                self.error(f"{action.option_strings[-1]} is empty, but must be {action.metavar}")
            if action.metavar in ("FOLDER", "FILE"):
                self.error(f"{action.metavar} is empty")
        return value

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            if isinstance(value, int):
                first, *_, last = action.choices
                self.error(f"{action.option_strings[-1]} is {value}, but must be {first} to {last}")
            hint = _nearest(str(value).lower(), list(action.choices))
            if not action.option_strings:
                few = f"only {', '.join(action.choices)}" if len(list(action.choices)) <= _MANY else None
                if few and "info" in action.choices:
                    few += f"; {self.prog} info {value} shows one"
                self.error(f"there is no {str(action.metavar or action.dest).lower()} {value!r}", hint or few)
            if hint is not None or len(list(action.choices)) > _MANY:
                self.error(f"{action.option_strings[-1]} is {value!r}", hint)
        super()._check_value(action, value)


def _nearest(word: str, known: Collection[str]) -> str | None:
    """Return a question for the known word that resembles this one most; None without one."""
    synonym = _SYNONYMS.get(word, "")
    if word.startswith("--"):
        words = [name for name in synonym.split() if name in known]
        near = difflib.get_close_matches(word[2:], [name[2:] for name in known if name.startswith("--")], 1)
        words += [f"--{name}" for name in near]
    else:
        words = [synonym] if synonym.split()[:1] and synonym.split()[0] in known else []
        words += difflib.get_close_matches(word, list(known), 1)
    return f"did you mean {words[0]}?" if words else None
