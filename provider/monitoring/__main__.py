"""`python -m kafka_steward.monitoring [NAME]`: print one of the files; without a name, list them."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from kafka_steward.monitoring import list_files


def main(arguments: Sequence[str]) -> int:
    """Print a file or the list; return the exit code."""
    files = {path.name: path for path in list_files()}
    if not arguments:
        print("\n".join(map(str, files.values())))
        return 0
    if len(arguments) > 1 or arguments[0] not in files:
        print(f"There is no file {' '.join(arguments)!r}; there are {', '.join(files)}.", file=sys.stderr)
        return 2
    print(files[arguments[0]].read_text(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
