"""Synthetic traces: the acceptance asked for, confidences that are true, spreads that do what they say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dspark_sim.errors import InputError
from dspark_sim.workload import synthetic
from dspark_sim.workload.fitting import calibrate
from dspark_sim.workload.published import DSV4_PRO, PUBLISHED, conditionals_of, published, source_of
from dspark_sim.workload.synth_confidence import match_auc, mean_auc, overconfident
from dspark_sim.workload.synth_modes import accepted_len_of, alike, law
from dspark_sim.workload.synthetic import SynthDrafter, SynthSpec, synthesise, synthesise_blocks
from dspark_sim.workload.trace_io import read_trace, write_parts
from dspark_sim.workload.trace_rules import check_trace
from dspark_sim.workload.traces import Trace
from dspark_sim.workload.visits import count, evidence, reliability, visited

CHAT = published("qwen3-4b-chat")[2]
SPEC = SynthSpec(CHAT[:1], "toy", "for a test", requests=150, output_tokens=200.0, seed=5)


@pytest.fixture(scope="module")
def trace() -> Trace:
    return synthesise(SPEC, "toy")


def conditional(trace: Trace, name: str | None = None) -> np.ndarray:
    drafter = trace.drafter(name)
    return count(trace, drafter, visited(trace, drafter)).total().conditional_G


def test_a_synthetic_trace_is_valid_and_says_that_it_is_synthetic(trace: Trace):
    check_trace(trace, "toy")
    assert trace.synthetic
    assert trace.meta["synthetic"] is True
    assert trace.pair_label.startswith("SYNTHETIC")
    assert trace.meta["notes"]["model"]["noise"] == SPEC.noise


def test_a_long_trace_is_drawn_in_blocks_each_with_the_acceptance_asked_for(trace, tmp_path, monkeypatch):
    [only] = synthesise_blocks(SPEC, "toy")
    assert only.content_hash == trace.content_hash
    monkeypatch.setattr(synthetic, "BLOCK", 80)
    blocks = list(synthesise_blocks(SPEC, "toy"))
    assert [len(block.request_id) for block in blocks] == [75, 75]
    write_parts(tmp_path / "t.parquet", synthesise_blocks(SPEC, "toy"))
    whole = read_trace(tmp_path / "t.parquet")
    assert (whole.request_id, whole.meta) == (trace.request_id, trace.meta)
    for part in (*blocks, whole):
        np.testing.assert_allclose(conditional(part), CHAT[0].conditional, atol=0.015)
    lengths = [block.output_tokens_Q for block in blocks]
    assert not np.array_equal(*lengths), "blocks do not repeat one another"


def test_the_acceptance_asked_for_is_met_on_visited_anchors(trace: Trace):
    np.testing.assert_allclose(conditional(trace), CHAT[0].conditional, atol=0.01)
    drafter = trace.drafter()
    everywhere = (drafter.accepted_N[trace.remaining_N > 0] > 0).mean()
    assert everywhere > CHAT[0].conditional[0] + 0.01, "all anchors would overstate acceptance"


# Confidences as good as asked


@pytest.mark.parametrize("auc", [0.7, 0.9])
def test_spreads_are_scaled_until_the_auc_is_the_one_asked_for(auc: float):
    wanted = (0.8, 0.7, 0.6)
    toy = replace(
        SPEC, drafters=(SynthDrafter("dspark", "dspark", wanted),), requests=80, output_tokens=100.0
    )
    spec = match_auc(toy, auc)
    assert spec.noise == toy.noise
    assert spec.spread_rounds / spec.spread_positions == pytest.approx(
        toy.spread_rounds / toy.spread_positions
    )
    found = synthesise(spec, "toy")
    assert mean_auc(found, "dspark") == pytest.approx(auc, rel=0.01)
    np.testing.assert_allclose(conditional(found), wanted, atol=0.01)


def test_confidences_are_off_by_what_was_asked_for(trace: Trace):
    wanted = [0.057, 0.07, 0.082, 0.07, 0.058, 0.045, 0.033]
    sure = overconfident(trace, wanted)
    check_trace(sure, "toy")
    drafter = sure.drafter()
    scores = reliability(drafter, evidence(sure, drafter, visited(sure, drafter)), calibrated=False)
    np.testing.assert_allclose(scores.ece_G, wanted, atol=0.01)
    np.testing.assert_array_equal(drafter.accepted_N, trace.drafter().accepted_N)
    np.testing.assert_array_equal(drafter.logits_NG()[:, 0], drafter.logits_NG(free=True)[:, 0])
    assert sure.meta["notes"]["requested_ece"] == wanted
    mended = calibrate(sure, "dspark", "bias", 0)
    assert mended.after.ece_G.mean() < 0.5 * mended.before.ece_G.mean()


@pytest.mark.parametrize(
    ("ece", "message"),
    [
        ([0.1, 0.2], "expected 1 or 7 numbers in 0..1"),
        ([-0.1], "expected 1 or 7 numbers in 0..1"),
        ([0.6], "calibration error at position 1: 0.6 cannot be reached"),
    ],
)
def test_calibration_errors_that_no_bias_reaches(trace: Trace, ece: list[float], message: str):
    with pytest.raises(InputError, match=message):
        overconfident(trace, ece)


def test_aucs_that_no_spread_reaches():
    small = replace(SPEC, requests=30)
    with pytest.raises(InputError, match=r"AUC 0.999: scaling the spreads gives 0\.\d+ to 0\.\d+"):
        match_auc(small, 0.999)
    with pytest.raises(InputError, match="needs a drafter of kind dspark, and a spread above 0"):
        match_auc(replace(small, spread_requests=0.0, spread_rounds=0.0, spread_positions=0.0), 0.8)
    with pytest.raises(InputError, match="needs a drafter of kind dspark"):
        match_auc(replace(small, drafters=(SynthDrafter("m", "mtp", (0.5,)),)), 0.8)
    with pytest.raises(InputError, match="no drafter has a confidence head"):
        overconfident(synthesise(replace(small, drafters=(SynthDrafter("m", "mtp", (0.5,)),)), "m"), [0.1])


# Modes


ALIKE = replace(SPEC, spread_requests=0.0, spread_rounds=0.0, spread_positions=0.0, noise=0.0)


def accepted_len(trace: Trace) -> float:
    drafter = trace.drafter()
    return count(trace, drafter, visited(trace, drafter)).total().accepted_len_uncut


@pytest.mark.parametrize("mode", ["geometric", "minimum-variance"])
@pytest.mark.parametrize("wanted", [(0.9, 0.8, 0.7), (0.3, 0.2), CHAT[0].conditional, (0.99,) * 7])
def test_rounds_that_are_alike_keep_the_accepted_length(mode: str, wanted: tuple[float, ...]):
    drafter = SynthDrafter("d", "dspark", wanted)
    trace = synthesise(replace(ALIKE, drafters=(drafter,), mode=mode), "toy")
    check_trace(trace, "toy")
    assert accepted_len(trace) == pytest.approx(accepted_len_of(drafter), rel=0.01)


def test_geometric_accepts_every_position_alike_and_its_confidences_know_no_more():
    trace = synthesise(replace(ALIKE, mode="geometric"), "toy")
    alpha = alike(CHAT[0])
    np.testing.assert_allclose(conditional(trace), alpha, atol=0.02)
    confidence = trace.drafter().confidence_NG()
    assert np.ptp(confidence) == 0.0
    np.testing.assert_allclose(confidence, alpha, atol=0.02)


def test_minimum_variance_accepts_one_of_two_neighbouring_numbers():
    drafter = SynthDrafter("d", "dspark", (0.8,) * 7)
    trace = synthesise(replace(ALIKE, drafters=(drafter,), mode="minimum-variance"), "toy")
    inside = trace.drafter().accepted_N[trace.remaining_N >= 7]
    mean = accepted_len_of(drafter) - 1
    assert sorted(set(inside.tolist())) == [int(mean), int(mean) + 1]
    assert inside.var() == pytest.approx((mean % 1) * (1 - mean % 1), abs=0.01)
    np.testing.assert_allclose(
        trace.drafter().confidence_NG()[0], law("minimum-variance", drafter), atol=0.002
    )


@pytest.mark.parametrize("change", [{"drift": -2.0}, {"drift": 1.5}, {"switch": 2.0, "dwell": 40.0}])
def test_drift_keeps_the_acceptance_asked_for_on_the_whole(change: dict[str, float]):
    trace = synthesise(replace(SPEC, mode="drift", **change), "toy")
    np.testing.assert_allclose(conditional(trace), CHAT[0].conditional, rtol=0.01)
    drafter = trace.drafter()
    scores = reliability(drafter, evidence(trace, drafter, visited(trace, drafter)), calibrated=False)
    assert (scores.ece_G < 0.03).all(), "the head sees the drift"


def test_acceptance_falls_with_context():
    spec = replace(SPEC, mode="drift", drift=-4.0, requests=300)
    trace = synthesise(spec, "toy")
    drafter = trace.drafter()
    rounds = visited(trace, drafter)
    rounds = rounds[trace.remaining_N[rounds] >= 7]
    context = trace.anchor_N[rounds] + trace.prompt_tokens_Q[trace.request_N[rounds]]
    short, long = (drafter.accepted_N[rounds[part]].mean() for part in (context < 150, context > 300))
    assert short > long + 0.4
    logit = drafter.logits_NG()[rounds, 0].astype(float)
    assert np.polyfit(context, logit, 1)[0] == pytest.approx(-4e-3, rel=0.25)


def test_a_text_switches_between_easy_and_hard_stretches():
    spec = replace(ALIKE, mode="drift", switch=3.0, dwell=25.0)
    trace = synthesise(spec, "toy")
    first = trace.drafter().logits_NG()[:, 0].astype(float)
    levels = np.unique(first)
    assert len(levels) == 2
    assert np.ptp(levels) == pytest.approx(3.0, abs=0.05)
    inside = np.diff(trace.request_N) == 0
    turns = (np.diff(first) != 0)[inside].mean()
    assert 1 / turns == pytest.approx(25.0, rel=0.1)
    assert (first == levels[1]).mean() == pytest.approx(0.5, abs=0.05)


def test_golden_curves_multiply_back():
    for name, lengths in DSV4_PRO.items():
        drafter = next(d for d in published("dsv4-pro")[2] if d.name == name)
        assert 1 + np.cumsum(np.cumprod(drafter.conditional)) == pytest.approx(lengths)
        assert conditionals_of(lengths) == drafter.conditional
    assert "SPEED-Bench" in source_of("dsv4-pro")
    assert "figure 2" in source_of("qwen3-4b-math")


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_acceptance_is_met_by_every_drafter_on_one_text(name: str):
    target, domain, drafters = published(name)
    trace = synthesise(replace(SPEC, drafters=drafters, target=target, domain=domain), name)
    for drafter in drafters:
        np.testing.assert_allclose(conditional(trace, drafter.name), drafter.conditional, atol=0.01)
        assert trace.drafters[drafter.name].has_confidence == (drafter.kind == "dspark")


def test_confidences_are_calibrated_on_visited_anchors_whatever_the_noise():
    for noise in (0.0, 1.5):
        trace = synthesise(replace(SPEC, noise=noise, requests=300), "toy")
        drafter = trace.drafter()
        scores = reliability(drafter, evidence(trace, drafter, visited(trace, drafter)), calibrated=False)
        assert (scores.ece_G < 0.02).all(), noise


def test_noise_makes_confidences_less_sharp():
    def auc(noise: float) -> np.ndarray:
        trace = synthesise(replace(SPEC, noise=noise), "toy")
        drafter = trace.drafter()
        return reliability(drafter, evidence(trace, drafter, visited(trace, drafter)), calibrated=False).auc_G

    assert (auc(0.0) > auc(1.5) + 0.02).all()


def test_default_spreads_rank_prefixes_as_well_as_the_published_head(trace: Trace):
    drafter = trace.drafter()
    scores = reliability(drafter, evidence(trace, drafter, visited(trace, drafter)), calibrated=False)
    np.testing.assert_allclose(scores.auc_G[::2], [0.818, 0.812, 0.864, 0.907], atol=0.05)


def test_the_free_block_has_the_law_of_the_coupled_one_and_shares_its_first_position(trace: Trace):
    coupled, free = (trace.drafter().logits_NG(block).astype(float) for block in (False, True))
    np.testing.assert_array_equal(coupled[:, 0], free[:, 0])
    assert (coupled[:, 1:] != free[:, 1:]).mean() > 0.9
    levels = np.linspace(0.05, 0.95, 10)
    np.testing.assert_allclose(
        np.quantile(coupled, levels, axis=0), np.quantile(free, levels, axis=0), atol=0.06
    )
    for j in range(1, 7):
        assert 0.3 < np.corrcoef(coupled[:, j], free[:, j])[0, 1] < 0.9


def test_neighbouring_anchors_and_requests_are_alike_as_told():
    spec = replace(SPEC, spread_requests=0.0, spread_positions=0.0, noise=0.0, correlation=0.8)
    trace = synthesise(spec, "toy")
    first = trace.drafter().logits_NG()[:, 0].astype(float)
    same_text = np.diff(trace.request_N) == 0
    assert np.corrcoef(first[:-1][same_text], first[1:][same_text])[0, 1] == pytest.approx(0.8, abs=0.02)
    assert first.std() == pytest.approx(spec.spread_rounds, rel=0.03)
    lone = (
        synthesise(replace(spec, spread_requests=1.0, spread_rounds=0.0), "toy").drafter().logits_NG()[:, 0]
    )
    assert all(len(set(lone[trace.request_N == q])) == 1 for q in range(5))


def test_drafters_on_one_text_find_the_same_places_hard():
    drafters = (SynthDrafter("dspark", "dspark", (0.7,) * 3), SynthDrafter("dspark-b", "dspark", (0.7,) * 3))

    def correlation(shared: float) -> float:
        spec = replace(SPEC, drafters=drafters, shared=shared, spread_positions=0.0, noise=0.0)
        logits = [d.logits_NG()[:, 0].astype(float) for d in synthesise(spec, "toy").drafters.values()]
        return float(np.corrcoef(*logits)[0, 1])

    assert correlation(0.6) == pytest.approx(0.6, abs=0.05)
    assert correlation(0.0) == pytest.approx(0.0, abs=0.05)


def test_lengths_follow_their_laws():
    trace = synthesise(
        replace(SPEC, requests=3000, output_tokens=40.0, drafters=(SynthDrafter("m", "mtp", (0.5,)),)), "x"
    )
    output, prompt = trace.output_tokens_Q, trace.prompt_tokens_Q
    assert output.mean() == pytest.approx(40.0, rel=0.03)
    assert output.std() / output.mean() == pytest.approx(0.444, abs=0.02)
    assert prompt.mean() == pytest.approx(110.0, rel=0.05)


def test_the_seed_decides_everything(trace: Trace):
    assert synthesise(SPEC, "other name").content_hash == trace.content_hash
    assert synthesise(replace(SPEC, seed=6), "toy").content_hash != trace.content_hash


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"requests": 0}, "requests = 0: must be at least 1"),
        ({"output_tokens": 1.0}, "output_tokens = 1.0: mean must be at least 2"),
        ({"output_tokens": float("nan")}, "output_tokens = nan"),
        ({"prompt_tokens": 0.0}, "prompt_tokens"),
        ({"spread_rounds": -1.0}, r"spread_rounds = -1.0: must lie in 0..5"),
        ({"noise": float("inf")}, "noise = inf"),
        ({"correlation": 1.0}, "correlation = 1.0"),
        ({"shared": 1.5}, "shared = 1.5"),
        ({"seed": -1}, "seed = -1"),
        ({"mode": "geometrical"}, r"mode = geometrical: not one of .*did you mean 'geometric'"),
        ({"mode": "geometric"}, "spread_requests = 0.7: mode geometric has rounds that are all alike"),
        ({"drift": -1.0}, "drift or switch is said if and only if the mode is drift"),
        ({"mode": "drift"}, "drift or switch is said if and only if the mode is drift"),
        ({"mode": "drift", "switch": -1.0}, "switch = -1.0: must lie in 0..5"),
        ({"mode": "drift", "switch": 1.0, "dwell": 0.5}, "dwell = 0.5: must be at least 1"),
        ({"drafters": (SynthDrafter("d", "mtp", (0.5, 1.0)),)}, "drafter 'd': conditional acceptance"),
        ({"drafters": (SynthDrafter("d", "mtp", ()),)}, "drafter 'd': conditional acceptance"),
        ({"drafters": ()}, "no drafter"),
        ({"drafters": (CHAT[0], CHAT[0])}, "drafter 'dspark' is there twice"),
    ],
)
def test_what_cannot_be_synthesised(changes: dict[str, object], message: str):
    with pytest.raises(InputError, match=message):
        synthesise(replace(SPEC, **changes), "bad")


def test_unknown_published_acceptance():
    with pytest.raises(
        InputError, match=r"no published acceptance 'qwen3-4b-chatt' \(did you mean 'qwen3-4b-chat'\?\)"
    ):
        published("qwen3-4b-chatt")


@pytest.mark.parametrize(
    ("name", "requests"),
    [("qwen3-4b-chat", 400), ("qwen3-4b-math", 250), ("qwen3-4b-code", 250), ("dsv4-pro", 250)],
)
def test_a_shipped_trace_is_what_its_command_makes(name: str, requests: int):
    shipped = read_trace(f"{name}.synth")
    target, domain, drafters = published(name)
    model = shipped.meta["notes"]["model"]
    spec = SynthSpec(**{**model, "drafters": drafters})
    assert (spec.seed, spec.target, spec.domain) == (1, target, domain)
    assert len(shipped.request_id) == requests
    assert shipped.synthetic
    assert shipped.meta["made"] == f"synthetic acceptance after {source_of(name)}"
    for drafter in drafters:
        np.testing.assert_allclose(conditional(shipped, drafter.name), drafter.conditional, rtol=0.01)
    if name != "dsv4-pro":
        return
    again = synthesise(spec, shipped.name)
    assert again.meta == shipped.meta
    same = [(again.drafters[d].accepted_N == shipped.drafters[d].accepted_N).mean() for d in shipped.drafters]
    assert min(same) > 0.999, "but for last bits of exp, the same"
