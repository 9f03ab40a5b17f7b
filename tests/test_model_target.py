"""The target: against transformers, ragged rows, and a cache that needs no cropping."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the extra [model]")

from dspark_sim.errors import InputError  # noqa: E402
from dspark_sim.model.gguf_convert import hf_name, unpermute  # noqa: E402
from dspark_sim.model.loading import load_target  # noqa: E402
from dspark_sim.model.sampling import draw, nucleus, probabilities  # noqa: E402
from dspark_sim.model.tiny import tiny_pair  # noqa: E402

SIZES = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 61, "max_position_embeddings": 128,
}  # fmt: skip


def run(target, ids, taps=None):
    """One plain pass over one text."""
    ids = torch.as_tensor(ids)[None]
    positions = torch.arange(ids.shape[1])[None]
    return target(ids, positions, target.new_cache(1, ids.shape[1]), torch.tensor([0]), taps)


@pytest.mark.parametrize("family", ["Llama", "Qwen3"])
def test_equals_transformers(family: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="needs the extra [model]")
    torch.manual_seed(1)
    config = getattr(transformers, f"{family}Config")(**SIZES, tie_word_embeddings=family == "Llama")
    reference = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    reference.save_pretrained(tmp_path)
    ids = torch.randint(0, 61, (19,))
    with torch.no_grad():
        wanted = reference(ids[None], output_hidden_states=True)
    target = load_target(tmp_path)
    out = run(target, ids, taps=(-1, 0, 2))
    torch.testing.assert_close(target.logits(out.hidden_RTd), wanted.logits, atol=2e-6, rtol=2e-6)
    states = torch.stack([wanted.hidden_states[n + 1] for n in (-1, 0, 2)], 2)
    torch.testing.assert_close(out.taps_RTmd, states, atol=2e-6, rtol=2e-6)


def test_ragged_rows_and_rejected_tokens_leave_no_trace() -> None:
    """Two rows of different lengths in steps of different sizes, with junk written and overwritten."""
    target, _ = tiny_pair(0)
    texts = [torch.randint(0, 13, (12,)), torch.randint(0, 13, (9,))]
    whole = [run(target, ids).hidden_RTd[0] for ids in texts]
    cache, rows = target.new_cache(3, 16), torch.tensor([2, 0])
    found: list[list[torch.Tensor]] = [[], []]
    done = [0, 0]
    for sizes in ((4, 1), (1, 5), (3, 0), (4, 3)):
        # First a rejected draft of the same positions, then the tokens that stay.
        for junk in (True, False):
            ids, positions = torch.zeros(2, 5, dtype=torch.long), torch.zeros(2, 5, dtype=torch.long)
            valid = torch.zeros(2, 5, dtype=torch.bool)
            for r, size in enumerate(sizes):
                take = torch.arange(done[r], done[r] + size)
                ids[r, :size] = (texts[r][take] + junk) % 13
                positions[r, :size], valid[r, :size] = take, True
            out = target(ids, positions, cache, rows, valid_RT=valid).hidden_RTd
        for r, size in enumerate(sizes):
            found[r].append(out[r, :size])
            done[r] += size
    for r in range(2):
        torch.testing.assert_close(torch.cat(found[r]), whole[r], atol=1e-5, rtol=1e-5)


def test_a_position_beyond_the_cache_is_refused() -> None:
    target, _ = tiny_pair(0)
    with pytest.raises(InputError, match="position 4 does not fit a capacity of 4"):
        target(
            torch.zeros(1, 5, dtype=torch.long),
            torch.arange(5)[None],
            target.new_cache(1, 4),
            torch.tensor([0]),
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gpt2"}, "model_type: 'gpt2' is not supported"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_type 'yarn' is not supported"),
        ({"hidden_size": None}, "hidden_size: key is missing"),
    ],
)
def test_bad_config_is_one_line(change: dict, message: str, tmp_path: Path) -> None:
    raw = {"model_type": "llama", "rope_theta": 1e4} | SIZES | change
    (tmp_path / "config.json").write_text(json.dumps({k: v for k, v in raw.items() if v is not None}))
    with pytest.raises(InputError, match=message) as caught:
        load_target(tmp_path)
    assert "\n" not in str(caught.value)


def test_unknown_target_says_what_is_known(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="smollm2-135m-instruct"):
        load_target(tmp_path / "nothing")


def test_gguf_rows_return_to_halves() -> None:
    """llama.cpp interleaves the two halves of each head; the way back restores them."""
    heads, half, width = 3, 4, 5
    weight = torch.randn(heads * half * 2, width)
    interleaved = weight.view(heads, 2, half, width).transpose(1, 2).reshape(weight.shape)
    assert torch.equal(unpermute(interleaved, heads), weight)
    assert hf_name("blk.3.attn_q.weight") == "model.layers.3.self_attn.q_proj.weight"
    with pytest.raises(InputError, match="unknown to the Llama layout"):
        hf_name("blk.3.surprise.weight")


def test_probabilities_at_zero_are_the_argmax() -> None:
    assert probabilities(torch.tensor([0.1, 2.0, 2.0]), 0.0).tolist() == [0, 1, 0]


def test_nucleus_keeps_the_token_that_crosses() -> None:
    probs = torch.tensor([0.15, 0.5, 0.05, 0.3])
    torch.testing.assert_close(nucleus(probs, 0.7), torch.tensor([0, 0.625, 0, 0.375]))
    torch.testing.assert_close(probabilities(probs.log(), 1.0, 1.0), probs)


def test_draw_inverts_the_cdf() -> None:
    weights = torch.tensor([0.0, 2.0, 0.0, 1.0, 1.0, 0.0])
    uniform = torch.tensor([0.0, 0.49, 0.5, 0.74, 0.76, 1.0 - 2**-24], dtype=torch.float64)
    assert draw(weights.expand(6, 6), uniform).tolist() == [1, 1, 3, 3, 4, 4]
