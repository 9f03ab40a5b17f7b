"""Rejection sampling and its posterior, rule by rule."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_sim.model.sampling import probabilities
from dspark_sim.model.verify import PAST_END, TextAhead, draft_blocks, posterior_step, residual, verify

IDS = torch.tensor([0, 2, 3])


def tables(seed: int, rows: int, gamma: int, temperature: float = 1.0, top_p: float = 1.0):
    g = torch.Generator().manual_seed(seed)
    p = probabilities(2 * torch.randn(rows, gamma + 1, 5, generator=g), temperature, top_p)
    q = probabilities(2 * torch.randn(rows, gamma, 3, generator=g), temperature, top_p)
    return p, q, torch.rand(rows, gamma + 1, generator=g), torch.randint(3, (rows, gamma), generator=g)


def full_q(q_W: torch.Tensor) -> torch.Tensor:
    return torch.zeros(5).index_copy(0, IDS, q_W)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.6, 1.0]), st.sampled_from([0.7, 1.0]))
def test_verify_equals_the_rule_written_out(seed, temperature, top_p):
    p, q, uniform, drafted = tables(seed, 6, 3, temperature, top_p)
    length = torch.randint(4, (6,), generator=torch.Generator().manual_seed(seed))
    done = verify(p, q, drafted, length, draft_ids_W=IDS, uniform_RU=uniform)
    for r in range(6):
        accepted = 0
        while accepted < length[r]:
            x = drafted[r, accepted]
            if uniform[r, accepted] * q[r, accepted, x] >= p[r, accepted, IDS[x]]:
                break
            accepted += 1
        assert done.accepted_R[r] == accepted
        weights = p[r, accepted]
        if accepted < length[r]:
            weights = residual(weights, full_q(q[r, accepted]))
        cdf = weights.double().cumsum(0)
        token = int(done.next_R[r])
        below = cdf[token - 1] if token else 0.0
        assert weights[token] > 0
        assert below <= uniform[r, 3].double() * cdf[-1] <= cdf[token]


def test_at_temperature_zero_verification_is_argmax_equality():
    p, q, uniform, _ = tables(3, 400, 3, temperature=0.0)
    drafted = q.argmax(-1)
    done = verify(p, q, drafted, torch.full((400,), 3), draft_ids_W=IDS, uniform_RU=uniform)
    best = p.argmax(-1)
    equal = (IDS[drafted] == best[:, :3]).long().cumprod(1).sum(1)
    assert torch.equal(done.accepted_R, equal)
    assert torch.equal(done.next_R, best[torch.arange(400), equal])
    assert len(equal.unique()) == 4, "every accepted length must occur, or nothing was tested"


def test_entries_past_the_verify_length_are_not_read():
    p, q, uniform, drafted = tables(5, 50, 3)
    length = torch.randint(4, (50,), generator=torch.Generator().manual_seed(1))
    before = verify(p, q, drafted, length, draft_ids_W=IDS, uniform_RU=uniform)
    for r in range(50):
        p[r, length[r] + 1 :] = float("nan")
        q[r, length[r] :] = float("nan")
        drafted[r, length[r] :] = 0
    after = verify(p, q, drafted, length, draft_ids_W=IDS, uniform_RU=uniform)
    assert torch.equal(before.accepted_R, after.accepted_R)
    assert torch.equal(before.next_R, after.next_R)


def test_posterior_accepts_what_the_drafter_likes_more_than_the_target_does():
    q, p = torch.tensor([[0.5, 0.3, 0.2]]), torch.tensor([[0.25, 0.1, 0.05]])
    for text in range(3):  # q > p everywhere: accepted with certainty, and so the draft token is the text
        got = posterior_step(q, p, torch.tensor([text]), p[:, text], torch.tensor([[0.999999, 0.5]]))
        assert (bool(got.accepted_N), int(got.drafted_N)) == (True, text)


def test_posterior_rejects_a_token_the_drafter_does_not_know_and_draws_where_q_exceeds_p():
    q, p = torch.tensor([[0.5, 0.3, 0.2]]), torch.tensor([[0.1, 0.4, 0.1]])
    for uniform, drafted in ((0.0, 0), (0.79, 0), (0.81, 2), (0.999, 2)):  # residual .4, 0, .1
        got = posterior_step(q, p, torch.tensor([3]), torch.tensor([0.4]), torch.tensor([[0.0, uniform]]))
        assert (bool(got.accepted_N), int(got.drafted_N)) == (False, drafted)


def test_posterior_at_temperature_zero_is_argmax_equality_even_if_rounding_moved_the_targets_argmax():
    q = torch.eye(3)[[0, 0, 1]]
    p = torch.eye(3)[[0, 1, 2]]
    text = torch.tensor([0, 1, 1])  # the last text token is not what this p would have said
    got = posterior_step(q, p, text, p.gather(1, text[:, None])[:, 0], torch.full((3, 2), 0.9))
    assert got.accepted_N.tolist() == [True, False, True]
    assert got.drafted_N.tolist() == [0, 0, 1]


def chain(count: int):
    """A drafter that always says: one draft index up from the previous token."""

    def step(j: int, previous: torch.Tensor) -> torch.Tensor:
        assert len(previous) == (count if j == 0 else 2 * count)
        index = torch.tensor([0, -1, 1, 2, -1])[previous]
        return torch.eye(3)[(index + 1) % 3]

    return step


def test_blocks_follow_the_text_and_go_on_freely_past_its_end():
    text = torch.tensor([[1, 2, 0, 1], [1, 1, 2, 0], [1, PAST_END, PAST_END, PAST_END]])
    ahead = TextAhead(text, torch.ones(3, 4), torch.tensor([0, 0, 0]), torch.full((4, 3), 1 / 3))
    blocks = draft_blocks(chain(3), torch.zeros(3, dtype=torch.long), ahead, IDS, torch.full((3, 4, 3), 0.5))
    assert blocks.accepted_N.tolist() == [4, 1, 1]
    # Row 1 is rejected at its second token: that one comes from the residual (index 2), the rest
    # follows what was drafted; row 2 ends after one token and goes on as the drafter likes.
    assert blocks.coupled_NG.tolist() == [[2, 3, 0, 2], [2, 3, 0, 2], [2, 3, 0, 2]]
    assert torch.equal(blocks.free_NG, blocks.coupled_NG)


def test_a_block_depends_on_its_own_uniforms_only():
    g = torch.Generator().manual_seed(0)
    q = probabilities(torch.randn(4, 5, 3, generator=g), 1.0)
    text = torch.randint(-1, 4, (40, 4), generator=g)
    p_TW = 0.9 * probabilities(torch.randn(50, 3, generator=g), 1.0)
    place, uniform = torch.randint(40, (40,), generator=g), torch.rand(40, 4, 3, generator=g)
    p_of_text = torch.rand(40, 4, generator=g)
    anchor = torch.randint(5, (40,), generator=g)

    def run(rows: torch.Tensor):
        ahead = TextAhead(text[rows], p_of_text[rows], place[rows], p_TW)
        return draft_blocks(lambda j, previous: q[j, previous], anchor[rows], ahead, IDS, uniform[rows])

    whole, part = run(torch.arange(40)), run(torch.arange(10, 17))
    for name in ("accepted_N", "coupled_NG", "free_NG"):
        assert torch.equal(getattr(whole, name)[10:17], getattr(part, name))
