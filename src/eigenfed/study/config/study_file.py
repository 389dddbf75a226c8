"""The study file: its keys, what cannot be combined, and the files that it names."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from eigenfed.data.genotypes import Variants
from eigenfed.data.readers.plink import read_manifest
from eigenfed.data.steps import filters_variants
from eigenfed.errors import DataError, PrivacyError
from eigenfed.privacy.privacy_terms import PUBLIC, Privacy
from eigenfed.privacy.secagg.identity import LEAST_SITES
from eigenfed.protocol.component_count import is_open
from eigenfed.protocol.exact.krylov import Krylov
from eigenfed.protocol.method import AUTO
from eigenfed.protocol.study import BY_SITE, GENOTYPE, GENOTYPE_TOL, TOL, Study
from eigenfed.study.config.fields import (
    NAME_RULE,
    FilePath,
    Flag,
    MethodOption,
    Name,
    NonEmptyList,
    NotNegativeNumber,
    Positive,
    PositiveNumber,
    Ratio,
    Seed,
    Share,
    Steps,
    TomlFile,
    TomlTable,
    read_as,
)
from eigenfed.study.config.named_files import (
    digest_names,
    digest_variants,
    read_names,
    read_spectrum,
    read_variant_names,
)
from eigenfed.study.config.network_table import (
    Engine,
    NetworkSettings,
    NetworkTable,
    find_network_conflicts,
)
from eigenfed.study.config.privacy_table import PrivacyTable, build_privacy
from eigenfed.study.config.toml_errors import STUDY_KEYS, validate
from eigenfed.study.config.toml_text import read_document

_TOO_FEW = (
    f"requires at least {LEAST_SITES} sites: with two, each could compute the part of the other."
)

FeatureName = Annotated[str, Field(strict=True, min_length=1)]


class ExpectedTable(TomlTable, title="[expected]"):
    """What eigenfed plan assumes about the sites.

    A run does not read it.
    """

    rows: dict[Name, Positive] | None = Field(
        default=None,
        title="an integer of at least 1 for each of some of the sites",
        examples=[{"north": 3000, "south": 900, "island": 150}],
        json_schema_extra={"additionalProperties": False},
    )
    """Number of rows at each site."""
    features: Positive | None = Field(default=None, examples=[120])
    """Number of features."""
    latency_ms: NotNegativeNumber | None = Field(default=None, examples=[40.0])
    """Time of a message from the coordinator to a site and back, in milliseconds."""
    bandwidth_mbps: PositiveNumber | None = Field(default=None, examples=[20.0])
    """Bandwidth of the coordinator, shared by all sites, in megabits per second."""
    decay: Ratio | None = Field(default=None, examples=[0.9])
    """Ratio of each eigenvalue of the covariance to the one before it."""
    spectrum: FilePath | None = Field(default=None, examples=["spectrum.txt"])
    """File with one eigenvalue per line, the largest first, in place of decay. The path is relative
    to this file.
    """

    def find_conflicts(self, data: Mapping[str, Any]) -> Iterator[str]:
        """Yield what is wrong if two keys describe the same."""
        if self.decay is not None and self.spectrum is not None:
            yield "decay and spectrum in [expected] both describe eigenvalues. Keep one of them."


@dataclass(frozen=True)
class Expected:
    """What eigenfed plan assumes about the sites; `ExpectedTable` describes the values.

    Attributes
    ----------
    spectrum : tuple of float, Path or None
        Decreasing eigenvalues, of which only the ratios matter; `read_study` reads them from the
        file that the table names.
    """

    rows: dict[str, int] | None = None
    features: int | None = None
    latency_ms: float | None = None
    bandwidth_mbps: float | None = None
    decay: float | None = None
    spectrum: tuple[float, ...] | Path | None = None


class StudyFile(TomlFile, title="study.toml"):
    """A study: what the sites compute together.

    Every site reads this file and approves it.
    """

    name: Name = Field(examples=["three-hospitals"])
    """Name of the study."""
    sites: NonEmptyList[Name] = Field(
        title=f"a list of names, each once, of {NAME_RULE}",
        examples=[["north", "south", "island"]],
    )
    """Names of the sites that may take part."""
    components: Positive | Share | Literal["all", "auto"] = Field(
        examples=[4],
        title='an integer of at least 1, a fraction of the variance below 1, "all" or "auto"',
    )
    """Number of components: an integer, a fraction of the variance such as 0.95, "all", or "auto"
    for those that stand out from noise (parallel analysis).
    """
    method: MethodOption = AUTO
    """Method: a name, a table with options such as { name = "power", local_steps = 2 }, or "auto"
    for the method with the lowest predicted cost.
    """
    center: Flag | Literal["site"] = Field(
        default=True,
        title='true, false or "site"',
        json_schema_extra={"$comment": 'Write true, false or "site".'},
    )
    """Whether to subtract the mean over all sites from the features. "site": each site subtracts
    its own mean, for components of what varies within sites.
    """
    prepare: Steps = Field(
        default=(), examples=[["normalize:10000", "select:2000", "log1p", "standardize:10"]]
    )
    """Steps that prepare the rows before all else, in this order. normalize:10000 divides each row
    by its total, times 10000; log1p takes log(1 + x) of each entry; select:2000 keeps the features
    that vary most over all sites; standardize:10 comes last, standardises features over all sites
    and clips them at 10 standard deviations. Variants of genotypes are filtered by autosomes,
    exclude_long_range_ld:GRCh37, call_rate:0.98, maf:0.01, hwe:1e-6, ld:1000kb:0.1 or matched.
    """
    scale: Flag | Literal["genotype"] = Field(
        default_factory=lambda data: _prefer_scale(data),
        title='true, false or "genotype"',
        examples=[False],
        json_schema_extra={"$comment": 'Write true, false or "genotype".'},
    )
    """Whether to divide the features by their standard deviation over all sites. "genotype": by
    sqrt(2p(1 - p)) with p the frequency of the allele over all sites, for .bed files. By default
    "genotype" if prepare filters variants, and false otherwise.
    """
    secure: Flag = Field(default_factory=lambda data: _prefers_secure(data), examples=[False])
    """Whether to use secure aggregation: the coordinator sees sums over sites and no reply of a
    single site. By default only if prepare filters variants of genotypes, at three sites or more.
    """
    features: Literal["same", "common"] | NonEmptyList[FeatureName] = Field(
        default="same", title='"same", "common", or a list of names, each once'
    )
    """Features to use: "same" if all sites must have the same columns, "common" for the columns
    that all sites have, or a list of names.
    """
    manifest: FilePath | None = Field(default=None, examples=["features.txt"])
    """File with the name of one feature per line, in place of features; or a .bim file with the
    variants of the study, to which sites match theirs by chromosome, position and alleles. The
    path is relative to this file.
    """
    ambiguous: Literal["drop", "keep"] = Field(default="drop", examples=["drop"])
    """With a manifest of variants: whether those with the alleles A and T, or C and G, are left
    out, or taken as if all sites had read the same strand.
    """
    by_site: Flag = Field(default=False, examples=[True])
    """Whether each site reports the mean and the variance of its own rows along the components."""
    quorum: Positive = Field(
        default_factory=lambda data: len(data.get("sites", ())),
        examples=[3],
        json_schema_extra={"$comment": "Leave it out to wait for all sites."},
    )
    """Number of sites that must be present for a run to start. By default all of them."""
    deadline_s: PositiveNumber | None = Field(default=None, examples=[600.0])
    """Time to wait for the reply of a site, in seconds. By default there is no limit."""
    engine: Engine = "in_process"
    """How messages travel. in_process: all sites run in one process. nvflare: between machines, by
    NVIDIA FLARE. files: as files in a folder, for sites without a network. Sites approve the same
    study with each of them.
    """
    tol: Annotated[PositiveNumber, Field(lt=90.0)] = Field(
        default_factory=lambda data: _prefer_tol(data), examples=[1e-4]
    )
    """Largest angle between a component and the eigenvector that it approximates, in degrees, at
    which an iteration stops. By default 1e-4, and 0.05 if scale = "genotype".
    """
    certify: Literal["auto", "rigorous"] | Flag = Field(
        default="auto", title='"auto", "rigorous" or false'
    )
    """Certificate of the accuracy. auto: a bound on the angle from the run itself, which may fail
    with a stated probability of about one in a million. rigorous: the sites compute more, so that
    nothing is left to chance where possible. false: none.
    """
    seed: Seed | None = Field(default=None, examples=[7])
    """Seed of public random starts. It is never used for noise."""
    privacy: Annotated[Privacy, read_as(PrivacyTable, build_privacy)] | None = None
    network: Annotated[NetworkSettings, read_as(NetworkTable, NetworkSettings)] | None = None
    expected: Annotated[Expected, read_as(ExpectedTable, Expected)] | None = None

    @property
    def study(self) -> Study:
        """What the sites approve; people compare its digest."""
        is_genotype = self.scale == GENOTYPE
        return Study(
            tuple(sorted(self.sites)),
            self.components,
            Krylov.name if is_genotype and self.method == AUTO else self.method,
            name=self.name,
            center=self.center,
            scale=self.scale,
            secure=self.secure,
            by_site=self.by_site,
            privacy=self.privacy,
            prepare=self.prepare,
            tol=self.tol,
            stop="separated" if is_genotype else "all",
            certify=self.certify,
            features=self._features_digest,
        )

    @property
    def merges_streams(self) -> bool:
        """Whether sites send summaries of streams, which are merged."""
        return not isinstance(self.method, str) and self.method.merges_streams()

    @property
    def matches_variants(self) -> bool:
        """Whether the manifest holds variants, to which sites match theirs."""
        return self.manifest is not None and self.manifest.suffix == ".bim"

    def read_variants(self) -> Variants | None:
        """Return the variants of the manifest; None if it has none."""
        if self.manifest is None or not self.matches_variants:
            return None
        return read_manifest(self.manifest)

    @property
    def _features_digest(self) -> str:
        """Digest of what identifies the features; empty if they are not agreed on."""
        if isinstance(self.features, str):
            return ""
        if self.matches_variants and self.manifest is not None:
            return digest_variants(self.manifest, self.ambiguous)
        return digest_names(self.features)

    def find_conflicts(self, data: Mapping[str, Any]) -> Iterator[str]:
        """Yield what is wrong with keys that cannot be combined, or with the number of sites."""
        is_plain = self.center is True and self.privacy is None
        if self.scale == GENOTYPE and not (
            is_plain and (not self.prepare or filters_variants(self.prepare))
        ):
            yield (
                'scale = "genotype" requires center = true, and cannot be combined with [privacy] '
                "or with steps in prepare other than those for variants. Change one of them."
            )
            return
        found = [
            *self._compare_keys(data),
            *self._compare_with_sites(data),
            *find_network_conflicts(self.engine, self.network, self.features, data),
        ]
        yield from found or self._check_noise()

    def _compare_keys(self, data: Mapping[str, Any]) -> Iterator[str]:
        method = None if isinstance(self.method, str) else self.method
        has_options = isinstance(data.get("method"), Mapping) and len(data["method"]) > 1
        if "manifest" in data and "features" in data:
            yield "manifest and features both select the features. Keep one of them."
        if self.matches_variants and not self.study.filters_variants:
            yield (
                "manifest has variants, of which sites may lack some, and prepare has no step for "
                'variants. Add a step, at least "matched".'
            )
        if self.ambiguous == "keep" and not self.matches_variants:
            yield "ambiguous requires a manifest of variants, a .bim file. Drop it, or add one."
        if self.by_site and self.secure:
            yield (
                "by_site = true cannot be combined with secure = true: it reports statistics of "
                "single sites, and secure aggregation reveals sums over sites only. Set one of "
                "them to false."
            )
        if self.by_site and self.privacy:
            yield (
                "by_site = true cannot be combined with [privacy]: it reports statistics of single "
                "sites without noise. Set by_site = false."
            )
        conflict = self.study.step_conflict
        if conflict:
            setting, reason = ("[privacy]", conflict[1]) if conflict[0] == "privacy" else conflict
            shown = setting if isinstance(setting, str) else setting.worded(STUDY_KEYS)
            yield f"prepare cannot be combined with {shown}{reason}. Change one of them."
        if self.merges_streams and self.study.stream_conflict:
            yield (
                f"{self.study.stream_conflict} cannot be combined with max_summaries in method: "
                "summaries of streams are merged as they are, of rows that are centred and not "
                "scaled, and for a number of components. Leave it out, or change it."
            )
            return
        if self.merges_streams and self.deadline_s is not None:
            yield (
                "deadline_s cannot be combined with max_summaries in method: sites send summaries "
                "when they have them. Leave it out."
            )
        if self.secure and method and not method.sums_only():
            yield (
                "method must be one that needs only sums over sites if secure = true; this one "
                'needs replies of single sites. Set method = "auto".'
            )
        if self.privacy and method and (has_options or not method.private):
            yield (
                "method must be one that supports differential privacy, without options, if there "
                'is a [privacy]. Set method = "auto".'
            )
        if self.privacy and self.center == BY_SITE:
            yield (
                'center = "site" cannot be combined with [privacy]: how far one row changes sums '
                "about the mean of its own site is not proven. Set center = true."
            )
        if self.privacy and not isinstance(self.components, int):
            yield (
                "components must be an integer if there is a [privacy]: its noise is shared out "
                "for a number of components that is known beforehand. Set components = 4, for "
                "example."
            )
        if is_open(self.components) and method and not method.finds_count():
            yield (
                "components must be an integer for this method, which needs the number before it "
                'starts. Set method = "auto", or components = 4, for example.'
            )
        yield from self._compare_public()
        if self.secure and self.privacy and not self._sums_noise:
            yield 'secure = true requires trust = "secure_sum" in [privacy]. Change one of them.'

    def _compare_public(self) -> Iterator[str]:
        """Yield what is wrong with numbers for single features, whose order must be agreed on."""
        for name in PUBLIC:
            numbers = None if self.privacy is None else getattr(self.privacy, name)
            if not isinstance(numbers, tuple):
                continue
            listed = None if isinstance(self.features, str) else len(self.features)
            if (listed is None and self.manifest is None) or listed not in (None, len(numbers)):
                yield (
                    f"{name} in [privacy] has {len(numbers)} numbers, and features must list as "
                    "many, in that order. Add the list, or give one number for all."
                )

    def _compare_with_sites(self, data: Mapping[str, Any]) -> Iterator[str]:
        is_small = len(self.sites) < LEAST_SITES
        is_low = "quorum" in data and self.quorum < LEAST_SITES
        if self.secure and is_small:
            yield f"secure = true {_TOO_FEW} Add sites, or set secure = false."
        if self._sums_noise and is_small:
            yield (
                f'[privacy] with trust = "secure_sum" {_TOO_FEW} Add sites, or set trust = "local" '
                "in [privacy]."
            )
        if is_low and self.secure:
            yield (
                f"quorum must be at least {LEAST_SITES} if secure = true: secure aggregation over "
                "fewer sites is refused. Raise quorum, or leave it out."
            )
        if is_low and self._sums_noise:
            yield (
                f'quorum must be at least {LEAST_SITES} if [privacy] has trust = "secure_sum". '
                "Raise quorum, or leave it out."
            )
        if self.quorum > len(self.sites):
            yield (
                f"quorum = {self.quorum} must be at most {len(self.sites)}, the number of sites. "
                "Lower it, or leave it out to wait for all sites."
            )
        rows = self.expected.rows if self.expected else None
        for name in sorted(set(rows or ()) - set(self.sites)):
            yield f"expected.rows names {name!r}, which is not in sites. Remove it or add it there."

    @property
    def _sums_noise(self) -> bool:
        return self.privacy is not None and self.privacy.trust == "secure_sum"

    def _check_noise(self) -> Iterator[str]:
        sites = len(self.sites)
        try:
            if self.privacy is not None:
                self.privacy.check_sites(sites, 2 * sites // 3 + 1)
        except PrivacyError as error:
            yield error.worded(STUDY_KEYS)


def _prefers_secure(data: Mapping[str, Any]) -> bool:
    """Return the default of secure: whether counts of genotypes should not leave sites alone."""
    steps, sites = data.get("prepare", ()), data.get("sites", ())
    return filters_variants(steps) and len(sites) >= LEAST_SITES


def _prefer_scale(data: Mapping[str, Any]) -> Literal[False, "genotype"]:
    """Return the default of scale: steps that filter variants are for genotypes."""
    return "genotype" if filters_variants(data.get("prepare", ())) else False


def _prefer_tol(data: Mapping[str, Any]) -> float:
    """Return the default of tol: genotypes are multiplied in single precision."""
    return GENOTYPE_TOL if data.get("scale") == GENOTYPE else TOL


def read_study(path: str | Path) -> StudyFile:
    r"""Read the file of a study and the files that it names.

    Parameters
    ----------
    path : path

    Returns
    -------
    StudyFile
        `features` has the names from `manifest`, if there is one.

    Raises
    ------
    InputError
        If the file, or one that it names, cannot be opened.
    DataError
        If it breaks a rule; the error names the file, the line, the key, the rule and the remedy.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "study.toml")
    ...     _ = path.write_text('name = "heart"\nsites = ["a", "b"]\ncomponents = 2\n')
    ...     study = read_study(path)
    >>> study.method, study.features, study.quorum, study.privacy
    ('auto', 'same', 2, None)
    """
    document = read_document(Path(path))
    if "data" in document.data and "sites" not in document.data:
        raise DataError(
            f"{path} describes a site, and a study file must be here. Pass the file that has "
            "sites and components."
        )
    study = validate(StudyFile, document)
    values: dict[str, Any] = {}
    if study.manifest is not None:
        read = read_variant_names if study.matches_variants else read_names
        values["features"] = read(study.manifest)
    if study.expected is not None and isinstance(study.expected.spectrum, Path):
        spectrum = read_spectrum(study.expected.spectrum)
        values["expected"] = replace(study.expected, spectrum=spectrum)
    return study.model_copy(update=values)
