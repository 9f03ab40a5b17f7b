"""The rules that the values of a trace obey; one line names file, column, row and rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from dspark_sim.errors import DataError
from dspark_sim.workload.shelf import slices
from dspark_sim.workload.traces import DrafterTrace, Trace

Mask = NDArray[np.bool_]
_PAST = "past the end of the text: at most n - 1 - anchor"


def check_trace(trace: Trace, path: object) -> None:
    """Check all values of ``trace``, which was read from or goes to ``path``.

    Raises:
        DataError: the first offence, by column, then row.
    """
    check_requests(trace, path)
    for drafter in trace.drafters.values():
        _Drafter(trace, drafter, path).check()


def check_requests(trace: Trace, path: object) -> None:
    """Check the columns that need no drafter.

    Raises:
        DataError: the first offence, by column, then row.
    """
    if not trace.request_id:
        raise DataError(path, "", "empty trace: it holds no request")
    prompt, output, arrival = trace.prompt_tokens_Q, trace.output_tokens_Q, trace.arrival_s_Q
    _check_ids(trace.request_id, path)
    _refuse_row(prompt, prompt < 0, "prompt_tokens", "must not be negative", path)
    _refuse_row(output, output < 1, "output_tokens", "must be at least 1", path)
    if arrival is not None:
        wrong = ~(np.isfinite(arrival) & (arrival >= 0))
        rule = "must be finite, not negative, and set in all rows or none"
        _refuse_row(arrival, wrong, "arrival_s", rule, path)


def _check_ids(names: list[str], path: object) -> None:
    first: dict[str, int] = {}
    for row, name in enumerate(names):
        if not name or name in first:
            rule = f"duplicate of row {first[name]}; every request_id must be unique" if name else "empty"
            raise DataError(path, f"column 'request_id', row {row}", f"{name!r}: {rule}")
        first[name] = row


def _refuse_row(values: NDArray[Any], wrong: Mask, column: str, rule: str, path: object) -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(path, f"column '{column}', row {row}", f"{values[row]}: {rule}")


class _Drafter:
    """The rules of one drafter's columns."""

    def __init__(self, trace: Trace, drafter: DrafterTrace, path: object) -> None:
        self.trace = trace
        self.drafter = drafter
        self.path = path

    def check(self) -> None:
        d = self.drafter
        if d.confidence_logit_free_NG is not None and d.confidence_logit_NG is None:
            raise DataError(
                self.path, f"column '{d.name}.confidence_logit'", "missing, while the free block is there"
            )
        self._check_accepted()
        finite = "must be finite (a raw logit)"
        self._check_block("confidence_logit", d.confidence_logit_NG, finite)
        self._check_block("confidence_logit_free", d.confidence_logit_free_NG, finite)
        self._check_block("accept_rate", d.accept_rate_NG, "must lie in 0..1", 0.0, 1.0)

    def _check_accepted(self) -> None:
        d = self.drafter
        self._refuse("accepted", d.accepted_N, lambda x, _: x > d.gamma, f"above gamma = {d.gamma}")
        self._refuse("accepted", d.accepted_N, self._is_past_the_end, _PAST)

    def _is_past_the_end(self, accepted: NDArray[Any], some: slice) -> Mask:
        past: Mask = accepted > self.trace.remaining_of(np.arange(some.start, some.stop))
        return past

    def _check_block(
        self, column: str, block: NDArray[Any] | None, rule: str, low: float = -np.inf, high: float = np.inf
    ) -> None:
        if block is not None:
            self._refuse(column, block, lambda x, _: ~(np.isfinite(x) & (x >= low) & (x <= high)), rule)

    def _refuse(
        self, column: str, values: NDArray[Any], is_wrong: Callable[[NDArray[Any], slice], Mask], rule: str
    ) -> None:
        """Refuse the first value that is wrong; a large array is looked at in parts."""
        for some in slices(len(values)):
            wrong = is_wrong(values[some], some)
            if wrong.any():
                place = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
                self._refuse_at(column, int(some.start + place[0]), place[1:], values[some][place], rule)

    def _refuse_at(
        self, column: str, anchor: int, position: tuple[Any, ...], value: Any, rule: str
    ) -> NoReturn:
        row = int(self.trace.request_of(np.array([anchor]))[0])
        in_text = anchor - int(self.trace.offset_Q1[row])
        drafted = f", position {position[0] + 1}" if position else ""
        where = (
            f"column '{self.drafter.name}.{column}', row {row} "
            f"(request '{self.trace.request_id[row]}'), anchor {in_text}{drafted}"
        )
        raise DataError(self.path, where, f"{value}: {rule}")
