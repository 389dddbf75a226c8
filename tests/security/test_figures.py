"""Figures of a preparation are the coordinator's: what they change of the rows is counted anew."""

from typing import Any

import numpy as np
import pytest

from eigenfed.arrays import Array
from eigenfed.data.steps import as_steps
from eigenfed.privacy.policy import Policy
from eigenfed.protocol.exact.moments import MomentsRequest, SquaresRequest
from eigenfed.protocol.exact.products import ProductRequest
from eigenfed.protocol.study import Study
from hostile import Lone

N, D, K = 60, 12, 2


def table() -> Array:
    rng = np.random.default_rng(0)
    return rng.standard_normal((N, D)) @ rng.standard_normal((D, D))


def ask(lone: Lone, run: str, figures: list[dict[str, Any]], basis: Array) -> Any:
    """Go through the stages of a preparation, and request a product; return what is seen of it."""
    lone.open(run)
    lone.round_, width = -1, D
    lone.reply(MomentsRequest())
    for figure in figures:
        lone.reply(SquaresRequest(mean=np.zeros(width)))
        if "selected" in figure:
            width = len(figure["selected"])
        shown = lone.request(MomentsRequest(**figure))
        if shown.kind == "refusal":
            return shown
    frame: dict[str, Any] = {"mean": np.zeros(width), "scale": np.ones(width)}
    return lone.request(ProductRequest(basis=basis, **frame))


def spread(seed: int) -> list[dict[str, Any]]:
    drawn = np.exp(np.random.default_rng(seed).standard_normal(D))
    return [{"center": np.zeros(D), "spread": drawn}]


def test_other_scales_of_a_standardisation_show_other_directions() -> None:
    """The same directions of rows divided by other numbers gave the whole covariance."""
    study = Study(("a",), K, "krylov", prepare=as_steps(["standardize:1e6"]), max_rounds=1)
    basis = np.linalg.qr(np.random.default_rng(9).standard_normal((D, 4))).Q
    lone = Lone.of(table(), study, policy=Policy(max_rank_fraction=0.7))
    assert ask(lone, "one", spread(1), basis).kind == "reply"
    assert ask(lone, "same", spread(1), basis).kind == "reply"
    assert lone.site.meter.rank_fraction == pytest.approx(4 / D)
    assert ask(lone, "two", spread(2), basis).kind == "reply"
    assert lone.site.meter.rank_fraction == pytest.approx(8 / D)
    assert ask(lone, "three", spread(3), basis).code == "leakage"


def test_together_other_scales_may_determine_all_of_the_variance() -> None:
    study = Study(("a",), K, "krylov", prepare=as_steps(["standardize:1e6"]), max_rounds=1)
    basis = np.linalg.qr(np.random.default_rng(9).standard_normal((D, 2))).Q
    lone = Lone.of(table(), study, policy=Policy(max_variance_fraction=0.999))
    assert ask(lone, "one", spread(1), basis).kind == "reply"
    assert ask(lone, "two", spread(2), basis).code == "leakage"


def test_a_selection_shows_known_directions_in_further_features() -> None:
    """The images of known directions were not counted where features had not been selected."""
    rng = np.random.default_rng(0)
    shared, noise = rng.standard_normal((N, 4)), rng.standard_normal((N, 4))
    rows = np.hstack([shared, 2.0 * noise, 2.0 * shared @ np.linalg.qr(np.ones((4, 4))).Q])
    study = Study(("a",), 4, "krylov", prepare=as_steps(["select:8:variance"]), max_rounds=1)
    lone = Lone.of(rows, study, policy=Policy(max_variance_fraction=0.5))
    basis = np.eye(8)[:, :4]
    first, second = np.arange(8), np.r_[0:4, 8:12]
    assert ask(lone, "one", [{"selected": first}], basis).kind == "reply"
    assert ask(lone, "two", [{"selected": second}], basis).code == "leakage"


def test_bounds_are_told_apart_by_the_features_that_they_clip() -> None:
    """With the same numbers, another selection clips a feature at another bound."""
    steps = as_steps(["select:6:variance", "standardize:1"])
    study = Study(("a",), K, "krylov", prepare=steps, max_rounds=1)
    lone = Lone.of(table(), study, policy=Policy(max_clips=3))
    bounds: dict[str, Any] = {"center": np.arange(6.0), "spread": np.ones(6)}
    seen = [
        ask(lone, f"run {i}", [{"selected": np.r_[i : i + 6]}, bounds], np.eye(6)[:, :1])
        for i in range(5)
    ]
    assert [shown.code for shown in seen] == ["", "", "", "leakage", "leakage"]
    assert lone.site.meter.clip_count == 3


def test_rows_divided_by_other_totals_are_the_same_rows_in_other_units() -> None:
    """Each target of `normalize` had a limit of its own: one direction each gave all of them."""
    rows, policy = np.abs(table()), Policy(max_variance_fraction=0.999)
    one, other = (
        Study(("a",), K, "krylov", prepare=as_steps([f"normalize:{total}"])) for total in (1, 2)
    )
    lone = Lone.of(rows, one, policy=policy)
    assert ask(lone, "one", [], np.eye(D)[:, :1]).kind == "reply"
    lone.study = other
    assert ask(lone, "two", [], np.eye(D)[:, 1:2]).code == "leakage"
