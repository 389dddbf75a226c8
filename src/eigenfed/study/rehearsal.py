"""A study run in one process, on the files of all of its sites: a rehearsal, or a study of one.

Everything that the study and the sites say takes effect as it would between machines: who may take
part and how many must, which rows and features are taken, what each site allows, and what is paid
in its ledger.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from eigenfed.data.column_names import differences, listed
from eigenfed.data.files import FileTable, read_feature_names
from eigenfed.errors import DataError, InputError, Refusal
from eigenfed.estimators.federated import FederatedPCA
from eigenfed.privacy.ledger.ledger import Ledger, Totals
from eigenfed.study.config import SiteFile, StudyFile, read_site, read_study, speaking_of_keys
from eigenfed.study.scores import Rows
from eigenfed.transport.rounds import RoundRecord


class RehearsalRun(NamedTuple):
    """What a fit leaves: the open file of each site, and the totals of those that have a ledger."""

    tables: dict[str, FileTable]
    ledgers: dict[str, Totals]


@dataclass(frozen=True)
class Rehearsal:
    """A study and those of its sites that are there.

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
        """The study's sites that are not there."""
        return tuple(name for name in self.study.sites if name not in self.sites)

    @property
    def records(self) -> dict[str, Rows]:
        """The rows of each site that count."""
        return {
            name: Rows(site.data, site.id_column, site.where) for name, site in self.sites.items()
        }

    @property
    def sharing(self) -> frozenset[str]:
        """The sites that let their rows be shown as points."""
        return frozenset(name for name, site in self.sites.items() if site.share_scores)

    def estimator(self) -> FederatedPCA:
        """Return what the study asks for, to be fitted."""
        study = self.study
        return FederatedPCA(
            study.components,
            method=study.method,
            center=study.center,
            scale=study.scale,
            secure=study.secure,
            privacy=study.privacy,
            random_state=study.seed,
        )

    def fit(
        self, pca: FederatedPCA, callback: Callable[[RoundRecord], None] | None = None
    ) -> RehearsalRun:
        """Fit an estimator to the rows of the sites that are there.

        Parameters
        ----------
        pca : FederatedPCA
            From `estimator`.
        callback : callable, optional
            Called with each ask when it is over.

        Returns
        -------
        RehearsalRun

        Raises
        ------
        DataError
            If the rows do not fit the study, or a ledger is broken.
        PrivacyError
            If privacy does not allow what the study asks for, or a site's ledger is not there:
            nothing runs then.
        SiteRefused
            If a site's policy or ledger forbids an ask.
        """
        ledgers = _opened(self.sites)
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
        """Open all files with the same features in the same order, so that none is copied."""
        wanted = self._features()
        tables = {}
        for name, records in self.records.items():
            with speaking_of_keys(f"{self.sites[name].path}: "):
                tables[name] = records.table(wanted)
        return tables

    def _features(self) -> list[str] | None:
        if not isinstance(self.study.features, str):
            return list(self.study.features)
        columns = {}
        for name, site in self.sites.items():
            with speaking_of_keys(f"{site.path}: "):
                features = read_feature_names(site.data, site.id_column)
            if features is None:
                return None
            columns[name] = features
        first = next(iter(columns.values()))
        common = [name for name in first if all(name in found for found in columns.values())]
        if self.study.features == "same" and any(len(f) > len(common) for f in columns.values()):
            raise DataError(
                f'{self.study.path}: features = "same", and the sites differ in '
                f"{differences(columns)}. Rename or bring them, list those to take, or write "
                'features = "common".'
            )
        if not common:
            raise DataError(
                f"{self.study.path}: the sites have no feature in common. Check their columns' "
                "names."
            )
        return common


def rehearsal_of(study: Path, sites: Iterable[Path]) -> Rehearsal:
    """Read a study and its sites, and see that they go together.

    Parameters
    ----------
    study : Path
    sites : iterable of Path
        The sites' own files.

    Raises
    ------
    InputError, DataError
        If a file breaks a rule, or they do not go together.
    Refusal
        If a site has not approved the study, or does not trust whom it wants it to trust.

    Examples
    --------
    >>> import tempfile
    >>> from eigenfed.study.config import start_study
    >>> with tempfile.TemporaryDirectory() as home:
    ...     started = start_study(Path(home), sites=["a", "b"], components=2)
    ...     rehearsal_of(started.study, started.sites.values()).absent
    ()
    """
    agreed = read_study(study)
    found: dict[str, SiteFile] = {}
    for path in sites:
        site = read_site(path)
        if site.name not in agreed.sites:
            raise DataError(
                f'{site.path}: name = "{site.name}" is not one of the sites of {agreed.path}: '
                f"{listed(agreed.sites)}. Take one of them, or have the study name it."
            )
        if site.name in found:
            raise InputError(
                f"{found[site.name].path} and {site.path} are both the site {site.name!r}. Pass "
                "one of them."
            )
        check_approved(agreed, site)
        _check_terms(agreed, site)
        found[site.name] = site
    if len(found) < agreed.quorum:
        raise InputError(
            f"{agreed.path}: a run needs quorum = {agreed.quorum} sites, and there are "
            f"{len(found)}. Pass the files of more of them."
        )
    _check_ledgers(found)
    return Rehearsal(agreed, dict(sorted(found.items())))


def check_approved(study: StudyFile, site: SiteFile) -> None:
    """Refuse a study that is not among those that a site has approved, where it lists some."""
    digest = study.study.digest
    if site.approved is not None and digest not in site.approved:
        raise Refusal(
            "unapproved",
            f"{site.path}: approved does not have {study.path}, whose digest is {digest}. Read the "
            "study, and add the digest if the site takes part.",
        )


def _check_terms(study: StudyFile, site: SiteFile) -> None:
    if study.privacy is None:
        return
    if site.ledger is None:
        raise DataError(
            f"{site.path}: ledger is needed, as {study.path} has [privacy] and noise is paid for "
            f'in one. Write ledger = "{site.name}.ledger".'
        )
    if site.share_scores:
        raise DataError(
            f"{site.path}: share_scores = true shows single rows, and {study.path} has [privacy]. "
            "Set share_scores = false."
        )
    if study.privacy.trust == "central" and not site.policy.trusts_coordinator:
        raise Refusal(
            "untrusted",
            f"{site.path}: policy.trusts_coordinator = false, and {study.path} has trust = "
            '"central", with which sums leave without noise. Change the study, or set '
            "trusts_coordinator = true.",
        )


def _check_ledgers(sites: Mapping[str, SiteFile]) -> None:
    kept: dict[tuple[Path, str], SiteFile] = {}
    for site in sites.values():
        if site.ledger is None:
            continue
        place = (site.ledger.resolve(), site.dataset)
        if place in kept:
            raise DataError(
                f"{kept[place].path} and {site.path} name the same ledger and dataset, and their "
                "rows would be taken for the same. Give each site a ledger of its own."
            )
        kept[place] = site


def _opened(sites: Mapping[str, SiteFile]) -> dict[str, Ledger]:
    # They close when nobody holds them any more and not before: where one site refuses, others
    # may still be writing down what they were asked in the same round.
    return {name: Ledger(site.ledger) for name, site in sites.items() if site.ledger is not None}
