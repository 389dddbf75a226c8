"""Results come from a coordinator: neither they nor scores of a site's rows may end the site.

Whether rows can be projected onto a result depends on them, as where they have negative entries and
its steps take logarithms. So what becomes of that is not in the answer.
"""

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eigenfed.arrays import Array
from eigenfed.protocol.messages import Message
from eigenfed.protocol.study import open_message
from eigenfed.study.network.results_sent import close_message, read_sent_files
from eigenfed.study.results.result_folder import write_result
from network_runs import Network


def npy(array: Array) -> bytes:
    file = BytesIO()
    np.save(file, array)
    return file.getvalue()


def without(*names: str) -> Any:
    return lambda facts: {name: fact for name, fact in facts.items() if name not in names}


def of_features(d: int) -> dict[str, Any]:
    names = "".join(f"f{place}\n" for place in range(d))
    return {
        "result.json": lambda facts: facts | {"d": d},
        "components.npy": npy(np.eye(2, d)),
        "mean.npy": npy(np.zeros(d)),
        "features.txt": names.encode(),
    }


def prepared(step: str) -> dict[str, Any]:
    return {"result.json": lambda facts: facts | {"prepare": {"steps": [step], "features": 5}}}


UNREADABLE = {
    "without the number of rows": {"result.json": without("n")},
    "without the total variance": {"result.json": without("total_variance")},
    "with a text for a number": {"result.json": lambda facts: facts | {"n": "x"}},
}
UNFIT = {
    "of fewer features": of_features(3),
    "of more features": of_features(9),
    "of logarithms": prepared("log1p"),
    "of normalised rows": prepared("normalize"),
}


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Network:
    return Network(tmp_path_factory.mktemp("network"))


@pytest.fixture(scope="module")
def sent(network: Network, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Files of a result that fits."""
    run, folder = network.run(), tmp_path_factory.mktemp("result") / "result"
    write_result(folder, run.estimator, sites=run.sites, study="heart")
    return read_sent_files(folder)


def close(network: Network, sent: dict[str, bytes], changed: dict[str, Any], run: str) -> Message:
    """Open a run at a site that has rows below 0, and end it with a changed result."""
    service, coordinator = network.sites["north"].service, network.coordinator()
    study = network.parties.study.study
    service.answer(open_message(run, study, study.method, coordinator._identity))
    files = {**sent, **{name: part for name, part in changed.items() if isinstance(part, bytes)}}
    facts = changed["result.json"](json.loads(sent["result.json"]))
    files["result.json"] = json.dumps(facts).encode()
    return Message.from_bytes(service.answer(close_message(run, files)), "reply", "refusal")


@pytest.mark.parametrize("how", UNREADABLE)
def test_a_result_that_lacks_a_fact_is_refused(
    network: Network, sent: dict[str, bytes], how: str
) -> None:
    assert close(network, sent, UNREADABLE[how], how).label == "malformed"


@pytest.mark.parametrize("how", UNFIT)
def test_a_result_that_does_not_fit_the_rows_is_kept_without_scores(
    network: Network, sent: dict[str, bytes], how: str
) -> None:
    """It ended the site, for some of them only where an entry of the rows was below 0."""
    results: list[Path] = network.sites["north"].results
    before = len(results)
    assert close(network, sent, UNFIT[how], how).kind == "reply"
    (folder,) = results[before:]
    assert not (folder / "scores").exists()
    assert json.loads((folder / "result.json").read_text())["scores"] is False
