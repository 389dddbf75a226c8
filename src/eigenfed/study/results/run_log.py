"""``run.jsonl``: a line for each ask, in order, one for each reply that left a site, and the ends.

=======  ========================================================================================
start    method, sites
ask      round, op, bytes to and from each site, sites lost, residual before the ask
left     site, round, op; what the reply is and reveals and how it left; shapes and bytes
end      rounds, bytes up and down
=======  ========================================================================================

When anything happened is not told: noise does not cover how long answers take. Nor are digests of
replies, which are in the site's own log and ledger: with one, whoever knows all rows but one could
try candidates for the last, also where a trusted coordinator adds the noise.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from eigenfed.data.safe_files import read_part, strict_json
from eigenfed.errors import DataError
from eigenfed.estimators.federated import FederatedPCA
from eigenfed.protocol.gate.records import Egress
from eigenfed.study.results.facts import plain
from eigenfed.transport.rounds import RoundRecord

_EARLIER_REQUEST = "ask"
"""What release 0.1 called a request."""

_KINDS = {"start", "request", "left", "end"}


def log_lines(facts: Mapping[str, Any], pca: FederatedPCA) -> Iterator[str]:
    """Write down a run.

    Parameters
    ----------
    facts : mapping
        What ``result.json`` says of it.
    pca : FederatedPCA
        Fitted.

    Examples
    --------
    >>> import numpy as np
    >>> pca = FederatedPCA(1).fit_sites({"a": np.eye(3), "b": 2 * np.eye(3)})
    >>> facts = {"method": "covariance", "sites": ["a", "b"]}
    >>> facts |= {"rounds": 2, "bytes_up": 9, "bytes_down": 9}
    >>> [json.loads(line)["event"] for line in log_lines(facts, pca)]
    ['start', 'request', 'left', 'left', 'request', 'left', 'left', 'end']
    """
    for event in _events(facts, pca):
        yield json.dumps(plain(event), allow_nan=False) + "\n"


def _events(facts: Mapping[str, Any], pca: FederatedPCA) -> Iterator[dict[str, Any]]:
    yield {"event": "start", "method": facts["method"], "sites": facts["sites"]}
    for record in pca.rounds_:
        yield {"event": "request"} | _describe_round(record)
        for site in sorted(pca.egress_):
            for left in pca.egress_[site]:
                if left.round_ == record.round:
                    yield {"event": "left", "site": site} | _left(left)
    yield {"event": "end"} | {name: facts[name] for name in ("rounds", "bytes_up", "bytes_down")}


def _describe_round(record: RoundRecord) -> dict[str, Any]:
    return {
        "round": record.round,
        "op": record.op,
        "bytes_down": record.sent,
        "bytes_up": record.received,
        "lost": record.lost,
        "residual": record.residual,
    }


def _left(left: Egress) -> dict[str, Any]:
    return {
        "round": left.round_,
        "op": left.op,
        "what": left.release.kind,
        "leaves": left.release.leaves.value,
        "reveals": left.release.reveals.value,
        "masked": left.masked,
        "shapes": left.shapes,
        "bytes": left.sent_bytes,
    }


def read_log(folder: Path) -> list[dict[str, Any]]:
    """Read the log of a result folder.

    Raises
    ------
    DataError
        If it is not there or damaged.
    """
    path = folder / "run.jsonl"
    try:
        events = [strict_json(line) for line in read_part(path).decode("utf-8").splitlines()]
        for event in events:
            if event["event"] == _EARLIER_REQUEST:
                event["event"] = "request"
        kinds = [event["event"] for event in events]
        whole = [kinds[0], kinds[-1]] == ["start", "end"] and {*kinds} <= _KINDS
    except (OSError, ValueError, TypeError, KeyError, IndexError):
        whole = False
    if not whole:
        raise DataError(
            f"{path} is not there, or not whole. Name the folder that eigenfed fit -o wrote."
        )
    return events
