"""From samples to a profile: medians, outliers, lines; and the timing itself on the tiny pair."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from dspark_sim.errors import InputError
from dspark_sim.hardware.cost import StepCost
from dspark_sim.hardware.measure_plan import Further, Plan, Point, capture_sizes_of, verify_shape
from dspark_sim.hardware.measured import (
    Medians,
    check_errors,
    is_outlier,
    profile_document,
    ratios,
    sampling_line,
    summary,
)
from dspark_sim.hardware.reading import parse_profile

PLAN = Plan(
    target="tiny",
    drafter="tiny-drafter",
    kind="dspark",
    gamma=4,
    device="cpu",
    dtype="float32",
    clock="thread CPU time",
    threads=1,
    verify_tokens=(1, 2, 4, 8),
    draft_requests=(1, 2, 4),
    contexts=(8, 16, 32),
    capture_limit=0,
    seed=0,
    versions={"torch": "2.9"},
)


def law_ms(point) -> float:
    """A machine that obeys the model exactly."""
    r, n = point.requests, point.batch_tokens
    forward, attention, own = 5.0 + 0.5 * n, 0.01 * r * point.context, 0.2 * r
    draft, sample = (1.0 + 0.1 * r) * {"": 1, "dflash": 0.5, "mtp": 2}[point.drafter], 0.3 + 0.02 * n
    return {
        "verify": forward + own,
        "own": own,
        "prefill": forward + 1.0,
        "attention": attention + own,
        "draft": draft,
        "sample": sample,
        "check": forward + attention + own + draft + sample,
    }[point.part]


def samples_of(plan, rounds=5, spread=0.0, seed=0):
    random = np.random.default_rng(seed)
    rows = [
        {"part": p.part, "drafter": p.drafter, "requests": p.requests, "tokens": p.tokens,
         "context": p.context, "ms": law_ms(p) * (1 + spread * random.standard_normal())}
        for _ in range(rounds) for p in plan.points()
    ]  # fmt: skip
    return pd.DataFrame(rows)


def made(plan=PLAN, rounds=5):
    document = profile_document(
        plan, samples_of(plan, rounds), name="tiny", device="a core", command="profile"
    )
    return parse_profile(document, "tiny")


def test_a_machine_that_obeys_the_model_is_found_exactly():
    profile = made()
    assert profile.verify.ms == (5.5, 6.0, 7.0, 9.0)
    assert profile.host.constant_ms == pytest.approx(0.3, abs=1e-3)
    assert profile.host.per_logit_row_ms == pytest.approx(0.02, abs=1e-5)
    assert profile.draft.dspark.gamma == 4
    assert profile.draft.dspark.pass_ms == (1.1, 1.2, 1.4)
    errors = check_errors(profile, PLAN, Medians(samples_of(PLAN)))
    assert {(1, 1), (1, 3), (4, 1), (4, 3)} == errors.keys()
    # 4 x 3 tokens lie past the last size of the table and are extrapolated along the same line.
    assert all(abs(error) < 1e-3 for error in errors.values())


def test_what_the_profile_says_of_itself():
    profile = made()
    assert profile.versions == {"torch": "2.9"}
    assert profile.verify.lookup == "linear"
    assert profile.capture is None
    assert "medians of 5 interleaved rounds, thread CPU time" in profile.sources["verify"].source
    assert profile.sources["host.bubble_ms"].how == "assumed"


def test_a_pass_has_as_few_requests_as_a_block_allows():
    assert [verify_shape(tokens, 4) for tokens in (1, 3, 6, 10, 16, 17)] == [
        (1, 1), (1, 3), (2, 3), (5, 2), (4, 4), (17, 1),
    ]  # fmt: skip
    shapes = [p for p in PLAN.points() if p.part == "verify"]
    assert [p.batch_tokens for p in shapes] == list(PLAN.verify_tokens)


def test_a_serial_drafter_is_charged_by_the_pass():
    profile = made(replace(PLAN, kind="eagle"))
    cost = StepCost(profile, 4, 20)
    assert cost.draft_s("eagle", 2, 4) == pytest.approx(1.2e-3)
    assert cost.draft_s("eagle", 2, 1) == pytest.approx(0.3e-3)


def test_further_drafters_are_timed_by_their_blocks_alone():
    plan = replace(PLAN, further=(Further("tiny-dflash", "dflash", 4), Further("tiny-mtp", "mtp", 5)))
    extra = [p for p in plan.points() if p not in PLAN.points()]
    assert [(p.part, p.drafter, p.requests) for p in extra] == [
        ("draft", kind, r) for kind in ("dflash", "mtp") for r in PLAN.draft_requests
    ]
    profile = made(plan)
    assert profile.draft.kinds == ("dspark", "dflash", "mtp")
    assert profile.draft.dspark == made().draft.dspark
    assert profile.draft.dflash.pass_ms == (0.55, 0.6, 0.7)
    cost = StepCost(profile, 4, 20)
    assert cost.draft_s("mtp", 2, 5) == pytest.approx(2.4e-3)
    assert "tiny-mtp" in profile.sources["draft.mtp"].source


def test_a_plan_is_rebuilt_from_its_document():
    for plan in (PLAN, replace(PLAN, further=(Further("x", "mtp", 5),))):
        assert Plan.of(json.loads(json.dumps(plan.document()))) == plan
    assert "further" not in PLAN.document()


def test_a_target_alone():
    profile = made(replace(PLAN, drafter="", kind="none"))
    assert profile.draft.kinds == ()
    assert profile.host.constant_ms == 0.0


def test_with_graphs_sizes_past_the_limit_are_the_eager_tail():
    assert capture_sizes_of((1, 3, 12, 24, 48), 10) == (1, 2, 4, 8, 12, 24, 48)
    plan = replace(PLAN, device="cuda", capture_limit=4, verify_tokens=(1, 2, 4, 8, 16))
    profile = made(plan)
    assert profile.verify.tokens == (1, 2, 4)
    assert profile.eager.tokens == (8, 16)
    assert StepCost(profile, 4, 20).padded(3) == 4
    assert profile.sources["host.bubble_ms"].source == "not measured"


def test_one_wild_sample_does_not_move_the_profile():
    samples = samples_of(PLAN, spread=0.01)
    wild = samples.copy()
    wild.loc[0, "ms"] *= 30
    first, second = (profile_document(PLAN, s, name="t", device="d", command="c") for s in (samples, wild))
    assert second["verify"]["ms"][0] == pytest.approx(first["verify"]["ms"][0], rel=0.02)
    row = summary(wild).query("part == 'verify' and tokens == 1").iloc[0]
    assert row.outliers == 1
    assert row.worst > 25


def test_outliers_are_far_in_robust_standard_deviations():
    assert is_outlier(np.array([1.0, 1.1, 0.9, 1.0, 3.0])).tolist() == [False] * 4 + [True]
    assert not is_outlier(np.array([2.0, 2.0, 2.0])).any()


def test_the_sampling_line_is_not_negative():
    samples = samples_of(PLAN)
    falling = samples.assign(ms=np.where(samples.part == "sample", 10.0 / samples.requests, samples.ms))
    constant, slope = sampling_line(Medians(falling))
    assert constant > 0
    assert slope == 0.0


def test_ratios_of_two_measurements():
    first, second = made(), made(replace(PLAN, verify_tokens=(2, 8, 16)))
    assert ratios(first, second) == pytest.approx({2: 1.0, 8: 1.0})
    with pytest.raises(InputError, match="share no size"):
        ratios(first, made(replace(PLAN, verify_tokens=(3, 5))))


def test_samples_without_the_target_s_pass():
    with pytest.raises(InputError, match="none of part 'verify'"):
        Medians(samples_of(PLAN).query("part != 'verify'"))


# The timing itself


@pytest.fixture(scope="module")
def pair():
    pytest.importorskip("torch")
    from dspark_sim.model.tiny import tiny_pair

    return tiny_pair(0, gamma=4, draft_vocab=8)


def drafter_like(name, pair):
    """A tiny drafter of the kind that ``name`` speaks of; the pair's own is a DSpark one."""
    from dspark_sim.model.tiny import tiny_pair

    if "dspark" in name:
        return pair[1]
    return tiny_pair(0, gamma=4, draft_vocab=8, head="none", serial="mtp" in name)[1]


@pytest.fixture
def profiler(pair, monkeypatch):
    from dspark_sim.model import profiler as module

    monkeypatch.setattr(module, "_SHORTEST_SAMPLE_S", 0.0)
    return module


def test_every_point_is_timed_once_a_round_in_an_order_of_its_own(pair, profiler, tmp_path):
    samples = profiler.Profiler(*pair, PLAN, tmp_path / "s.parquet").run(3)
    assert len(samples) == 3 * len(PLAN.points())
    assert (samples.ms > 0).all()
    keys = ["part", "requests", "tokens", "context"]
    first, second, _ = ([*map(tuple, rows[keys].to_numpy())] for _, rows in samples.groupby("round"))
    assert sorted(first) == sorted(second)
    assert first != second


def test_a_killed_measurement_goes_on(pair, profiler, tmp_path):
    path = tmp_path / "s.parquet"
    first = profiler.Profiler(*pair, PLAN, path).run(2)
    told = []
    again = profiler.Profiler(*pair, PLAN, path)
    assert again.done == 2
    samples = again.run(3, told.append)
    assert samples[samples["round"] < 2].ms.tolist() == first.ms.tolist()
    assert sum(told) == 2 * len(PLAN.points())  # warm-up and one round
    assert len(profiler.Profiler(*pair, PLAN, path).run(3)) == len(samples)


def test_samples_of_another_plan_are_refused(pair, profiler, tmp_path):
    path = tmp_path / "s.parquet"
    profiler.Profiler(*pair, PLAN, path).run(1)
    with pytest.raises(InputError, match=r"samples of another plan \(contexts, seed differ\)"):
        profiler.Profiler(*pair, replace(PLAN, seed=1, contexts=(8, 16)), path)
    path.write_text("x")
    with pytest.raises(InputError, match="no samples of a profile"):
        profiler.Profiler(*pair, PLAN, path)


def test_what_is_timed_is_what_the_target_computes(pair):
    """Placed beforehand, as a graph needs it, or not: the same logits as the target's own pass."""
    import torch

    from dspark_sim.model.profile_work import Workbench

    point = Point("verify", 3, 2, 0)
    bench = Workbench(*pair, [point], seed=1)
    with torch.inference_mode():
        ids, positions, rows = torch.arange(6).view(3, 2), torch.arange(2).expand(3, -1), torch.arange(3)
        bench._ids = lambda *shape: ids
        cache = pair[0].new_cache(3, 8)
        wanted = pair[0].logits(pair[0](ids, positions, cache, rows).hidden_RTd)
        for placed in (False, True):
            assert torch.equal(bench._forward(point, placed=placed)(), wanted)


def test_a_serial_pair_is_timed_too(profiler, tmp_path):
    from dspark_sim.model.tiny import tiny_pair

    pair = tiny_pair(0, gamma=4, head="none", serial=True)
    plan = replace(PLAN, kind=pair[1].config.kind)
    samples = profiler.Profiler(*pair, plan, tmp_path / "s.parquet").run(1)
    profile = parse_profile(profile_document(plan, samples, name="t", device="d", command="c"), "t")
    assert profile.draft.kinds == (pair[1].config.kind,)


def test_the_command_writes_profile_samples_and_picture(pair, profiler, tmp_path, monkeypatch, capsys):
    from dspark_sim.cli.app import dispatch
    from dspark_sim.hardware.profile import load_profile
    from dspark_sim.model import checkpoints, loading

    monkeypatch.setattr(loading, "load_target", lambda name, device: pair[0])
    monkeypatch.setattr(checkpoints, "load_drafter", lambda name, target: drafter_like(name, pair))
    out = tmp_path / "mine.yaml"
    words = ["profile", "--out", str(out), "--tokens", "1,2,4", "--requests", "1,2", "--contexts", "8,16"]
    assert dispatch([*words, "--rounds", "3"]) == 0
    said = capsys.readouterr()
    assert "composed cost" in said.out
    assert "wrote" in said.err
    first = load_profile(out)
    assert first.verify.tokens == (1, 2, 4)
    assert first.draft.kinds == ("dspark", "dflash", "mtp")
    assert "--drafter 'smollm2-mtp-g7'" in first.sources["draft.mtp"].source
    assert (tmp_path / "mine.png").stat().st_size > 5000
    assert dispatch(["hw", "check", str(out)]) == 0
    capsys.readouterr()
    assert dispatch([*words, "--rounds", "3", "--json", "--against", str(out)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["against"]["median_ratio"] == 1.0
    assert report["samples"] == 3 * len(report["points"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--out", "x.json"], "--out x.json: a profile ends in .yaml"),
        (["--out", "x.yaml", "--tokens", "1,,2"], "--tokens '1,,2': holds an empty entry"),
        (["--out", "x.yaml", "--contexts", "0,9"], "--contexts 0: must be at least 1"),
        (["--out", "x.yaml", "--against", "nowhere"], "nowhere: no such file"),
        (["--out", "x.yaml", "--contexts", "9,99999"], "tokens of one request: tiny was made for 4096"),
        (["--out", "x.yaml", "--requests", "1,99999999"], "99999999 requests of"),
        (["--out", "x.yaml", "--contexts", "64"], "--contexts 64: must be two sizes or more"),
        (["--out", "x.yaml", "--requests", "2,2"], "--requests 2: must be two sizes or more"),
        (["--out", "x.yaml", "--tokens", "9999999999"], "KV cache and logits take"),
        (
            ["--out", "x.yaml", "--drafter", "dspark-a", "--drafter", "dspark-b"],
            "--drafter dspark-b: of kind dspark like dspark-a; a profile has one of each",
        ),
    ],
)
def test_bad_words(words, said, pair, monkeypatch, capsys):
    from dspark_sim.cli.app import dispatch
    from dspark_sim.model import checkpoints, loading

    monkeypatch.setattr(loading, "load_target", lambda name, device: pair[0])
    monkeypatch.setattr(checkpoints, "load_drafter", lambda name, target: drafter_like(name, pair))
    assert dispatch(["profile", *words]) == 2
    assert said in capsys.readouterr().err


# The measurement that ships


def test_the_committed_profile_is_what_its_samples_give():
    import pyarrow.parquet as pq
    import yaml

    from dspark_sim.files import data_folder

    path = data_folder("hw_profiles") / "cpu-2core-smollm2.samples.parquet"
    table = pq.read_table(path)
    kept = json.loads(table.schema.metadata[b"dspark_sim_profile"])
    plan = Plan.of(kept)
    committed = yaml.safe_load(path.with_name("cpu-2core-smollm2.yaml").read_text())
    command = committed["sources"]["verify"]["source"].split("; ")[1]
    rebuilt = profile_document(
        plan, table.to_pandas(), name=committed["name"], device=committed["device"], command=command
    )
    assert rebuilt == committed
    medians = Medians(table.to_pandas())
    assert medians.of("verify").samples.min() == 9
    errors = check_errors(parse_profile(committed, "cpu"), plan, medians)
    assert max(map(abs, errors.values())) < 0.05
