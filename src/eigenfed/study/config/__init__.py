"""Study and site files: pydantic models from which checks, JSON schemas and templates follow.

- `study_file`, `site_file`: the models of ``study.toml`` and ``site.toml``.
- `privacy_table`, `network_table`: the tables ``[privacy]`` and ``[network]`` of a study file.
- `named_files`: features, variants and eigenvalues in files that a study names.
- `fields`: the types of values that both use.
- `toml_text`: reading and writing TOML; `toml_errors`: errors with file, line, key and remedy.
- `templates`: the commented files of ``eigenfed init``, and the JSON schemas.
"""

from eigenfed.study.config.named_files import read_spectrum
from eigenfed.study.config.site_file import SiteFile, read_site
from eigenfed.study.config.study_file import Expected, StudyFile, read_study
from eigenfed.study.config.templates import schema_of, start_study
from eigenfed.study.config.toml_errors import speaking_of_keys

__all__ = [
    "Expected",
    "SiteFile",
    "StudyFile",
    "read_site",
    "read_spectrum",
    "read_study",
    "schema_of",
    "speaking_of_keys",
    "start_study",
]
