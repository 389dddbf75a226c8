"""``run.jsonl``: one line for each request and for each reply that left a site, in order.

=======  ========================================================================================
start    method, sites
request  round, op, bytes to and from each site, sites lost, angle before the request
left     site, round, op; what the reply is, what it reveals and how it left; shapes and bytes
end      rounds, bytes up and down
=======  ========================================================================================

The log has no times: how long a site takes to reply is not protected by noise. It has no digests of
replies either; those are in the site's own log and ledger. With a digest, somebody who knows all
rows but one could test candidates for the last row, even where a trusted coordinator adds the
noise.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from eigenfed.data.safe_files import parse_strict_json, read_part
from eigenfed.errors import DataError
from eigenfed.estimators.pca_fit import PCAFit
from eigenfed.protocol.gate.records import Egress
from eigenfed.study.results.json_types import to_json_types
from eigenfed.transport.rounds import RoundRecord

_EARLIER_REQUEST = "ask"
"""The name of the event "request" in release 0.1."""

_KINDS = {"start", "request", "left", "end"}


def log_lines(facts: Mapping[str, Any], pca: PCAFit) -> Iterator[str]:
    """Yield the lines of ``run.jsonl`` for a run.

    Parameters
    ----------
    facts : mapping
        The content of ``result.json``.
    pca : PCAFit
        Fitted.

    Examples
    --------
    >>> import numpy as np
    >>> pca = PCAFit(1).fit_sites({"a": np.eye(3), "b": 2 * np.eye(3)})
    >>> facts = {"method": "covariance", "sites": ["a", "b"]}
    >>> facts |= {"rounds": 2, "bytes_up": 9, "bytes_down": 9}
    >>> [json.loads(line)["event"] for line in log_lines(facts, pca)]
    ['start', 'request', 'left', 'left', 'request', 'left', 'left', 'end']
    """
    for event in _list_events(facts, pca):
        yield json.dumps(to_json_types(event), allow_nan=False) + "\n"


def _list_events(facts: Mapping[str, Any], pca: PCAFit) -> Iterator[dict[str, Any]]:
    yield {"event": "start", "method": facts["method"], "sites": facts["sites"]}
    for record in pca.rounds_:
        yield {"event": "request"} | _describe_round(record)
        for site in sorted(pca.egress_):
            for reply in pca.egress_[site]:
                if reply.round_ == record.round:
                    yield {"event": "left", "site": site} | _describe_reply(reply)
    yield {"event": "end"} | {name: facts[name] for name in ("rounds", "bytes_up", "bytes_down")}


def _describe_round(record: RoundRecord) -> dict[str, Any]:
    return {
        "round": record.round,
        "op": record.op,
        "bytes_down": record.sent,
        "bytes_up": record.received,
        "lost": record.lost,
        "angle": record.angle,
    }


def _describe_reply(reply: Egress) -> dict[str, Any]:
    return {
        "round": reply.round_,
        "op": reply.op,
        "what": reply.release.kind,
        "leaves": reply.release.leaves.value,
        "reveals": reply.release.reveals.value,
        "masked": reply.masked,
        "shapes": reply.shapes,
        "bytes": reply.sent_bytes,
    }


def read_log(folder: Path) -> list[dict[str, Any]]:
    """Read the log of a result folder.

    Raises
    ------
    DataError
        If it is missing or damaged.
    """
    path = folder / "run.jsonl"
    try:
        events = [parse_strict_json(line) for line in read_part(path).decode("utf-8").splitlines()]
        for event in events:
            if event["event"] == _EARLIER_REQUEST:
                event["event"] = "request"
            if event["event"] == "request" and "residual" in event:
                # Until 0.2 the log had residuals, which cannot be turned into angles.
                del event["residual"]
                event["angle"] = None
        kinds = [event["event"] for event in events]
        complete = [kinds[0], kinds[-1]] == ["start", "end"] and {*kinds} <= _KINDS
    except (OSError, ValueError, TypeError, KeyError, IndexError):
        complete = False
    if not complete:
        raise DataError(
            f"{path} is missing or incomplete. Name a folder written by eigenfed fit -o."
        )
    return events
