"""How the messages of a network travel: the engine of a study, at the coordinator and at a site."""

import threading
import time
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from eigenfed.errors import InputError
from eigenfed.study.config import SiteFile, StudyFile
from eigenfed.study.network.message_limits import bound_reply
from eigenfed.study.network.network_folder import SERVER_KIT, SITE_KIT
from eigenfed.study.network.roster_file import NetworkRoster, find_drop
from eigenfed.study.network.run_method import choose_run_method
from eigenfed.transport.bundles import MOST_START_BYTES
from eigenfed.transport.filedrop import DropConnection, DropInbox
from eigenfed.transport.local import Answering

ENGINE_HOME, ENGINE_LOG = "engine", "engine.log"
_LOOK_S = 0.2


class Carrier(Protocol):
    """The coordinator's way to its sites."""

    def connect(self, site: str) -> Answering:
        """Return what carries bundles to a site and back."""

    def present(self) -> frozenset[str]:
        """Return the sites that can be reached now."""


class FileCarrier:
    """Carries bundles as files in a drop folder."""

    def __init__(
        self, drop: Path, sites: Sequence[str], stop: threading.Event, *, wait: bool, largest: int
    ) -> None:
        self._connections = {
            site: DropConnection(drop, site, stop, wait=wait, largest=largest)
            for site in sorted(sites)
        }

    def connect(self, site: str) -> Answering:
        """Return the connection to a site by files."""
        return self._connections[site]

    def present(self) -> frozenset[str]:
        """Return all sites: whether one reads its files is not known before it replies."""
        return frozenset(self._connections)

    def forget_refusals(self) -> None:
        """Remove requests that were refused, which are to be answered when they come again."""
        for connection in self._connections.values():
            connection.forget_refusal()

    def clear(self, run: str, missed: Container[str] = ()) -> None:
        """Remove the files of a run, except the result for sites that have not taken it yet."""
        for site, connection in self._connections.items():
            connection.clear(run, keep_result=site in missed)


@contextmanager
def open_carrier(
    study: StudyFile, folder: Path, stop: threading.Event, *, wait: bool = True
) -> Iterator[Carrier]:
    """Start the engine of a study at the coordinator, and stop it at the end.

    Parameters
    ----------
    study : StudyFile
    folder : Path
        The coordinator's network folder.
    stop : threading.Event
        Set to give up waiting for sites.
    wait : bool, default=True
        With files, whether to wait for replies that are not there yet.

    Raises
    ------
    InputError
        If the study has no engine between machines.
    ProtocolError
        If the engine does not start.
    """
    largest = _bound_replies(study)
    if study.engine == "files":
        drop = None if study.network is None else study.network.drop
        if drop is None:
            raise InputError(f'{study.path}: engine = "files" requires drop below [network].')
        yield FileCarrier(drop, study.sites, stop, wait=wait, largest=largest)
    elif study.engine == "nvflare":
        from eigenfed.transport.nvflare.hub import NvflareHub

        kit, home, log = folder / SERVER_KIT, folder / ENGINE_HOME, folder / ENGINE_LOG
        with NvflareHub(kit, sorted(study.sites), home=home, log=log, largest=largest) as hub:
            yield hub
    else:
        raise InputError(
            f'{study.path}: engine = "{study.engine}" runs all sites in one process. Use eigenfed '
            'fit --study, or set engine = "nvflare" or "files".'
        )


def _bound_replies(study: StudyFile) -> int:
    """Return how many bytes a reply can have, whichever of the sites take part."""
    if study.engine == "in_process":
        return 0
    counts = range(min(study.quorum, len(study.sites)), len(study.sites) + 1)
    methods = {choose_run_method(study, count)[0].chosen for count in counts}
    return MOST_START_BYTES + max(bound_reply(study, method) for method in methods)


def wait_for_sites(
    carrier: Carrier,
    study: StudyFile,
    stop: threading.Event,
    *,
    patience_s: float,
    note: Callable[[frozenset[str]], None] = lambda present: None,
) -> tuple[str, ...]:
    """Wait until all sites can be reached, or at least the quorum when patience ends.

    Parameters
    ----------
    carrier : Carrier
    study : StudyFile
    stop : threading.Event
    patience_s : float
    note : callable, optional
        Called with the sites that are there whenever they change.

    Returns
    -------
    tuple of str
        The sites that are there, which may be too few.
    """
    ends, before = time.monotonic() + patience_s, frozenset[str]()
    while True:
        present = carrier.present()
        if present != before:
            note(present)
            before = present
        if present >= set(study.sites) or time.monotonic() > ends or stop.wait(_LOOK_S):
            return tuple(sorted(present & set(study.sites)))


def serve_site(
    site: SiteFile,
    roster: NetworkRoster,
    answer: Answering,
    stop: threading.Event,
    *,
    largest: Callable[[], int],
) -> None:
    """Answer bundles at a site, on the engine of its network, until `stop` is set.

    Parameters
    ----------
    site : SiteFile
    roster : NetworkRoster
    answer : Answering
    stop : threading.Event
    largest : callable
        Returns how many bytes a bundle may have now; a longer one is not read.

    Raises
    ------
    InputError, ProtocolError
        If the engine does not start.
    """
    if roster.engine == "files":
        DropInbox(find_drop(site, roster), site.name, answer, largest).serve(stop)
        return
    from eigenfed.transport.nvflare.node import NvflareNode

    kit, home, log = site.network / SITE_KIT, site.network / ENGINE_HOME, site.network / ENGINE_LOG
    with NvflareNode(kit, answer.answer, home=home, log=log, largest=largest) as node:
        node.run(stop)


def answer_once(
    site: SiteFile, roster: NetworkRoster, answer: Answering, *, largest: Callable[[], int]
) -> int:
    """Answer the requests that are in a site's drop folder now; return how many they were."""
    if roster.engine != "files":
        raise InputError('--once requires engine = "files". Drop it: the site stays up.')
    return DropInbox(find_drop(site, roster), site.name, answer, largest).answer_all()
