"""The committed live logs of the real pair against the committed traces: what docs/replay.md reports."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from dspark_sim.hardware.profile import load_profile
from dspark_sim.policies.registry import parse_policy
from dspark_sim.replay_check import compare, one_text_a_prompt, replay_rounds
from dspark_sim.workload.rounds import Rounds, merge, read_rounds
from dspark_sim.workload.trace_io import read_trace

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "replay"
#: Logs: drafter (in front of the name unless it is dspark), policy, users.
CASES = ["full-r16", "dspark-async-r1", "dspark-async-r4", "dspark-async-r16", "mtp-full-r16"]


def logs_of(case: str) -> list[Rounds]:
    found = [read_rounds(path) for path in sorted(FOLDER.glob(f"{case}-*.parquet"))]
    assert len(found) == 3, "one log a domain"
    return found


def replay_of(log: Rounds) -> Rounds:
    trace, policy = read_trace(log.meta["trace"]), parse_policy(log.meta["policy"])
    profile = load_profile(ROOT / log.meta["hw"], None)
    parts = one_text_a_prompt(trace, sorted(set(log.prompt_key)))
    load = log.meta["concurrency"]
    of = {"concurrency": load, "drafter": log.meta["drafter"]}
    return merge([replay_rounds(p, profile, policy, seed=n, **of) for n, p in enumerate(parts)])


@pytest.mark.parametrize("case", CASES)
def test_live_rounds_of_the_real_pair_agree_with_the_replay(case):
    logs = logs_of(case)
    live, replay = merge(logs), merge([replay_of(log) for log in logs])
    assert len(live) >= 4_800
    result = compare(live, replay)
    assert result.agrees, result.findings
    assert "full" in case or len(Counter(live.verify_len_M.tolist())) > 2


@pytest.mark.parametrize("case", CASES)
def test_logs_and_traces_are_of_the_same_drafter(case):
    for log in logs_of(case):
        trace = read_trace(log.meta["trace"])
        assert trace.meta["drafters"][log.meta["drafter"]]["checkpoint"] == log.meta["checkpoint"]


@pytest.mark.parametrize("domain", ["math", "code", "chat"])
def test_committed_traces_accept_at_the_analytic_rate(domain):
    """Where a draft prefix was accepted, the next token is as often as 1 - TV says (four standard errors)."""
    trace = read_trace(f"{domain}.parquet")
    drafter = trace.drafter("dspark")
    assert drafter.accept_rate_NG is not None
    for position in range(3):
        asked = (trace.remaining_N > position) & (drafter.accepted_N >= position)
        rate = drafter.accept_rate_NG[asked, position].astype(float)
        hit = drafter.accepted_N[asked] > position
        error = np.sqrt((rate * (1 - rate)).sum()) / len(rate)
        assert abs(hit.mean() - rate.mean()) < 4 * error, position
