"""An argparse parser that reports errors in one sentence."""

import argparse
from typing import Any, NoReturn

#: Arguments that consume all that follow, so that options cannot be placed between them.
_GREEDY = (argparse.PARSER, argparse.REMAINDER)


class CommandParser(argparse.ArgumentParser):
    """Reports errors in one sentence, and exits with 1 like all other errors.

    Options may be placed before, between and after the other arguments.
    """

    _isMixing = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the arguments, and return the namespace and the unknown ones."""
        if self._isMixing or any(each.nargs in _GREEDY for each in self._get_positional_actions()):
            return super().parse_known_args(args, namespace)
        self._isMixing = True  # the method below calls this one again
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._isMixing = False

    def error(self, message: str) -> NoReturn:
        """Exit with this sentence; raises SystemExit always."""
        raise SystemExit(f"{self.prog}: {message}; {self.prog} --help says more")
