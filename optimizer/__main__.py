"""Entry point of the command ``inferplan`` and of ``python -m optimizer``."""

import gc
import signal
import sys

INTERRUPTED = 130
"""Exit status after Ctrl-C."""
NEW_OBJECTS = 50_000
"""New objects after which cyclic garbage is collected; Python's 700 make short commands a tenth slower."""


def main() -> int:
    """Run the command and return its exit status; Ctrl-C ends it without a traceback, even during imports."""
    gc.set_threshold(NEW_OBJECTS)
    try:
        from optimizer.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C at exit would print a traceback
        print("inferplan: interrupted", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
