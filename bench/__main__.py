"""Print the table; the exit code is 1 where a target is missed or an answer refused."""

import sys
from itertools import chain

from bench import federated, footprint, merging, streaming


def main() -> int:
    failed = False
    for line in chain(streaming.lines(), federated.lines(), merging.lines(), footprint.lines()):
        print(line, flush=True)
        failed |= line.verdict in ("missed", "refused")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
