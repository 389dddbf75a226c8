"""Modules as a new process would import them."""

import importlib.util
from types import ModuleType


def import_afresh(name: str) -> ModuleType:
    """Return a second copy of a module, for what numba would otherwise compile once a process."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
