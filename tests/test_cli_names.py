"""A misspelt name is answered with the right one; a missing extra with what installs it."""

from __future__ import annotations

import subprocess
import sys

import pytest

RUN = ("run", "--trace", "{trace}", "--hw", "h800")

#: Words with one name misspelt, and what was meant.
MISSPELT = [
    (("swep",), "sweep"),
    (("trace", "sho"), "show"),
    (("run", "--concurency", 3), "--concurrency"),
    (("run", "--trace", "chta", "--hw", "h800"), "chat"),
    (("run", "--trace", "qwen3-4b-chat.snth", "--hw", "h800"), "qwen3-4b-chat.synth"),
    (("trace", "show", "mth.parquet"), "math"),
    (("run", "--trace", "{trace}", "--hw", "h80"), "h800"),
    (("hw", "show", "h200-qwen3-8"), "h200-qwen3-8b"),
    ((*RUN, "--policy", "dspark-asnc"), "dspark-async"),
    ((*RUN, "--policy", "threshold:onn=survival"), "on"),
    ((*RUN, "--drafter", "dspak"), "dspark"),
    ((*RUN, "--believed", "vlm"), "vllm"),
    ((*RUN, "--set", "captur.limit=3"), "capture.limit"),
    ((*RUN, "--replicate", "prompt"), "prompts"),
    ((*RUN, "--arrivals", "poison:rate=2", "--requests", 9), "poisson"),
    ((*RUN, "--arrivals", "poisson:rate=2", "--requests", 9, "--router", "rond-robin"), "round-robin"),
    ((*RUN, "--arrivals", "poisson:rate=2", "--requests", 9, "--slo", "tpto_p99=25ms"), "tpot"),
    (("audit", "dsparc"), "dspark"),
    (("validate", "papr"), "paper"),
    (("sensitivity", "nois", "--trace", "{trace}", "--hw", "h800"), "noise"),
    (("study", "treshold", "--out", "x"), "threshold"),
    (("synth", "--like", "qwen3-4b-cht", "--out", "x.parquet"), "qwen3-4b-chat"),
    (("calibrate", "{trace}", "--method", "bis"), "bias"),
]


@pytest.mark.parametrize(
    ("words", "meant"), MISSPELT, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_misspelt_name_is_answered_with_the_right_one(command, toy_trace, words, meant):
    error = command(*(str(word).format(trace=toy_trace) for word in words)).error
    assert f"did you mean '{meant}'?" in error


@pytest.mark.parametrize(
    ("module", "extra", "words"),
    [
        ("numba", "fast", (*RUN, "--fast", "--concurrency", 1)),
        ("ray", "ray", ("sweep", "--trace", "{trace}", "--hw", "h800", "--backend", "ray", "--jobs", 1)),
        ("torch", "model", ("parity", "nowhere")),
        ("torch", "model", ("audit", "dspark", "--live")),
    ],
)
def test_a_missing_extra_is_named_with_what_installs_it(toy_trace, module, extra, words):
    """In a process of its own: a module hidden in this one would stay half loaded for other tests."""
    asked = [str(word).format(trace=toy_trace) for word in words]
    hidden = f"import sys; sys.modules[{module!r}] = None; from dspark_sim.cli.app import dispatch; "
    call = [sys.executable, "-c", f"{hidden}sys.exit(dispatch({asked!r}))"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.strip().splitlines()) == 1
    assert f"pip install 'dspark-sim[{extra}]'" in done.stderr
