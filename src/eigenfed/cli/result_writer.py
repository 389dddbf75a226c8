"""Output of ``eigenfed fit`` and ``coordinate``: a result folder, .h5ad files, or text only."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eigenfed.cli.output import DONE, CommandResult, Console
from eigenfed.cli.tables import fit_text, judge_facts
from eigenfed.cli.typed_command import describe_command
from eigenfed.errors import NOISE

if TYPE_CHECKING:
    from eigenfed.data.files import FileTable
    from eigenfed.data.genotypes import Variants
    from eigenfed.estimators.pca_fit import PCAFit
    from eigenfed.privacy.ledger.ledger import Totals
    from eigenfed.study.scores import Projected


def write_run(
    out: Path,
    pca: "PCAFit",
    *,
    sites: Collection[str],
    study: str,
    variants: "Variants | None" = None,
    force: bool,
) -> dict[str, Any]:
    """Write the result of a run between machines and its pages; return its facts.

    Parameters
    ----------
    out : Path
        The result folder.
    pca : PCAFit
        Fitted.
    sites : collection of str
        The sites that took part.
    study : str
        Name of the study.
    variants : Variants, optional
        Those of the components.
    force : bool
        Whether an earlier result may be replaced.
    """
    from eigenfed.report.html import write_pages
    from eigenfed.study.results.result_folder import write_result

    facts = write_result(
        out, pca, sites=sites, study=study, variants=variants, force=force, **describe_command()
    )
    write_pages(out)
    return facts


def format_run(facts: dict[str, Any], out: Path, *more: str, **data: Any) -> CommandResult:
    """Return the result of a command that has written the result of a run between machines.

    Parameters
    ----------
    facts : dict
        From `write_run`.
    out : Path
        The result folder.
    *more : str
        Further lines of text.
    **data
        Further data.
    """
    verdict = judge_facts(facts)
    lines = [f"result       {out}", f"report       {out / 'report.html'}", *more]
    text = "\n".join([*verdict.problems, fit_text(facts), *lines])
    data = facts | {"folder": str(out)} | data
    return CommandResult(data, text, NOISE if verdict.mostly_noise else DONE)


@dataclass(frozen=True)
class ResultWriter:
    """Writes the result of a fit.

    Attributes
    ----------
    out : Path or None
        The result folder.
    force : bool
        Whether the output of an earlier run may be overwritten.
    write_back : bool
        Whether to write results into the fitted ``.h5ad`` files.
    """

    out: Path | None
    force: bool = False
    write_back: bool = False

    def check(self, files: Iterable[Path]) -> None:
        """Check before the fit that its results can be written."""
        if self.force and self.out is None and not self.write_back:
            raise click.UsageError(
                "--force requires -o or --write-back. Name the folder to replace."
            )
        if self.out is not None:
            from eigenfed.study.results.result_folder import check_free

            check_free(self.out, force=self.force)
        if self.write_back:
            check_annotated(files, force=self.force)

    def compares_sites(self, pca: "PCAFit", n_sites: int) -> bool:
        """Return whether to request each site's mean scores: for reports of open, exact runs."""
        secure = pca.prefers_secure(n_sites)
        return self.out is not None and pca.privacy is None and not secure

    def write(
        self,
        console: Console,
        pca: "PCAFit",
        tables: "Mapping[str, FileTable]",
        *,
        share_scores: Collection[str] = (),
        labels: "Mapping[str, tuple[str, ...]] | None" = None,
        ledgers: "Mapping[str, Totals] | None" = None,
        study: str | None = None,
    ) -> CommandResult:
        """Write all output and return the result of the command.

        Parameters
        ----------
        console : Console
        pca : PCAFit
            Fitted.
        tables : mapping of str to FileTable
            The open file of each site, as it was fitted.
        share_scores : collection of str
            Sites whose rows the shared report may show as points.
        labels : mapping of str to tuple of str, optional
            The group of each row of a site, for its own page.
        ledgers : mapping of str to Totals, optional
            Totals of the sites' ledgers.
        study : str, optional
            Name of the study.
        """
        from eigenfed.study.results.facts import describe_fit

        shared = self.out is not None and pca.privacy is None
        rows = _project_tables(console, pca, tables) if shared or self.write_back else {}
        rows |= {site: rows[site]._replace(labels=found) for site, found in (labels or {}).items()}
        lines = []
        if self.out is None:
            facts = describe_fit(pca, tables)
        else:
            from eigenfed.report.html import write_pages
            from eigenfed.study.results.result_folder import write_result

            facts = write_result(
                self.out,
                pca,
                sites=tables,
                rows=rows if shared else None,
                share_scores=share_scores,
                ledgers=ledgers,
                study=study,
                variants=_find_variants(pca, tables),
                force=self.force,
                **describe_command(),
            )
            if not shared:
                console.note("No scores were written: projections of records are not private.")
            lines += [f"result       {self.out}", f"report       {write_pages(self.out).shared}"]
        if self.write_back:
            lines.append(f"written to   {_write_back(pca, tables, rows)}")
        folder = {} if self.out is None else {"folder": str(self.out)}
        verdict = judge_facts(facts)
        text = "\n".join([*verdict.problems, fit_text(facts), *lines])
        noise = {} if pca.privacy is None else {"mostly_noise": verdict.mostly_noise}
        return CommandResult(facts | folder | noise, text, NOISE if verdict.mostly_noise else DONE)


def _find_variants(pca: "PCAFit", tables: "Mapping[str, FileTable]") -> "Variants | None":
    """Return the variants of the components, which are the same at all sites."""
    first, selected = next(iter(tables.values())).plink, pca.selected_features_
    if first is None:
        return None
    return first.variants if selected is None else first.variants.take(selected)


def _project_tables(
    console: Console, pca: "PCAFit", tables: "Mapping[str, FileTable]"
) -> "dict[str, Projected]":
    from eigenfed.study.scores import project_table

    with console.progress("projecting the rows"):
        return {site: project_table(pca, table) for site, table in tables.items()}


def _write_back(
    pca: "PCAFit", tables: "Mapping[str, FileTable]", rows: "Mapping[str, Projected]"
) -> str:
    from eigenfed.study.scores import write_back

    for site, table in tables.items():
        write_back(table.path, pca, rows[site].scores)
    return ", ".join(str(table.path) for table in tables.values())


def check_annotated(files: Iterable[Path], *, force: bool) -> None:
    """Refuse files that are not ``.h5ad``, or that hold results already."""
    from eigenfed.data.readers.h5ad import check_slots_free

    for path in files:
        if path.suffix.lower() != ".h5ad":
            raise click.UsageError(
                f"--write-back requires .h5ad files, and {path} is not one. Drop it, and write "
                "the scores with -o."
            )
        check_slots_free(path, force=force)
