"""The pair's commands from end to end, on a toy target in a folder: prompts in, checked trace out."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from small_traces import small_trace
from tokenizers import Tokenizer, models, pre_tokenizers

from dspark_sim.cli.app import dispatch
from dspark_sim.model.checkpoints import _layer_tensors
from dspark_sim.model.corpus import read_texts
from dspark_sim.model.tiny import tiny_pair
from dspark_sim.workload.rounds import read_rounds
from dspark_sim.workload.trace_io import read_trace, write_trace

WORDS = [f"w{n}" for n in range(22)] + ["<end>", "[UNK]"]
VOCAB = len(WORDS)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A Llama folder with five layers, a word tokenizer and a template; and 16 prompts."""
    folder = tmp_path_factory.mktemp("model")
    target, _ = tiny_pair(4, vocab=VOCAB, layers=5)
    shape = target.config.block
    state = target.state_dict()
    tensors = {"model.embed_tokens.weight": state["embed"], "model.norm.weight": state["norm.weight"]}
    tensors["lm_head.weight"] = state["lm_head"]
    for n in range(5):
        layer = _layer_tensors(state, f"layers.{n}.", shape)
        tensors |= {f"model.{name}": tensor.contiguous().clone() for name, tensor in layer.items()}
    save_file(tensors, str(folder / "model.safetensors"))
    config = {
        "model_type": "llama", "vocab_size": VOCAB, "num_hidden_layers": 5, "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size, "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads, "head_dim": shape.head_dim, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "eos_token_id": WORDS.index("<end>"),
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    random = np.random.default_rng(0)
    rows = [
        {"id": f"toy/{n}", "domain": ("code", "chat")[n % 2], "turns": [" ".join(random.choice(WORDS, 4))]}
        for n in range(16)
    ]
    (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


@pytest.fixture(scope="module")
def corpus(world):
    out = world / "corpus"
    common = ["--target", str(world), "--out", str(out), "--max-new-tokens", "20", "--seed", "3"]
    asked = [str(world / "prompts.jsonl"), *common, "--features", "--samples", "2"]
    assert dispatch(["generate", *asked, "--worker", "0/2"]) == 0
    assert dispatch(["generate", *asked, "--worker", "1/2", "--export", str(world / "texts.parquet")]) == 0
    return out


@pytest.fixture(scope="module")
def drafter(world, corpus):
    asked = [
        "train", str(corpus), "--out", str(world / "run"), "--target", str(world), "--gamma", "3", "--layers",
        "1", "--rank", "4", "--draft-vocab", "16", "--save", str(world / "drafter"),
    ]  # fmt: skip
    assert dispatch([*asked, "--anchors", "200"]) == 0
    assert dispatch([*asked, "--anchors", "400"]) == 0, "a run goes on where it stopped"
    return world / "drafter"


def test_a_study_trains_what_it_lacks_and_evaluates_it_once(world, corpus, tmp_path, capsys):
    trace = tmp_path / "t.parquet"
    write_trace(trace, small_trace(requests=8, gamma=7, longest=20))
    asked = [
        "study", "depth", "--trace", str(trace), "--target", str(world), "--train", str(corpus), "--anchors",
        "60", "--draft-vocab", "16", "--runs", str(tmp_path / "runs"), "--per-domain", "2", "--texts",
        str(world / "texts.parquet"), "--out", str(tmp_path / "out"), "--json",
    ]  # fmt: skip
    assert dispatch(asked) == 0
    said = capsys.readouterr()
    assert said.err.count("training ") == 4
    [study] = json.loads(said.out)["studies"]
    assert study["missing"] == []
    rows = {(r["drafter"], r["layers"]): r["accepted length"] for r in study["rows"] if r["domain"] == "mean"}
    assert set(rows) == {("dspark", 1), ("dspark", 2), ("dspark", 3), ("dflash", 3)}
    assert all(value >= 1 for value in rows.values())
    cached = sorted((tmp_path / "out" / "evaluations").glob("*.json"))
    stamps = [path.stat().st_mtime_ns for path in cached]
    names = ("dspark-g7-l1", "dspark-g7-l2", "dspark-g7-l3", "dflash-g7-l3")
    given = [
        word for name in names for word in ("--drafter", f"{name}={tmp_path / 'runs' / name / 'drafter'}")
    ]
    assert dispatch([*asked, *given]) == 0
    again = capsys.readouterr()
    assert "training" not in again.err
    assert json.loads(again.out)["studies"] == [study]
    assert [path.stat().st_mtime_ns for path in cached] == stamps


def test_a_refitted_head_is_written_scored_and_recorded(world, corpus, drafter, tmp_path, capsys):
    asked = ["refit", str(drafter), str(corpus), "--target", str(world), "--held-out", "30"]
    assert dispatch([*asked, "--save", str(tmp_path / "new"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["after"]["share"]) == 3
    assert document["prompts"] > document["scored_on"] > 0
    config = json.loads((tmp_path / "new" / "config.json").read_text())
    assert config["confidence_head_with_statistics"] is True
    assert config["confidence_refit"]["prompts"] == document["prompts"]
    one = [
        "record", "--texts", str(corpus), "--target", str(world), "--drafter", str(tmp_path / "new"),
        "--requests", "2", "--out", str(tmp_path / "x.parquet"),
    ]  # fmt: skip
    assert dispatch(one) == 0
    assert read_trace(tmp_path / "x.parquet").drafter(None).has_confidence


@pytest.fixture(scope="module")
def recorded(world, corpus, drafter):
    asked = [
        "record", "--texts", str(corpus), "--drafter", str(drafter), "--target", str(world), "--out",
        str(world / "toy.parquet"), "--source", "toy prompts",
    ]  # fmt: skip
    assert dispatch([*asked, "--worker", "1/2"]) == 0
    assert not (world / "toy.parquet").exists(), "half of the requests are not a trace"
    assert dispatch([*asked, "--worker", "0/2"]) == 0
    return world / "toy.parquet"


def test_workers_share_the_work_and_the_text_does_not_depend_on_it(world, corpus):
    info, texts = read_texts(world / "texts.parquet")
    assert (info.temperature, info.max_new_tokens, info.seed) == (0.7, 20, 3)
    assert sorted(text.key for text in texts) == sorted((f"toy/{n}", s) for n in range(16) for s in range(2))
    alone = world / "alone"
    asked = [str(world / "prompts.jsonl"), "--target", str(world), "--out", str(alone), "--seed", "3"]
    exported = world / "alone.parquet"
    assert dispatch(["generate", *asked, "--max-new-tokens", "20", "--export", str(exported)]) == 0
    again = {text.key: text.ids.tolist() for text in read_texts(exported)[1]}
    assert again == {text.key: text.ids.tolist() for text in texts if text.sample == 0}


def test_a_recording_says_how_it_was_made(recorded, drafter):
    trace = read_trace(recorded)
    assert len(trace.request_id) == 32
    meta = trace.meta["drafters"]["dspark"]
    assert (meta["kind"], meta["gamma"], meta["layers"], meta["head"]) == ("dspark", 3, 1, "vanilla")
    assert len(meta["checkpoint"]) == 16
    assert (trace.meta["temperature"], trace.meta["prompt_source"]) == (0.7, "toy prompts")
    assert trace.meta["notes"]["max_new_tokens"] == 20
    assert dispatch(["trace", "check", str(recorded)]) == 0


def test_the_same_recording_again_gives_the_same_bytes(world, corpus, drafter, recorded):
    again = world / "again.parquet"
    asked = ["--texts", str(corpus), "--drafter", str(drafter), "--target", str(world), "--out", str(again)]
    assert dispatch(["record", *asked, "--source", "toy prompts"]) == 0
    assert again.read_bytes() == recorded.read_bytes()


@pytest.fixture(scope="module")
def three(world, corpus, drafter):
    """One trace of all three kinds of drafters, and their folders."""
    folders = {"dspark": drafter}
    for kind, head in (("dflash", "none"), ("mtp", "mtp")):
        folders[kind] = world / kind
        asked = ["--head", head, "--gamma", "3", "--draft-vocab", "16", "--save", str(folders[kind])]
        asked += ["--out", str(world / f"run-{kind}"), "--target", str(world), "--anchors", "120"]
        assert dispatch(["train", str(corpus), *asked]) == 0
    out = world / "three.parquet"
    named = [word for kind, folder in folders.items() for word in ("--drafter", f"{kind}={folder}")]
    asked = ["--texts", str(corpus), "--target", str(world), "--out", str(out), "--source", "toy prompts"]
    assert dispatch(["record", *asked, *named]) == 0
    return out, folders


def test_one_recording_holds_all_kinds_and_none_changes_the_others(three, recorded):
    trace, alone = read_trace(three[0]), read_trace(recorded)
    assert [d.kind for d in trace.drafters.values()] == ["dspark", "dflash", "mtp"]
    for name in ("accepted_N", "confidence_logit_NG", "confidence_logit_free_NG", "accept_rate_NG"):
        np.testing.assert_array_equal(
            getattr(trace.drafter("dspark"), name), getattr(alone.drafter("dspark"), name)
        )


def test_drafters_are_compared_on_the_same_texts(world, three, capsys):
    named = [word for kind, folder in three[1].items() for word in ("--drafter", f"{kind}={folder}")]
    asked = [str(world / "texts.parquet"), *named, "--target", str(world), "--per-domain", "9"]
    capsys.readouterr()
    assert dispatch(["evaluate", *asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["drafters"]) == ["dspark", "dflash", "mtp"]
    assert set(found["against_first"]) == {"dflash", "mtp"}
    assert found["prompts"] == {"chat": 8, "code": 8}
    for one in found["drafters"].values():
        assert 1 <= one["mean"]["low"] <= one["mean"]["value"] <= one["mean"]["high"]
    assert dispatch(["evaluate", *asked]) == 0
    assert "dspark over mtp: " in capsys.readouterr().out
    assert dispatch(["evaluate", str(world / "texts.parquet"), "--held-out", "--target", str(world)]) == 2
    hot = ["--temperature", "1", "--max-new-tokens", "4", "--out", str(world / "hot"), "--target", str(world)]
    assert dispatch(["generate", str(world / "prompts.jsonl"), *hot]) == 0
    capsys.readouterr()
    assert dispatch(["evaluate", str(world / "hot"), *asked]) == 2
    assert "at temperature 0.7, but" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["dflash", "mtp"])
def test_other_drafters_decode_live_as_they_replay(world, three, kind, capsys):
    out = live(world, f"{kind}={three[1][kind]}", three[0], "full", 4, name=kind)
    capsys.readouterr()
    assert dispatch(["replay-check", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["agrees"]


def test_a_device_that_is_not_there_is_refused(world, corpus, capsys):
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    asked = [str(corpus), "--out", str(world / "no"), "--target", str(world), "--device", "cuda"]
    assert dispatch(["train", *asked]) == 2
    assert "no CUDA device" in capsys.readouterr().err


def test_training_leaves_its_curve_as_table_and_picture(world, drafter):
    assert (world / "run" / "curve.csv").read_text().startswith("anchors,")
    assert (world / "run" / "curve.png").read_bytes()[:4] == b"\x89PNG"


def test_prompts_become_a_trace_in_one_command(world, drafter):
    out = world / "direct.parquet"
    asked = [
        "record", "--prompts", str(world / "prompts.jsonl"), "--drafter", f"mine={drafter}", "--target",
        str(world), "--out", str(out), "--domain", "code", "--samples", "2", "--max-new-tokens", "8",
    ]  # fmt: skip
    assert dispatch(asked) == 0
    trace = read_trace(out)
    assert list(trace.drafters) == ["mine"]
    assert set(trace.domain) == {"code"}
    assert len(trace.request_id) == 16
    assert trace.output_tokens_Q.max() <= 8


def live(world, drafter, recorded, policy: str, concurrency: int, name: str = "live"):
    out = world / f"{name}-{policy.partition(':')[0]}-{concurrency}.parquet"
    asked = [
        "record", "--live", "--prompts", str(world / "prompts.jsonl"), "--trace", str(recorded), "--drafter",
        str(drafter), "--target", str(world), "--policy", policy, "--concurrency", str(concurrency),
        "--passes", "3", "--out", str(out), "--seed", "11",
    ]  # fmt: skip
    assert dispatch(asked) == 0
    return out


def test_live_rounds_pass_the_replay_check(world, drafter, recorded, capsys):
    logs = [live(world, drafter, recorded, "full", 4), live(world, drafter, recorded, "dspark-async", 4)]
    assert read_rounds(logs[0]).meta["policy"] == "full"
    capsys.readouterr()
    assert dispatch(["replay-check", *map(str, logs), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["agrees"]
    assert [c["policy"] for c in document["comparisons"]] == ["dspark-async", "full"]
    assert dispatch(["replay-check", str(logs[0])]) == 0
    assert "agree" in capsys.readouterr().out


def test_a_trace_that_lies_fails_the_replay_check(world, drafter, recorded, capsys):
    """Accepting one token more wherever the text allows is refused with exit 1."""
    from dataclasses import replace

    from dspark_sim.workload.trace_io import write_trace

    trace = read_trace(recorded)
    honest = trace.drafters["dspark"]
    more = np.minimum(honest.accepted_N + 1, np.minimum(honest.gamma, trace.remaining_N)).astype(np.uint8)
    lie = replace(trace, drafters={"dspark": replace(honest, accepted_N=more)})
    write_trace(world / "lie.parquet", lie)
    log = live(world, drafter, world / "lie.parquet", "full", 8)
    assert dispatch(["replay-check", str(log)]) == 1
    assert "DIFFER" in capsys.readouterr().out


def prompts_file(path, *rows: tuple[str, str]):
    path.write_text("\n".join(json.dumps({"id": n, "domain": "chat", "turns": [t]}) for n, t in rows))
    return str(path)


def test_a_second_recording_takes_nothing_of_the_first_that_is_not_its_own(world, drafter, tmp_path, capsys):
    """Other settings or another question under a known id are refused; other prompts are not mixed in."""
    out = tmp_path / "mine.parquet"
    one = prompts_file(tmp_path / "one.jsonl", ("a", "w1 w2"), ("b", "w3 w4"))
    other = prompts_file(tmp_path / "other.jsonl", ("b", "w3 w4"), ("c", "w5"))
    changed = prompts_file(tmp_path / "changed.jsonl", ("a", "w7 w8"))
    how = ["--target", str(world), "--drafter", str(drafter), "--samples", "1", "--max-new-tokens", "8"]

    def record(prompts, *more: str):
        return dispatch(["record", "--prompts", prompts, "--out", str(out), *how, *more])

    assert record(one) == 0
    first = out.read_bytes()
    for prompts, more, message in (
        (one, ("--temperature", "0"), "holds texts made with temperature 0.7, now 0.0"),
        (one, ("--seed", "5"), "holds texts made with seed 0, now 5"),
        (changed, (), "holds answers to another prompt 'a'"),
    ):
        capsys.readouterr()
        assert record(prompts, *more) == 2
        assert message in capsys.readouterr().err
        assert out.read_bytes() == first
    assert record(other) == 0
    assert sorted(read_trace(out).prompt_key) == ["b", "c"]
    assert record(other, "--samples", "2") == 0
    assert len(read_trace(out).request_id) == 4
    assert record(other) == 0
    assert sorted(read_trace(out).prompt_key) == ["b", "c"], "second samples of the run before"


def test_a_file_that_record_did_not_write_is_kept(world, drafter, recorded, tmp_path, capsys):
    kept = tmp_path / "kept.parquet"
    kept.write_bytes(recorded.read_bytes())
    prompts = prompts_file(tmp_path / "one.jsonl", ("a", "w1 w2"))
    how = ["--target", str(world), "--drafter", str(drafter), "--samples", "1", "--max-new-tokens", "8"]
    asked = ["record", "--prompts", prompts, "--out", str(kept), *how]
    assert dispatch(asked) == 2
    assert "is there already; --force overwrites it" in capsys.readouterr().err
    assert kept.read_bytes() == recorded.read_bytes()
    assert dispatch([*asked, "--force"]) == 0
    assert len(read_trace(kept).request_id) == 1


def test_a_stopped_training_says_so_and_goes_on_only_as_it_began(world, corpus, tmp_path, capsys):
    asked = ["train", str(corpus), "--out", str(tmp_path / "r"), "--target", str(world), "--gamma", "3"]
    asked += ["--layers", "1", "--draft-vocab", "16", "--anchors", "5000"]
    assert dispatch([*asked, "--stop-after-s", "0"]) == 0
    assert "of 5,000 anchors; the same command goes on" in capsys.readouterr().out
    for option, value, message in (("--seed", "3", "seed 0, now 3"), ("--lr", "0.5", "lr 0.0007, now 0.5")):
        assert dispatch([*asked, option, value]) == 2
        assert f"begun with {message}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("record --out x.parquet", "needs --prompts FILE or --texts FILE, one of the two"),
        (
            "train {texts} --out x --target {target} --draft-vocab 16 --lr -1",
            "rate -1 must be a number above 0",
        ),
        ("train {texts} --out x --target {target}", "or for all of the target's (--draft-vocab 0)"),
        ("record --out x.parquet --live", "needs --prompts FILE and --trace FILE"),
        ("record --out x.parquet --texts no.parquet --target {target}", "no.parquet: no such file"),
        ("record --out x.parquet --texts {texts} --target {target} --domain law", "no text of domain 'law'"),
        ("record --out x.parquet --texts {texts} --target nowhere", "no such target"),
        ("record --out x.parquet --texts {texts} --target {target} --worker 2/2", "I below N"),
        ("generate no.jsonl --out x --target {target}", "no.jsonl"),
        ("train no-corpus --out x --target {target}", "no-corpus"),
        ("replay-check no.parquet", "no.parquet: no such file"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(world, corpus, words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    places = {"target": str(world), "texts": str(corpus)}
    assert dispatch(words.format(**places).split()) == 2
    error = capsys.readouterr().err.strip()
    assert message in error
    assert "\n" not in error
    assert not list(tmp_path.glob("*.parquet"))


@pytest.mark.parametrize("command", [["generate", "p"], ["train", "c"], ["record", "--texts", "t"]])
def test_without_torch_one_line_says_what_to_install(command, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch", None)
    for name in [name for name in sys.modules if name.startswith("dspark_sim.model.")]:
        monkeypatch.delitem(sys.modules, name)
    assert dispatch([*command, "--out", "x"]) == 2
    assert "pip install 'dspark-sim[model]'" in capsys.readouterr().err
    assert torch is not None
