"""`python -m quipu` is the `quipu` command."""

import sys

from quipu.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
