"""Entry point of the command ``inferplan`` and of ``python -m optimizer``."""

import signal
import sys

INTERRUPTED = 130
"""Exit status after Ctrl-C."""


def main() -> int:
    """Run the command and return its exit status; Ctrl-C ends it without a traceback, even during imports."""
    try:
        from optimizer.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C at exit would print a traceback
        print("inferplan: interrupted", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
