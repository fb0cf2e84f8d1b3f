"""The control loop on an emulated fleet: `inferplan demo loop`, which takes two minutes."""

import sys

from optimizer.cli.main import main

sys.exit(main(["demo", "loop", *sys.argv[1:]]))
