"""A mean is the coordinator's: however distant it is, it moves rows and does nothing else."""

import numpy as np
import pytest

from eigenfed.protocol.exact.merge import SummaryRequest
from eigenfed.protocol.exact.moments import MomentsRequest
from eigenfed.protocol.exact.products import ProductRequest
from eigenfed.protocol.study import Study
from hostile import Lone

N, D = 40, 6


@pytest.mark.parametrize("power", [0, 30, 52, 54])
def test_a_summary_is_that_of_the_rows_and_not_of_what_rounding_left(power: int) -> None:
    """Subtracting 2**53 left two numbers of a feature, and the summary counted the rows of each."""
    rows = np.random.default_rng(3).standard_normal((N, D))
    lone = Lone.of(rows, Study(("a",), D, "merge"))
    lone.open()
    totals = lone.reply(MomentsRequest())
    mean = totals["total"] / totals["n"]
    mean[1] -= 1.5 * 2.0**power
    reply = lone.reply(SummaryRequest(mean=mean, scale=np.ones(D)))
    around = rows - rows.mean(axis=0)
    scatter = (reply["vt"].T * reply["s"] ** 2) @ reply["vt"]
    np.testing.assert_allclose(scatter, around.T @ around, atol=1e-10)
    np.testing.assert_allclose(reply["mean"], rows.mean(axis=0) - mean, atol=1e-12)


@pytest.mark.parametrize("power", [0, 12, 27, 40, 52])
def test_the_meter_knows_products_about_a_distant_mean(power: int) -> None:
    """It took what cancellation had left for the image of a direction, which is known then."""
    rows = np.random.default_rng(3).standard_normal((N, D))
    lone = Lone.of(rows, Study(("a",), 2, "krylov"))
    lone.open()
    totals = lone.reply(MomentsRequest())
    mean = totals["total"] / totals["n"]
    mean[1] += 1.7 * 2.0**power
    lone.reply(ProductRequest(basis=np.eye(D)[:, 1:3], mean=mean, scale=np.ones(D)))
    around, meter = rows - rows.mean(axis=0), lone.site.meter.settled()
    np.testing.assert_allclose(meter.images, around.T @ (around @ meter.basis), atol=1e-8)
