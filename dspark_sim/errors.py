"""What a user may get wrong, said in one line.

InputError (ValueError)
└── DataError    a file's content breaks a rule: names file, place, rule

The library raises these at its boundary; the command line prints the message alone and exits 2.
Inside, assertions are for our own mistakes.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Bad input: the message is one line that says what, where, which rule, and what would be right."""


class DataError(InputError):
    """A file's content breaks a rule of its format.

    Args:
        path: the file, as the user named it.
        where: place inside it (column, row, key), empty for the file as a whole.
        rule: what is wrong and what would be right.
    """

    def __init__(self, path: object, where: str, rule: str) -> None:
        place = f"{path}: {where}: " if where else f"{path}: "
        super().__init__(place + rule)

    def __reduce__(self) -> tuple[object, ...]:
        """Travel back from worker processes; the default would call ``__init__`` with the message alone."""
        return _restored, (type(self), self.args), self.__dict__


def _restored(kind: type[DataError], args: tuple[object, ...]) -> DataError:
    error = kind.__new__(kind, *args)
    error.args = args
    return error


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` for the nearest known word, else an empty string."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" (did you mean '{near[0]}'?)" if near else ""
