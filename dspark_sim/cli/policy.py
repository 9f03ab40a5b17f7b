"""``dspark-sim policy``: a policy of your own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dspark_sim.errors import InputError

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="A verification policy of your own, in one file."
)

TEMPLATE = '''\
"""{name}: one sentence on what this policy does, and where it comes from."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge

from dspark_sim.policies.base import BatchView
from dspark_sim.policies.registry import policy
from dspark_sim.policies.selection import expected_tokens_M, top_k
from dspark_sim.schema import IntArray


# reads="lagged": the budget comes from blocks drafted `lag` steps ago, so that the host never waits for
# this step's confidences. verdict: what you claim; `dspark-sim audit` looks for a counterexample.
@policy("{name}", source="our own", reads="lagged", default_lag=2, verdict="lossless-under-lag")
def {rule}(view: BatchView, *, margin: Annotated[float, Ge(0)] = 0.02) -> IntArray:
    """The smallest budget whose expected tokens per second are within `margin` of the best."""
    tokens_per_s = expected_tokens_M(view.lagged_RG) / view.step_s_M
    budget = int((tokens_per_s >= tokens_per_s.max() / (1 + margin)).argmax())
    return top_k(view.survival_RG, budget)
'''


@app.callback()
def _group() -> None:
    """A verification policy of your own, in one file."""


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the policy.")] = "mine",
    out: Annotated[Path | None, typer.Option("--out", help="File to write. Default: NAME.py.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Write a policy that works, to be changed: one file, one function.

    Example: dspark-sim policy new mine
    """
    from dspark_sim.files import write_text
    from dspark_sim.policies.registry import policies

    rule = name.replace("-", "_")
    if not rule.isidentifier():
        raise InputError(f"policy name '{name}': letters, digits, - and _, not a digit first")
    if name in {info.name for info in policies()}:
        raise InputError(f"policy name '{name}': a shipped rule has it; choose another")
    path = out or Path(f"{rule}.py")
    if path.suffix != ".py":
        raise InputError(f"--out {path}: a policy is a .py file")
    if path.exists() and not force:
        raise InputError(f"{path} is there already; --force overwrites it")
    write_text(path, TEMPLATE.format(name=name, rule=rule))
    spec = f"./{path}:{rule}" if not path.is_absolute() else f"{path}:{rule}"
    print(
        f"{path} written. Next:\n  dspark-sim audit {spec}\n  dspark-sim run --policy off --policy {spec} ..."
    )
