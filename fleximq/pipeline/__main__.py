"""``python -m fleximq.pipeline`` is the command ``fleximq-pipeline``."""

import sys

from fleximq.pipeline.main import main

if __name__ == "__main__":
    sys.exit(main())
