"""`rocketstream` on the command line: one file per command; `app` puts them together.

Exit codes are 0, 1 (failed, or whoever read the output went away), 2 (usage) and 130 (Ctrl-C).
"""

from __future__ import annotations

import sys

_INTERRUPTED = 130


def main() -> None:
    """The entry point of the `rocketstream` command."""
    try:
        # Here, because Ctrl-C may strike while it loads, and that is no reason for a traceback.
        from rocketstream.cli.app import run

        run()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
