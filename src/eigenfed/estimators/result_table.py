"""What a notebook shows of a fitted estimator: scikit-learn's diagram, and its components below."""

import math
from typing import Any

_SHOWN = 10


class ResultTable:
    """Adds a table of components, rounds and accuracy to the HTML of a fitted estimator."""

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        parent: Any = super()
        bundle: dict[str, str] = parent._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] += format_results(self)
        return bundle

    def _repr_html_inner(self) -> str:
        parent: Any = super()
        return str(parent._repr_html_inner()) + format_results(self)


def format_results(fitted: Any) -> str:
    """Return the components of an estimator as an HTML table; nothing before it is fitted.

    Examples
    --------
    >>> import numpy as np
    >>> from eigenfed import FederatedPCA
    >>> text = format_results(FederatedPCA(1).fit_sites({"a": np.eye(3), "b": 2 * np.eye(3)}))
    >>> "<td>PC1</td>" in text, "6 rows at 2 sites" in text, format_results(FederatedPCA(1))
    (True, True, '')
    """
    if not hasattr(fitted, "rounds_"):
        return ""
    ratios = [float(ratio) for ratio in fitted.explained_variance_ratio_]
    rows = [
        f"<tr><td>PC{place}</td><td>{variance:.6g}</td><td>{ratio:.2%}</td>"
        f"<td>{sum(ratios[:place]):.2%}</td></tr>"
        for place, (variance, ratio) in enumerate(
            zip(fitted.explained_variance_, ratios, strict=True), start=1
        )
    ]
    if len(rows) > _SHOWN:
        rows[_SHOWN:] = [f'<tr><td colspan="4">{len(rows) - _SHOWN} more</td></tr>']
    sites = len(fitted.egress_)
    facts = (
        f"{fitted.n_samples_} rows at {sites} site{'' if sites == 1 else 's'}, "
        f"{fitted.method_}, {fitted.n_rounds_} rounds{_describe_accuracy(fitted.certificate_)}"
    )
    head = "".join(f"<th>{name}</th>" for name in ("", "variance", "fraction", "cumulative"))
    return (
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table><p>{facts}</p>"
    )


def _describe_accuracy(certificate: Any) -> str:
    if certificate is None:
        return ""
    bound = math.degrees(certificate.angle_bound)
    return f", angle at most {bound:.2g} degrees" if math.isfinite(bound) else ", no angle bound"
