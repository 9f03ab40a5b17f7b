"""``dspark-sim trace show`` and ``dspark-sim trace check``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any

import typer

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Look into traces of acceptance and confidence, and check them.",
)


@app.command()
def show(
    file: Annotated[str, typer.Argument(help="A path, or the bare name of a shipped trace (chat.parquet).")],
    json_out: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Print requests, tokens, and acceptance and calibration per drafter, domain and position.

    All figures are taken over the anchors that a full-block replay visits. Intervals are 95%, from
    resampling prompts. ECE and AUC are of the survival; "own AUC" scores a position's own confidence on the
    rounds that decided it, beside its ceiling, the AUC of the analytic acceptance rate; share is how much of
    the way from a coin (.5) to the ceiling it goes.

    Example: dspark-sim trace show qwen3-4b-chat.synth.parquet
    """
    from dspark_sim.cli.common import print_json, working
    from dspark_sim.workload.summary import summarise
    from dspark_sim.workload.trace_io import read_trace

    with working("reading"):
        summary = summarise(read_trace(file))
    if json_out:
        print_json({"schema": "dspark-sim/trace/1", **summary})
    else:
        _print(summary)


@app.command()
def check(
    files: Annotated[list[str], typer.Argument(help="Traces: paths or bare names.")],
    json_out: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Validate traces: one line a file; exit 1 if one breaks a rule of the format, 2 if one is not there.

    Example: dspark-sim trace check traces/*.parquet
    """
    from dspark_sim.cli.common import print_json, progress

    with progress(len(files), "checking") as advance:
        verdicts = [_verdict(file, advance) for file in files]
    if json_out:
        print_json({"schema": "dspark-sim/trace-check/1", "files": verdicts})
    else:
        for verdict in verdicts:
            print(verdict["error"] or f"{verdict['file']}: ok, {verdict['requests']} requests")
    if any(verdict["error"] for verdict in verdicts):
        raise typer.Exit(2 if any(verdict["missing"] for verdict in verdicts) else 1)


def _verdict(file: str, advance: Callable[[int], None]) -> dict[str, Any]:
    from dspark_sim.errors import DataError, InputError
    from dspark_sim.workload.trace_io import read_trace

    try:
        requests = len(read_trace(file).request_id)
    except InputError as error:
        missing = not isinstance(error, DataError)
        return {"file": file, "error": str(error), "missing": missing, "requests": None}
    finally:
        advance(1)
    return {"file": file, "error": None, "missing": False, "requests": requests}


def _print(summary: dict[str, Any]) -> None:
    from textwrap import fill

    from dspark_sim.results.tables import WIDTH

    for line in _heading(summary):
        print(fill(line, WIDTH, subsequent_indent=" " * 15))
    for drafter in summary["drafters"]:
        words = f"{drafter['drafter']} ({drafter['kind']}, gamma {drafter['gamma']}): {_fitted(drafter)}"
        print("\n" + fill(words, WIDTH, subsequent_indent="  "))
        for figures in drafter["domains"]:
            print("\n" + fill(_domain_line(figures), WIDTH, subsequent_indent="    ") + "\n")
            print(_positions(figures, _labels(drafter)))


def _labels(drafter: dict[str, Any]) -> dict[str, str]:
    """Which confidences to score, and their headers: none without a head, raw ones if nothing was fitted."""
    if "ece_raw" not in drafter["domains"][0]:
        return {}
    method = drafter["calibration"]["method"]
    return {"raw": "raw"} if method == "identity" else {"raw": "raw", "calibrated": method}


def _heading(summary: dict[str, Any]) -> list[str]:
    warning = "SYNTHETIC TRACE: acceptance drawn from a model, not recorded from a pair"
    tokens, mean, most = (summary[f"output_tokens{suffix}"] for suffix in ("", "_mean", "_max"))
    arrivals = ", with arrival times" if summary["arrivals"] else ""
    return [
        *([warning] if summary["synthetic"] else []),
        f"trace          {summary['trace']} ({summary['content_hash'][:12]})",
        f"target         {summary['target']}, temperature {summary['temperature']:g}",
        f"made           {summary['made']}",
        f"requests       {summary['requests']:,} of {summary['prompts']:,} prompts{arrivals}",
        f"output tokens  {tokens:,} in all, {mean:.0f} a request, {most} at most",
        f"prompt tokens  {summary['prompt_tokens_mean']:.0f} a request",
    ]


def _fitted(drafter: dict[str, Any]) -> str:
    fitted, labels = drafter["calibration"], _labels(drafter)
    if not labels:
        return "no confidence head"
    if len(labels) == 1:
        return "confidences as the head says them, no calibration"
    numbers = ", ".join(f"{t:.2f}" for t in fitted["temperatures"])
    return f"calibrated by {fitted['method']} on {fitted['fitted_on']}; temperatures {numbers}"


def _domain_line(figures: dict[str, Any]) -> str:
    (low, high), uncut = figures["accepted_len_ci"], figures["accepted_len_uncut"]
    ends = _interval(low, high, 2, " [{}, {}]", " (one prompt, so no interval)")
    return (
        f"  {figures['domain']}: accepted length {figures['accepted_len']:.2f}{ends} "
        f"({uncut:.2f} far from the end of a text) over {figures['rounds']:,} rounds of "
        f"{figures['requests']:,} requests"
    )


def _interval(low: float, high: float, digits: int, words: str, none: str) -> str:
    """``words`` with both ends in it, or ``none`` where there is no interval."""
    return none if math.isnan(low) else words.format(f"{low:.{digits}f}", f"{high:.{digits}f}")


def _positions(figures: dict[str, Any], labels: dict[str, str]) -> str:
    from dspark_sim.results.tables import text_table

    rows = [_position(figures, j, labels) for j in range(len(figures["conditional"]))]
    return text_table(dict.fromkeys(rows[0], ">"), rows)


def _position(figures: dict[str, Any], j: int, labels: dict[str, str]) -> dict[str, str]:
    low, high = (end[j] for end in figures["conditional_ci"])
    row = {
        "\npos.": str(j + 1),
        "decided\n[rounds]": f"{figures['reached'][j]:,}",
        "condi-\ntional": f"{figures['conditional'][j]:.3f}",
        "\n95% interval": _interval(low, high, 3, "{}..{}", "-"),
        "\nsurvival": f"{figures['survival'][j]:.3f}",
    }
    for score in ("ece", "auc"):
        for key, label in labels.items():
            row[f"{score.upper()}\n{label}"] = f"{figures[f'{score}_{key}'][j]:.3f}"
    if labels:
        row["own AUC\n/ ceiling"] = f"{figures['auc_conditional'][j]:.3f} / {figures['auc_ceiling'][j]:.3f}"
        row["\nshare"] = f"{figures['auc_share'][j]:.2f}"
    return row
