"""The parser of a command line that says in one sentence what it cannot understand."""

import argparse
from typing import NoReturn


class Words(argparse.ArgumentParser):
    """Says in one sentence what it cannot understand, and ends with 1 like every other mistake."""

    def error(self, message: str) -> NoReturn:
        """End with this sentence.

        :raises SystemExit: always.
        """
        raise SystemExit(f"{self.prog}: {message}; {self.prog} --help says more")
