"""Text that somebody else has written does not command the terminal of the one who reads it."""

import logging
from pathlib import Path

import pytest

from command_line import eigenfed
from eigenfed.cli import site_run
from eigenfed.privacy.secagg.identity import Identity
from eigenfed.protocol.messages import Message
from eigenfed.transport.bundles import COORDINATOR, name_site, sign_bundle

HOSTILE = "run\x1b[2J\x1b[8m\x9b1A\u202e\r\n2026-11-19 10:00:00 study approved"


def test_a_file_of_a_drop_folder_is_shown_without_its_control_characters(tmp_path: Path) -> None:
    message = Message("refusal", HOSTILE, 0, HOSTILE, {}).to_bytes()
    path = tmp_path / "x.reply"
    path.write_bytes(
        sign_bundle(message, Identity.generate(), sender=name_site("north"), recipient=COORDINATOR)
    )
    shown = eigenfed("drop", "show", path)
    assert shown.exit_code == 0
    assert "run\\x1b[2J\\x1b[8m\\x9b1A\\u202e\\r" in shown.stdout
    assert shown.stdout.replace("\n", "").isprintable()


def test_a_name_in_an_error_is_printed_without_its_control_characters(tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    table.write_text("a\x1b[2Jb,c\n1,2\n3,x\n4,5\n")
    failed = eigenfed("fit", table, table)
    assert failed.exit_code != 0
    assert failed.stderr.replace("\n", "").isprintable()
    unknown = eigenfed("fit\x1b[2J")
    assert unknown.exit_code == 2
    assert unknown.stderr.replace("\n", "").isprintable()


def test_a_line_of_a_sites_log_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("eigenfed.protocol.gate.gate")
    with site_run._log_to_standard_error():
        log.warning("message %s failed", HOSTILE)
        try:
            raise ValueError(HOSTILE)
        except ValueError:
            log.exception("message %s failed", HOSTILE)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith(
        "message run\\x1b[2J\\x1b[8m\\x9b1A\\u202e\\r\\n2026-11-19 10:00:00 study approved failed"
    )
    assert all(line.isprintable() for line in lines)
    assert lines[2] == "Traceback (most recent call last):"
