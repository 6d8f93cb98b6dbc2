"""``python -m fleximq`` is the command ``fleximq``."""

import sys

from fleximq.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
