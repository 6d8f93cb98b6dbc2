"""The parser of a command line that says in one sentence what it cannot understand."""

import argparse
from typing import Any, NoReturn

#: Arguments that take whatever follows, so that nothing can stand between them.
_GREEDY = (argparse.PARSER, argparse.REMAINDER)


class CommandParser(argparse.ArgumentParser):
    """Says in one sentence what it cannot understand, and ends with 1 like every other mistake.

    Options may stand before, between and behind the other words.
    """

    _isMixing = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Read the words, and return what was not understood beside what was."""
        if self._isMixing or any(each.nargs in _GREEDY for each in self._get_positional_actions()):
            return super().parse_known_args(args, namespace)
        self._isMixing = True  # the method below comes back here
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._isMixing = False

    def error(self, message: str) -> NoReturn:
        """End with this sentence.

        :raises SystemExit: always.
        """
        raise SystemExit(f"{self.prog}: {message}; {self.prog} --help says more")
