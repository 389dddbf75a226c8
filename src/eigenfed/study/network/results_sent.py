"""The end of a run: the result goes to the sites, and each keeps it with its own scores.

The coordinator sends the files of the result folder that everybody may see. A site writes those of
them that it knows, under names of its own, reads them as strictly as any other result folder, and
adds the scores of its own rows, which never leave it.
"""

import json
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from eigenfed.data.files import FileTable
from eigenfed.errors import DataError, EigenfedError
from eigenfed.protocol.messages import REFUSAL_TEXTS, Message
from eigenfed.study.results.csv_tables import write_tables
from eigenfed.study.results.plink_files import write_plink_files
from eigenfed.study.results.result_folder import ESSENTIAL_FILES, Result, read_result
from eigenfed.study.scores import project_table, write_own_files
from eigenfed.transport.local import Answering

_log = logging.getLogger(__name__)


def read_sent_files(folder: Path) -> dict[str, bytes]:
    """Return the files of a result folder that are sent to sites."""
    return {
        name: (folder / name).read_bytes() for name in ESSENTIAL_FILES if (folder / name).is_file()
    }


def close_message(run: str, result: Mapping[str, bytes]) -> bytes:
    """Return the message that ends a run at a site and brings the result."""
    arrays = {name: np.frombuffer(data, np.uint8) for name, data in sorted(result.items())}
    return Message("close", run, 0, "close", arrays).to_bytes()


def send_close(connection: Answering, message: bytes) -> str:
    """Send the message that ends a run to a site; return why it did not take it, or nothing."""
    try:
        reply = Message.from_bytes(connection.answer(message), "reply", "refusal")
    except (ConnectionError, EigenfedError) as error:
        return str(error)
    # A site that has closed the run already has the result.
    if reply.kind == "reply" or reply.label == "closed":
        return ""
    return REFUSAL_TEXTS.get(reply.label, reply.label)


def write_sent_result(message: Message, folder: Path, site: str, table: FileTable | None) -> None:
    """Write the result that a message brings, with the scores of the site's own rows.

    A result of other features or steps than the study's is kept without scores.

    Parameters
    ----------
    message : Message
        Of kind "close".
    folder : Path
        A folder that does not exist, or holds the result of an earlier attempt.
    site : str
    table : FileTable or None
        The site's rows, with the features of the study; None if it has only a summary of them.

    Raises
    ------
    DataError
        If the message has other files, or they are not a result.
    """
    if not set(message.arrays) <= set(ESSENTIAL_FILES):
        raise DataError("The result has a file that is not part of a result.")
    new = folder.with_name(f".{folder.name}.new")
    result = _write_shared(message, new, table)
    if result.facts["privacy"] is None and table is not None:
        try:
            _add_own(new, result, site, table)
        except OSError:
            raise
        except Exception:
            # Whether these rows can be projected depends on them: the coordinator is not told.
            _log.exception("the rows cannot be projected onto the result, which has no scores")
            _write_shared(message, new, table)
    shutil.rmtree(folder, ignore_errors=True)
    new.rename(folder)


def _write_shared(message: Message, folder: Path, table: FileTable | None) -> Result:
    """Write what everybody may see of a result into a folder, in place of what is there."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, array in message.arrays.items():
        (folder / name).write_bytes(array.tobytes())
    result = read_result(folder)
    is_genotypes = table is not None and table.plink is not None
    write_tables(folder, result.projector(), result.labels, loadings=not is_genotypes)
    return result


def _add_own(folder: Path, result: Result, site: str, table: FileTable) -> None:
    """Add the scores of the site's own rows to a result."""
    # Scores stay at the site, but its folder has the form of every result.
    facts = json.loads((folder / "result.json").read_text("utf-8"))
    facts |= {"scores": True, "shown_scores": []}
    (folder / "result.json").write_text(json.dumps(facts, indent=2) + "\n", "utf-8")
    (folder / "scores").mkdir()
    _write_own(folder, result, site, table)


def _write_own(folder: Path, result: Result, site: str, table: FileTable) -> None:
    """Write the scores of the site's own rows; of genotypes, also as plink's files."""
    pca = result.projector()
    found = project_table(pca, table)
    write_own_files(folder / "scores", site, found, result.names or result.labels)
    if table.plink is None:
        return
    pca.singular_values_ = np.sqrt(pca.explained_variance_ * max(result.facts["n"] - 1, 0))
    selected, variants = pca.selected_features_, table.plink.variants
    chosen = variants if selected is None else variants.take(selected)
    write_plink_files(folder, pca, chosen, {site: found})
