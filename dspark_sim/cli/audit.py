"""``dspark-sim audit``: is a verification policy lossless?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dspark_sim.cli import options as o

if TYPE_CHECKING:
    from dspark_sim.audit.exact import ExactLaw
    from dspark_sim.audit.live import LiveAudit
    from dspark_sim.audit.overwrite import Counterexample
    from dspark_sim.audit.verdict import Audit

_MOST_OUTPUTS = 8


def audit(
    policy: Annotated[str, typer.Argument(help="Policy spec, a file of your own included.")],
    *,
    lag: o.LagOption = None,
    temperature: Annotated[float, typer.Option(min=0, help="Of target and drafter.")] = 1.0,
    confidence: Annotated[
        Literal["of-prefix", "of-token"],
        typer.Option(help="Whether a confidence reads only the tokens before its own, or its own too."),
    ] = "of-prefix",
    bonus: Annotated[
        Literal["fresh", "coupled"],
        typer.Option(help="How the bonus is drawn: afresh, or by testing the first unverified draft token."),
    ] = "fresh",
    effort: Annotated[float, typer.Option(min=0.05, help="Length of the search, times the usual.")] = 1.0,
    exact: Annotated[
        bool, typer.Option("--exact", help="Write out the law of the output: two requests, fractions.")
    ] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Drive a small live pair, and test its texts (needs torch).")
    ] = False,
    pairs: Annotated[int, typer.Option(min=100, help="Pairs of texts of the live mode.")] = 6000,
    seed: o.SeedOption = 0,
    json_out: o.JsonOption = False,
) -> None:
    """Search for a batch that shows a policy not lossless; exit 1 if there is one.

    Everything that a decision does not verify is overwritten, of all requests at once: the decision must
    not move. A verdict belongs to rule, lag, temperature, kind of confidence and of bonus.

    Example: dspark-sim audit dspark-async --lag 0 --exact
    """
    from dspark_sim.audit.exact import search
    from dspark_sim.audit.overwrite import Revealed, search_length
    from dspark_sim.audit.verdict import audit as run
    from dspark_sim.cli.common import print_json, progress
    from dspark_sim.errors import InputError
    from dspark_sim.policies.registry import parse_policy

    rule = parse_policy(policy, lag)
    coupled = bonus == "coupled"
    if live and coupled:
        raise InputError("--live: the live pair draws its bonus afresh; leave --bonus coupled to --exact")
    revealed = Revealed(of_token=confidence == "of-token", coupled=coupled)
    with progress(search_length(effort), "overwriting") as advance:
        found = run(
            rule, temperature=temperature, revealed=revealed, effort=effort, seed=seed,
            on_moment=lambda: advance(1),
        )  # fmt: skip
    law = search(rule, coupled=coupled, seed=seed)[0] if exact else None
    texts = None
    if live:
        from dspark_sim.audit.live import live_audit

        texts = live_audit(rule, pairs=pairs, temperature=temperature, seed=seed)
    if json_out:
        print_json(_document(found, law, texts))
    else:
        _print(found, law, texts)
    if found.verdict == "not-lossless" or (texts is not None and not texts.agrees):
        raise typer.Exit(1)


def _document(found: Audit, law: ExactLaw | None, texts: LiveAudit | None) -> dict[str, Any]:
    """Return the four keys of a verdict, and one more for each other mode that was asked for."""
    from dataclasses import asdict

    document: dict[str, Any] = {
        "policy": found.policy,
        "lag": found.lag,
        "verdict": found.verdict,
        "counterexample": found.counterexample.document() if found.counterexample else None,
    }
    if law is not None:
        document["exact"] = {
            "joint_distance": str(law.distance),
            "single_distance": str(law.single_distance),
            "joint": {key: [str(share) for share in pair] for key, pair in law.joint.items()},
        }
    if texts is not None:
        document["live"] = asdict(texts) | {"agrees": texts.agrees}
    return document


def _print(found: Audit, law: ExactLaw | None, texts: LiveAudit | None) -> None:
    bonus = ", coupled bonus" if found.revealed.coupled else ""
    print(f"{found.policy} at lag {found.lag}, temperature {found.temperature:g}{bonus}: {found.verdict}")
    if found.verdict != found.claimed:
        print(f"the rule itself claims: {found.claimed}")
    if found.counterexample is not None:
        _print_counterexample(found.counterexample)
    if found.state_reads_tails:
        print(
            "The rule's state remembers confidences behind what it verified. A replay draws those given the "
            "text, so they know the future: keep view.lagged_RG or view.past instead."
        )
    if law is not None:
        _print_law(law)
    if texts is not None:
        _print_live(texts)


def _print_counterexample(found: Counterexample) -> None:
    from dspark_sim.results.tables import footnotes, text_table

    what = "verifies" if found.moved == "verify_len" else "drafts (decided before any draft is there)"
    print(f"\nA batch that the decision does not tell from another, and decides otherwise; it {what}:\n")
    rows = [
        {
            "request": str(r),
            "confidences": _numbers(found.view.confidence_RG[r]),
            "decision": str(found.verify_len_R[r]),
            "overwritten": _numbers(found.other_RG[r]),
            "decision then": str(found.other_len_R[r]),
        }
        for r in range(found.view.num_running)
    ]
    print(text_table(dict.fromkeys(rows[0], ">"), rows))
    print("\n" + footnotes([f"step_s at 0, 1, ... draft tokens: {_numbers(found.view.step_s_M)}"]))


def _numbers(values: Any) -> str:
    return " ".join(f"{value:.4g}" for value in values)


def _print_law(law: ExactLaw) -> None:
    from dspark_sim.results.tables import text_table

    marginals = "the target's" if not law.single_distance else f"off by {law.single_distance}"
    joint = "the target's" if not law.distance else f"off by {law.distance}"
    print(
        "\nExact law of the first three tokens of two requests (letters A, B; total variation):\n"
        f"each request alone: {marginals}; both jointly: {joint}\n"
    )
    far = sorted(law.joint.items(), key=lambda entry: -abs(entry[1][0] - entry[1][1]))[:_MOST_OUTPUTS]
    rows = [{"output": key, "rule": str(rule), "target": str(target)} for key, (rule, target) in far]
    print(text_table({"output": "<", "rule": ">", "target": ">"}, rows))


def _print_live(texts: LiveAudit) -> None:
    from dspark_sim.audit.live import ALPHA

    print(f"\nLive: {texts.pairs:,} pairs of texts, verify lengths {texts.lengths}; refused below {ALPHA:g}:")
    for name, fit in zip(("request 0", "request 1", "jointly"), (*texts.single, texts.joint), strict=True):
        print(f"  {name}: p = {fit.p_value:.3g}, z = {fit.z:.1f} on {fit.dof} degrees of freedom")
