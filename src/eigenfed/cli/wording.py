"""Messages of the library in the words of the command line: options instead of arguments."""

from shlex import quote

from eigenfed.errors import Wording, shown

_OPTIONS = {
    "n_components": "-k",
    "random_state": "--seed",
    "columns": "--column",
    "id_column": "--id-column",
} | {
    name: f"--{name}"
    for name in (
        *("method", "features", "epsilon", "delta", "clip", "trust"),
        *("colluders", "dropouts", "count"),
        *("record", "rows", "size", "spectrum", "decay", "trials"),
    )
}
"""The option that stands for an argument; others keep their name."""

_FLAGS = {
    "secure": ("--secure", True),
    "scale": ("--scale", True),
    "center": ("--no-center", False),
}
"""The flag that gives an argument a value, and the value."""

_OF_CHOICE = {"columns": "--column NAME --column NAME ...", "id_column": "--id-column NAME"}
"""Options with a value that is the reader's to choose."""


class OptionWording(Wording):
    """Mentions options.

    Examples
    --------
    >>> from eigenfed.errors import Argument, InputError, Name
    >>> lower = ("Lower ", Name("n_components"), ".")
    >>> error = InputError(Argument("n_components", 9), " must be at most 8", remedy=lower)
    >>> error.worded(OPTIONS)
    '-k 9 must be at most 8. Lower -k.'
    """

    def name(self, name: str) -> str:
        """Return the option or the flag."""
        return _FLAGS[name][0] if name in _FLAGS else _OPTIONS.get(name, name)

    def setting(self, name: str, value: object) -> str:
        """Return the option with its value, as it is typed.

        Examples
        --------
        >>> OPTIONS.setting("method", "krylov"), OPTIONS.setting("center", False)
        ('--method krylov', '--no-center')
        """
        if name in _FLAGS:
            flag, given = _FLAGS[name]
            return flag if value is given else f"no {flag}"
        if name not in _OPTIONS:
            return super().setting(name, value)
        if name == "method" and not isinstance(value, str):
            return _method(value)
        return f"{_OPTIONS[name]} {quote(value) if isinstance(value, str) else shown(value)}"

    def passing(self, name: str, value: object) -> str:
        """Return the advice to pass an option, or to drop one.

        Examples
        --------
        >>> OPTIONS.passing("trust", "central"), OPTIONS.passing("scale", False)
        ('pass --trust central', 'drop --scale')
        """
        if value in (..., [...]) and name in _OF_CHOICE:
            return f"pass {_OF_CHOICE[name]}"
        left_out = value is not _FLAGS[name][1] if name in _FLAGS else value is None
        return f"drop {self.name(name)}" if left_out else super().passing(name, value)

    def aside(self, text: str) -> str:
        """Leave it out."""
        return ""


def _method(method: object) -> str:
    """Write a method with options, as it is typed; without importing what a method is."""
    options = getattr(method, "options", {})
    words = [f"--option {quote(f'{option}={value}')}" for option, value in options.items()]
    return " ".join([f"--method {getattr(method, 'name', method)}", *words])


OPTIONS = OptionWording()
