"""Study and site files: pydantic models from which checks, JSON schemas and templates follow."""

from eigenfed.study.config.site_file import SiteFile, read_site
from eigenfed.study.config.study_file import Expected, StudyFile, read_spectrum, read_study
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
