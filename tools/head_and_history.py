"""Does a request's history add to what the confidence head says? The lead (d) of docs/beat-the-paper.md.

    python tools/head_and_history.py --trace math

Rounds of the tuning prompts at two verified tokens: is draft position 1 accepted? Logistic regression on
even texts, scored on odd ones.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

import numpy as np

from dspark_sim.schema import FloatArray
from dspark_sim.workload.calibration import auc, sigmoid
from dspark_sim.workload.trace_io import read_trace
from dspark_sim.workload.traces import Trace

_FADE = 0.97


def _rounds(trace: Trace, verified: int) -> Iterable[tuple[float, ...]]:
    """Yield text, accepted, logit of c_1, logit of past acceptance, last accepted, whether the bonus hit."""
    head = trace.drafter()
    confidence_N, accepted_N = head.confidence_NG()[:, 0], head.accepted_N.astype(int)
    mean = float((accepted_N > 0).mean())
    for text in range(len(trace.output_tokens_Q)):
        at, last = int(trace.offset_Q1[text]), int(trace.offset_Q1[text + 1]) - 1
        hits = tests = before = bonus = 0.0
        while at < last:
            past = (hits + 2 * mean) / (tests + 2)
            accepted = int(accepted_N[at])
            yield text, accepted, _logit(confidence_N[at]), _logit(past), before, bonus
            hits, tests = _FADE * hits + (accepted > 0), _FADE * tests + 1
            before, bonus = min(accepted, verified), float(accepted > verified)
            at += int(before) + 1


def _logit(p: float) -> float:
    p = min(max(p, 1e-4), 1 - 1e-4)
    return float(np.log(p / (1 - p)))


def _logistic(inputs: FloatArray, hit: FloatArray) -> FloatArray:
    weights = np.zeros(inputs.shape[1])
    for _ in range(20):
        told = sigmoid(inputs @ weights)
        curvature = (inputs * (told * (1 - told))[:, None]).T @ inputs + 1e-6 * np.eye(len(weights))
        weights = weights + np.linalg.solve(curvature, inputs.T @ (hit - told))
    return weights


def main() -> None:
    """Print AUC and log loss of what tells whether position 1 is accepted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--trace", default="chat")
    args = parser.parse_args()
    trace = read_trace(f"{args.trace}.parquet").share_of_prompts(0, 2)
    rows = np.array(list(_rounds(trace, verified=2)))
    hit, odd = rows[:, 1] > 0, rows[:, 0] % 2 == 1
    print(f"{args.trace}: {len(rows):,} rounds, position 1 accepted in {hit.mean():.3f}")
    columns = {
        "head": [2],
        "history": [3],
        "head and history": [2, 3],
        "all and the last round": [2, 3, 4, 5],
    }
    for name, chosen in columns.items():
        inputs = np.column_stack([np.ones(len(rows)), rows[:, chosen]])
        told = sigmoid(inputs[odd] @ _logistic(inputs[~odd], hit[~odd].astype(float)))
        loss = -np.where(hit[odd], np.log(told), np.log1p(-told)).mean()
        print(f"  {name}: AUC {auc(told, hit[odd]):.3f}, log loss {loss:.4f}")


if __name__ == "__main__":
    main()
