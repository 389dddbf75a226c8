"""Runs of an estimator, with or without a transcript to resume from.

A transcript resumes a run in one of three ways:

- The sites are still there, because the run was interrupted in this very process: they go on from
  the round that is missing. Nothing that was answered, masked or paid for happens twice.
- The sites are gone, and the run has neither secure aggregation nor privacy: new sites answer the
  recorded rounds again, which brings them to where the old ones were. Their answers are compared
  with the recorded ones, so that changed rows are noticed.
- All rounds are recorded: the result is computed from them, and no site is asked.

With secure aggregation or privacy a site that is gone has taken with it the secrets of its masks,
or its place in the order of what it had paid for. Such a run cannot be resumed.
"""

import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Arrays
from eigenfed.data.genotypes import Genotypes
from eigenfed.data.loci import find_loci
from eigenfed.data.source import Source
from eigenfed.errors import Argument, InputError, PrivacyError, ProtocolError, SiteLost
from eigenfed.estimators.in_process import (
    Conditions,
    Federation,
    choose_study_method,
    federation,
    total_of,
)
from eigenfed.linalg.sparse_rows import ScatteredSparse
from eigenfed.privacy.secagg.identity import Roster
from eigenfed.protocol.core import Call, Protocol, Replies, drive
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.gate.records import Egress
from eigenfed.protocol.pca import pca
from eigenfed.protocol.study import Study
from eigenfed.transport.engine import Engine
from eigenfed.transport.local import LocalTransport
from eigenfed.transport.rounds import RoundRecord
from eigenfed.transport.run_account import Leakage, RunAccount, SiteAccount
from eigenfed.transport.transcript import Transcript

_log = logging.getLogger(__name__)
_CLOSE = 1e-6
"""How far answers may be from recorded ones, relative to the largest: BLAS may round otherwise."""


@dataclass(frozen=True, eq=False)
class Setting:
    """All that a run starts from.

    Attributes
    ----------
    study : Study
    sources : dict of str to Source
    conditions : Conditions
    engine : Engine
    seed : int
        For public starts.
    is_seeded : bool
        Whether the caller has chosen the seed.
    """

    study: Study
    sources: dict[str, Source]
    conditions: Conditions
    engine: Engine
    seed: int
    is_seeded: bool

    def connect(self) -> Federation:
        """Make the sites and open a run at them."""
        return federation(self.study, self.sources, self.conditions, self.engine)

    def protocol(self, study: Study, roster: Roster | None, run: str) -> Protocol[Decomposition]:
        """Return the coordinator's half of the run."""
        rows = next(iter(self.sources.values())).n if study.split == "features" else None
        rng = np.random.default_rng(self.seed)
        loci = find_loci(next(iter(self.sources.values())).X)
        return pca(study, rng=rng, total=total_of(roster, run), rows=rows, loci=loci)


@dataclass(frozen=True, eq=False)
class RunOutcome:
    """What came of a run.

    Attributes
    ----------
    found : Decomposition
    rounds, egress
        As in `RunAccount`.
    accounts : dict of str to SiteAccount
        From which the leakage can be computed; empty where it is known.
    leakage : Leakage or None
    """

    found: Decomposition
    rounds: tuple[RoundRecord, ...]
    egress: dict[str, tuple[Egress, ...]]
    accounts: dict[str, SiteAccount]
    leakage: Leakage | None = None


def run_once(setting: Setting) -> RunOutcome:
    """Run a study without a transcript."""
    run = setting.connect()
    if isinstance(run.transport, LocalTransport):
        run.transport.forget_replies()
    try:
        protocol = setting.protocol(run.study, run.roster, run.transport.run)
        found = drive(protocol, run.transport)
    finally:
        run.transport.close()
    return _outcome(found, run, setting)


def run_recorded(setting: Setting, path: str | os.PathLike[str]) -> RunOutcome:
    """Run a study with a transcript, or resume the run that a transcript was begun for.

    Raises
    ------
    InputError
        If the file cannot be written, or is the transcript of another study.
    PrivacyError
        If the run cannot be resumed because its sites are gone.
    """
    begun = Path(path).exists() and Path(path).stat().st_size > 0
    return _resume(setting, path) if begun else _begin(setting, path)


def leakage_of(sites: Mapping[str, Any], accounts: Mapping[str, SiteAccount]) -> Leakage:
    """Return the leakage of the most revealing site; one that is lost has revealed everything."""
    if sites.keys() - accounts.keys():
        return Leakage(1.0, 1.0)
    meters = [account.meter for account in accounts.values()]
    return Leakage(
        max(meter.rank_fraction for meter in meters),
        max(meter.variance_fraction for meter in meters),
    )


# A run and its record -----------------------------------------------------------------------------


def _begin(setting: Setting, path: str | os.PathLike[str]) -> RunOutcome:
    run = setting.connect()
    about = _topic(setting.study, setting.sources) | {
        "seed": setting.seed,
        "roster": run.roster and {name: key.hex() for name, key in run.roster.keys.items()},
    }
    try:
        record = _open_file(path, run.transport.run, about)
    except BaseException:
        run.transport.close()
        raise
    with record:
        return _continue(setting, run, record)


def _resume(setting: Setting, path: str | os.PathLike[str]) -> RunOutcome:
    with _open_file(path, None, None) as record:
        _check_topic(setting, record, path)
        setting = replace(setting, seed=int(record.about["seed"]))
        kept = _take_paused(record.run, setting)
        if kept is not None:
            own, conditions = setting.engine.deadline_s, setting.conditions
            deadline_s = own if conditions.deadline_s is None else conditions.deadline_s
            kept.transport.rewind(record.rounds, deadline_s, conditions.callback)
            _log.info("run %s goes on from round %d at its sites", record.run, record.rounds)
            return _continue(setting, kept, record)
        return _replay(setting, record, path)


def _continue(setting: Setting, run: Federation, record: Transcript) -> RunOutcome:
    """Drive a run at its sites to its end, or keep them until it is resumed."""
    try:
        protocol = setting.protocol(run.study, run.roster, record.run)
        found = drive(protocol, run.transport, record)
    except BaseException:
        _pause(_Paused(record.run, setting, run))
        raise
    return _finish(found, run, setting, record)


def _finish(
    found: Decomposition, run: Federation, setting: Setting, record: Transcript
) -> RunOutcome:
    run.transport.close()
    outcome = _outcome(found, run, setting)
    leakage = leakage_of(setting.sources, outcome.accounts)
    record.finish(RunAccount(outcome.rounds, outcome.egress, leakage).to_json())
    return replace(outcome, leakage=leakage)


def _outcome(found: Decomposition, run: Federation, setting: Setting) -> RunOutcome:
    accounts = run.transport.accounts
    egress = {name: accounts[name].egress if name in accounts else () for name in setting.sources}
    found = replace(found, why=found.why or run.reason)
    return RunOutcome(found, tuple(run.transport.log), egress, accounts)


# Sites that are gone ------------------------------------------------------------------------------


def _replay(setting: Setting, record: Transcript, path: str | os.PathLike[str]) -> RunOutcome:
    """Compute what the record holds, and ask new sites for the rest, if they can give it."""
    known = record.about.get("roster")
    roster = known and Roster({name: bytes.fromhex(key) for name, key in known.items()})
    study, reason = choose_study_method(setting.study, setting.sources, setting.conditions)
    successors = _Successors(setting, record, path)
    try:
        found = drive(setting.protocol(study, roster, record.run), successors, successors)
    except BaseException:
        successors.leave()
        raise
    if successors.run is not None:
        return _finish(found, successors.run, setting, record)
    warnings.warn(
        f"All rounds come from the transcript {os.fspath(path)}: the result is that of the "
        "recorded run, and no site was asked. Delete the file to fit again.",
        UserWarning,
        stacklevel=6,
    )
    found = replace(found, why=found.why or reason)
    if record.account is None:  # interrupted between the last round and the account of it
        unknown: dict[str, tuple[Egress, ...]] = dict.fromkeys(setting.sources, ())
        return RunOutcome(found, (), unknown, {}, Leakage(1.0, 1.0))
    account = RunAccount.from_json(record.account)
    return RunOutcome(found, account.rounds, account.egress, {}, account.leakage)


class _Successors:
    """Replays a record, and makes new sites when it is at its end: a transport and its record."""

    def __init__(self, setting: Setting, record: Transcript, path: str | os.PathLike[str]) -> None:
        self._setting, self._record, self._path = setting, record, path
        self._replayed: list[Call[Any]] = []
        self._is_ready = False
        self.run: Federation | None = None

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, sorted."""
        return tuple(sorted(self._setting.sources))

    def replay(self, round_: int, call: Call[Any]) -> Replies | SiteLost | None:
        """Return the outcome of a recorded round."""
        known = self._record.replay(round_, call)
        if known is not None:
            self._replayed.append(call)
        return known

    def keep(self, round_: int, call: Call[Any], outcome: Replies | SiteLost) -> None:
        """Record the outcome of a round."""
        self._record.keep(round_, call, outcome)

    def exchange(self, round_: int, call: Call[Any]) -> Iterator[tuple[str, Arrays]]:
        """Yield the replies of sites that have caught up."""
        if self.run is None:
            self._check_possible()
            self.run = self._setting.connect()
            _log.info("%d recorded rounds are asked again of new sites", round_)
            drive(self._repeat(), self.run.transport)
            self._is_ready = True
        return self.run.transport.exchange(round_, call)

    def leave(self) -> None:
        """Keep the new sites for another resume if they have caught up; else close them."""
        if self.run is not None and self._is_ready:
            _pause(_Paused(self._record.run, self._setting, self.run))
        elif self.run is not None:
            self.run.transport.close()

    def _check_possible(self) -> None:
        study = self._setting.study
        if study.masked or study.privacy is not None:
            lost = "the secrets of their masks" if study.masked else "what they had paid for"
            raise PrivacyError(
                f"The sites of the interrupted run are gone, and with them {lost}: a run with "
                "secure aggregation or privacy is resumed in the process that began it",
                remedy=(
                    f"Delete {os.fspath(self._path)} and fit again; privacy that ledgers record "
                    "as spent stays spent."
                ),
            )

    def _repeat(self) -> Protocol[None]:
        for round_, call in enumerate(self._replayed):
            replies = yield call
            known = self._record.replay(round_, call)
            if isinstance(known, SiteLost) or not _are_close(replies, known or {}):
                raise ProtocolError(
                    f"The sites answer round {round_} differently from {os.fspath(self._path)}: "
                    "their rows are not those of the interrupted run. Bring those rows, or delete "
                    "the transcript and fit again."
                )


def _are_close(replies: Replies, known: Replies) -> bool:
    return replies.keys() == known.keys() and all(
        replies[site].keys() == known[site].keys()
        and all(_is_close(replies[site][name], array) for name, array in known[site].items())
        for site in known
    )


def _is_close(array: npt.NDArray[Any], known: npt.NDArray[Any]) -> bool:
    if array.shape != known.shape:
        return False
    size = float(np.abs(known).max()) if known.size else 0.0
    return bool(np.allclose(array, known, rtol=0.0, atol=_CLOSE * size))


# Sites that are still there -----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Paused:
    """An interrupted run, with its sites."""

    name: str
    setting: Setting
    run: Federation


_paused: list[_Paused] = []
"""The run with a transcript that was interrupted last, if it was not resumed since."""


def _pause(paused: _Paused) -> None:
    """Keep the sites of an interrupted run, and close those of an earlier one."""
    for earlier in _paused:
        earlier.run.transport.close()
    _paused[:] = [paused]


def _take_paused(name: str, setting: Setting) -> Federation | None:
    """Return an interrupted run, if its sites are those that are wanted now."""
    for paused in _paused:
        if paused.name == name and _have_same_sites(paused.setting, setting):
            _paused.remove(paused)
            return paused.run
    return None


def _have_same_sites(one: Setting, other: Setting) -> bool:
    mine, theirs = one.conditions, other.conditions
    return (
        one.engine == other.engine
        and mine.policies == theirs.policies
        and mine.datasets == theirs.datasets
        and set(mine.filtered) == set(theirs.filtered)
        and _files(mine) == _files(theirs)
        and all(_are_same_rows(source, other.sources[n]) for n, source in one.sources.items())
    )


def _files(conditions: Conditions) -> dict[str, Any]:
    """Return by what each ledger is known: its files, or itself if it is in memory."""
    return {name: ledger.files or id(ledger) for name, ledger in conditions.ledgers.items()}


def _are_same_rows(one: Source, other: Source) -> bool:
    return one.names == other.names and all(
        a is b or (a is not None and b is not None and np.array_equal(a, b, equal_nan=True))
        for a, b in zip(_stored(one), _stored(other), strict=True)
    )


def _stored(source: Source) -> tuple[npt.NDArray[Any] | None, ...]:
    X = source.X
    if isinstance(X, Genotypes):
        return X.packed, X.people, X.places, X.swapped, source.weights
    if isinstance(X, ScatteredSparse):
        return X.table.data, X.table.indices, X.table.indptr, X.places, source.weights
    parts = (X.data, X.indices, X.indptr) if source.is_sparse else (X, None, None)
    return (*parts, None, source.weights)


# What a transcript is about -----------------------------------------------------------------------


def _open_file(
    path: str | os.PathLike[str], run: str | None, about: dict[str, Any] | None
) -> Transcript:
    try:
        return Transcript(path, run=run, about=about)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(
            Argument("transcript", os.fspath(path)),
            f" cannot be written: {reason}",
            remedy="Pass a file in a folder that exists and is yours.",
        ) from None


def _topic(study: Study, sources: Mapping[str, Source]) -> dict[str, Any]:
    return {
        "study": study.digest,
        "features": {name: source.d for name, source in sources.items()},
    }


def _check_topic(setting: Setting, record: Transcript, path: str | os.PathLike[str]) -> None:
    """Refuse the transcript of another study, or of one with another seed."""
    expected = _topic(setting.study, setting.sources)
    is_same = {name: record.about.get(name) for name in expected} == expected
    seed = record.about.get("seed")
    if is_same and isinstance(seed, int) and (not setting.is_seeded or seed == setting.seed):
        return
    raise InputError(
        Argument("transcript", os.fspath(path)),
        " is the transcript of a run with other settings, sites or features",
        remedy="Set them back to resume it, or pass another path to begin anew.",
    )
