"""``python -m optimizer`` runs the command ``inferplan``."""

import sys

from optimizer.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
