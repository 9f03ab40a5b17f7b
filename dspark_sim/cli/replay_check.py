"""``dspark-sim replay-check``: do replayed rounds have the law of live ones?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from dspark_sim.replay_check import Agreement
    from dspark_sim.workload.rounds import Rounds


def replay_check(
    logs: Annotated[list[Path], typer.Argument(help="Logs of live rounds (record --live), one a trace.")],
    *,
    permutations: Annotated[int, typer.Option(min=99, help="Permutations of the test.")] = 1999,
    alpha: Annotated[float, typer.Option(min=1e-6, max=0.5, help="Level of the whole test.")] = 0.01,
    seed: Annotated[int, typer.Option(min=0, help="Seed of replays and permutations.")] = 0,
    json_out: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Replay the traces that live logs belong to, and compare round by round: exit 1 if they differ.

    Logs of one policy and load are tested together. Labels are permuted within prompts.

    Example: dspark-sim replay-check live-*.parquet
    """
    from dspark_sim.cli.common import print_json, progress
    from dspark_sim.replay_check import compare
    from dspark_sim.workload.rounds import merge, read_rounds

    groups: dict[tuple[str, int], list[tuple[Rounds, Path]]] = {}
    for path in logs:
        log = read_rounds(path)
        groups.setdefault((log.meta["policy"], log.meta["concurrency"]), []).append((log, path))
    documents, agrees = [], True
    with progress(len(groups), "replaying") as advance:
        for (policy, concurrency), group in sorted(groups.items()):
            replayed = merge([_replay(log, path, seed) for log, path in group])
            live = merge([log for log, _ in group])
            result = compare(live, replayed, permutations=permutations, seed=seed, alpha=alpha)
            agrees = agrees and result.agrees
            documents.append(_document(policy, concurrency, result))
            advance(1)
    if json_out:
        print_json({"schema": "dspark-sim/replay-check/1", "agrees": agrees, "comparisons": documents})
    else:
        _print(documents)
    if not agrees:
        raise typer.Exit(1)


def _replay(log: Rounds, path: Path, seed: int) -> Rounds:
    from dspark_sim.hardware.profile import load_profile
    from dspark_sim.policies.registry import parse_policy
    from dspark_sim.replay_check import one_text_a_prompt, replay_rounds
    from dspark_sim.workload.rounds import merge
    from dspark_sim.workload.trace_io import read_trace

    meta, policy = log.meta, parse_policy(log.meta["policy"])
    profile = load_profile(_profile_of(log, path), None)
    same = {key: meta[key] for key in ("concurrency", "drafter")}
    parts = one_text_a_prompt(read_trace(meta["trace"]), sorted(set(log.prompt_key)))
    logs = [replay_rounds(part, profile, policy, seed=seed + n, **same) for n, part in enumerate(parts)]
    return merge(logs)


def _profile_of(log: Rounds, path: Path) -> str:
    """Return the profile that the log names; one beside the log where the name leads nowhere from here."""
    named = Path(log.meta["hw"])
    beside = path.parent / named.name
    return str(beside) if not named.exists() and beside.is_file() else str(named)


def _document(policy: str, concurrency: int, result: Agreement) -> dict[str, Any]:
    return {
        "policy": policy,
        "concurrency": concurrency,
        "agrees": result.agrees,
        "live_rounds": result.live_rounds,
        "replay_rounds": result.replay_rounds,
        "permutations": result.permutations,
        "alpha": result.alpha,
        "findings": [asdict(finding) for finding in result.findings],
    }


def _print(documents: list[dict[str, Any]]) -> None:
    from dspark_sim.results.tables import text_table

    for document in documents:
        verdict = "agree" if document["agrees"] else "DIFFER"
        print(
            f"{document['policy']} at R = {document['concurrency']}: {document['live_rounds']:,} live and "
            f"{document['replay_rounds']:,} replayed rounds {verdict}\n"
        )
        columns = {"compared": "<", "p": ">", "side": "<", "by position": "<"}
        print(text_table(columns, [row for found in document["findings"] for row in _cells(found)]) + "\n")


def _cells(finding: dict[str, Any]) -> list[dict[str, str]]:
    live, replay = (" ".join(f"{value:.3f}" for value in finding[side]) for side in ("live", "replay"))
    if not any(finding["replay"]):
        return [{"compared": finding["name"], "p": _p(finding), "side": "distance", "by position": live}]
    return [
        {"compared": finding["name"], "p": _p(finding), "side": "live", "by position": live},
        {"compared": "", "p": "", "side": "replay", "by position": replay},
    ]


def _p(finding: dict[str, Any]) -> str:
    return f"{finding['p_value']:.4f}"
