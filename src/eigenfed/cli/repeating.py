"""The command that was given, as others can give it again: names of files without their folders."""

from pathlib import Path
from typing import Any

import click

_ASIDE = {"as_json", "quiet", "debug", "force"}
"""Options that change nothing of what is computed."""


def given_words(context: click.Context) -> list[str]:
    """Return the words of the command, with what was typed and no defaults.

    Parameters
    ----------
    context : click.Context
        Of the command that runs.
    """
    words = context.command_path.split()
    default = click.core.ParameterSource.DEFAULT
    for parameter in context.command.params:
        name = parameter.name or ""
        if name in _ASIDE or context.get_parameter_source(name) is default:
            continue
        value = context.params[name]
        if isinstance(parameter, click.Argument):
            words += map(_word, value if isinstance(value, tuple) else (value,))
        elif isinstance(value, bool):
            words += [parameter.opts[0]]
        else:
            for each in value if isinstance(value, tuple) else (value,):
                words += [parameter.opts[0], _word(each)]
    return words


def _word(value: Any) -> str:
    return value.name if isinstance(value, Path) else str(value)
