"""Print the table; the exit code is 1 where a target is missed or an answer refused."""

import sys
from itertools import chain

from bench import (
    certified,
    choice,
    devices,
    federated,
    few_rows,
    footprint,
    gate,
    genotypes,
    merging,
    network,
    network_memory,
    network_study,
    reading,
    secure,
    streaming,
)


def main() -> int:
    failed = False
    tables = (
        streaming,
        federated,
        few_rows,
        certified,
        choice,
        secure,
        gate,
        genotypes,
        merging,
        devices,
        reading,
        network,
        network_memory,
        network_study,
        footprint,
    )
    for line in chain.from_iterable(table.lines() for table in tables):
        print(line, flush=True)
        failed |= line.verdict in ("missed", "refused")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
