"""Runs the command ``inferplan``; also as ``python -m optimizer``."""

import signal
import sys

INTERRUPTED = 130
"""Exit status after Ctrl-C."""


def main() -> int:
    """Run the command; Ctrl-C ends it with one line, even while its modules are still imported."""
    try:
        from optimizer.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one would interrupt the end with a traceback
        print("inferplan: interrupted", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
