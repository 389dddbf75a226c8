"""Rehearsal of a study: all of its sites run in one process, from their site files.

All settings of the study and the sites apply as they would between machines: which sites may take
part, the quorum, the choice of rows and features, the policies, and the spending in the ledgers.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from eigenfed.data.column_names import describe_differences, quote_names
from eigenfed.data.files import FileTable, read_feature_names
from eigenfed.errors import DataError, InputError, Refusal
from eigenfed.estimators.pca_fit import PCAFit
from eigenfed.privacy.ledger.ledger import Ledger, Totals
from eigenfed.study.config import SiteFile, StudyFile, read_site, read_study, speaking_of_keys
from eigenfed.study.scores import Rows
from eigenfed.transport.engine import Engine
from eigenfed.transport.rounds import RoundRecord


class RehearsalRun(NamedTuple):
    """What a fit leaves: the open file of each site, and the totals of those that have a ledger."""

    tables: dict[str, FileTable]
    ledgers: dict[str, Totals]


@dataclass(frozen=True)
class Rehearsal:
    """A study and those of its sites that take part.

    Attributes
    ----------
    study : StudyFile
    sites : dict of str to SiteFile
        In sorted order.
    """

    study: StudyFile
    sites: dict[str, SiteFile]

    @property
    def absent(self) -> tuple[str, ...]:
        """The sites of the study that do not take part."""
        return tuple(name for name in self.study.sites if name not in self.sites)

    @property
    def records(self) -> dict[str, Rows]:
        """The data file of each site, and which of its rows are used."""
        return {name: Rows.of_site(site, self.study) for name, site in self.sites.items()}

    @property
    def sharing(self) -> frozenset[str]:
        """The sites that allow the shared report to show their rows as points."""
        return frozenset(name for name, site in self.sites.items() if site.share_scores)

    def estimator(
        self, *, transport: Engine | str | None = None, transcript: Path | None = None
    ) -> PCAFit:
        """Return what the study fits, not yet fitted; where and with which record is up to you."""
        pca = make_estimator(self.study)
        pca.transport, pca.transcript = transport, transcript
        return pca

    def fit(
        self, pca: PCAFit, callback: Callable[[RoundRecord], None] | None = None
    ) -> RehearsalRun:
        """Fit an estimator to the rows of the participating sites.

        Parameters
        ----------
        pca : PCAFit
            From `estimator`.
        callback : callable, optional
            Called with each round when it is finished.

        Returns
        -------
        RehearsalRun

        Raises
        ------
        DataError
            If the rows do not match the study, or a ledger is damaged.
        PrivacyError
            If privacy forbids the study, or the ledger of a site is missing. Nothing has run then.
        SiteRefused
            If the policy or the ledger of a site forbids a request.
        """
        ledgers = _open_ledgers(self.sites)
        tables = self._open_tables()
        with speaking_of_keys(f"{self.study.path}: "):
            pca.fit_sites(
                tables,
                features="same",
                policies={name: site.policy for name, site in self.sites.items()},
                ledgers=ledgers,
                datasets={name: self.sites[name].dataset for name in ledgers},
                filtered={name for name, site in self.sites.items() if site.where},
                by_site=self.study.by_site,
                deadline_s=self.study.deadline_s,
                callback=callback,
            )
        totals = {name: led.totals(self.sites[name].dataset) for name, led in ledgers.items()}
        return RehearsalRun(tables, totals)

    def _open_tables(self) -> dict[str, FileTable]:
        """Open all files with the same features in the same order, which avoids copies."""
        wanted = self._choose_features()
        tables = {}
        for name, records in self.records.items():
            with speaking_of_keys(f"{self.sites[name].path}: "):
                tables[name] = records.table(wanted)
        return tables

    def _choose_features(self) -> list[str] | None:
        if not isinstance(self.study.features, str):
            return list(self.study.features)
        columns = {}
        for name, site in self.sites.items():
            with speaking_of_keys(f"{site.path}: "):
                features = read_feature_names(site.data, site.id_column, site.options)
            if features is None:
                return None
            columns[name] = features
        first = next(iter(columns.values()))
        common = [name for name in first if all(name in found for found in columns.values())]
        if self.study.features == "same" and any(len(f) > len(common) for f in columns.values()):
            raise DataError(
                f'{self.study.path}: features = "same", but the sites differ in '
                f"{describe_differences(columns)}. Rename or add them, list the features to use, "
                'or set features = "common".'
            )
        if not common:
            raise DataError(
                f"{self.study.path}: the sites have no feature in common. Check the names of their "
                "columns."
            )
        return common


def make_estimator(study: StudyFile) -> PCAFit:
    """Return the estimator that a study defines, not yet fitted."""
    return PCAFit(
        study.components,
        method=study.method,
        center=study.center,
        scale=study.scale,
        prepare=study.prepare or None,
        secure=study.secure,
        privacy=study.privacy,
        tol=study.tol,
        stop=study.study.stop,
        certify=study.certify,
        random_state=study.seed,
    )


def read_rehearsal(study: Path, sites: Iterable[Path]) -> Rehearsal:
    """Read a study file and site files, and check that they match.

    Parameters
    ----------
    study : Path
        The study file.
    sites : iterable of Path
        The site files.

    Raises
    ------
    InputError, DataError
        If a file is invalid, or the files do not match.
    Refusal
        If a site has not approved the study, or does not trust the coordinator as it requires.

    Examples
    --------
    >>> import tempfile
    >>> from eigenfed.study.config import start_study
    >>> with tempfile.TemporaryDirectory() as home:
    ...     started = start_study(Path(home), sites=["a", "b"], components=2)
    ...     read_rehearsal(started.study, started.sites.values()).absent
    ()
    """
    agreed = read_study(study)
    if agreed.merges_streams:
        raise InputError(
            f"{agreed.path}: method merges summaries of streams, which sites send between machines "
            "only. Use eigenfed coordinate, or merge the files here with eigenfed merge."
        )
    found: dict[str, SiteFile] = {}
    for path in sites:
        site = read_site(path)
        if site.name not in agreed.sites:
            raise DataError(
                f'{site.path}: name = "{site.name}" is not one of the sites of {agreed.path}: '
                f"{quote_names(agreed.sites)}. Use one of these names, or add the site to the "
                "study."
            )
        if site.name in found:
            raise InputError(
                f"{found[site.name].path} and {site.path} both describe the site {site.name!r}. "
                "Pass one of them."
            )
        if site.has_summary:
            raise DataError(
                f"{site.path}: data is a summary, and {agreed.path} needs rows. Name their file, "
                "or set max_summaries in method of the study."
            )
        check_approved(agreed, site)
        check_terms(agreed, site)
        found[site.name] = site
    if len(found) < agreed.quorum:
        raise InputError(
            f"{agreed.path}: a run requires quorum = {agreed.quorum} sites, and there are "
            f"{len(found)}. Pass the files of more sites."
        )
    _check_ledgers(found)
    return Rehearsal(agreed, dict(sorted(found.items())))


def check_approved(study: StudyFile, site: SiteFile) -> None:
    """Refuse a study that a site has not approved, if the site lists approved studies."""
    digest = study.study.digest
    if site.approved is not None and digest not in site.approved:
        raise Refusal(
            "unapproved",
            f"{site.path}: approved does not list {study.path}, whose digest is {digest}. Read the "
            "study, and add the digest to approve it.",
        )


def check_terms(study: StudyFile, site: SiteFile) -> None:
    """Refuse a private study if the file of a site lacks what that requires."""
    if study.privacy is None:
        return
    if site.ledger is None:
        raise DataError(
            f"{site.path}: ledger is required, as {study.path} has [privacy]. Set "
            f'ledger = "{site.name}.ledger".'
        )
    if site.policy.budget is None:
        raise DataError(
            f"{site.path}: [policy.budget] is required, as {study.path} has [privacy]: it is the "
            "most that all runs on these rows may spend together. For this study alone, write "
            f"[policy.budget] with epsilon = {study.privacy.epsilon:g} and "
            f"delta = {study.privacy.delta:g}; a second run needs more."
        )
    if site.share_scores:
        raise DataError(
            f"{site.path}: share_scores = true shows single rows and cannot be combined with "
            f"[privacy] in {study.path}. Set share_scores = false."
        )
    if study.privacy.trust == "central" and not site.policy.trusts_coordinator:
        raise Refusal(
            "untrusted",
            f"{site.path}: policy.trusts_coordinator = false, but {study.path} has trust = "
            '"central", with which sums leave without noise. Change the study, or set '
            "trusts_coordinator = true.",
        )


def _check_ledgers(sites: Mapping[str, SiteFile]) -> None:
    owners: dict[tuple[Path, str], SiteFile] = {}
    for site in sites.values():
        if site.ledger is None:
            continue
        account = (site.ledger.resolve(), site.dataset)
        if account in owners:
            raise DataError(
                f"{owners[account].path} and {site.path} name the same ledger and dataset, so "
                "their rows would count as the same. Give each site its own ledger."
            )
        owners[account] = site


def _open_ledgers(sites: Mapping[str, SiteFile]) -> dict[str, Ledger]:
    # Not closed explicitly: if one site refuses, other sites may still be recording requests of
    # the same round. A ledger closes when its last reference goes.
    return {name: Ledger(site.ledger) for name, site in sites.items() if site.ledger is not None}
