"""The example of every help page runs."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest
from doc_blocks import ROOT, shrunk

from dspark_sim.cli.app import COMMANDS, dispatch, load_command

#: Examples that train, time or drive the real pair, or need minutes.
SLOW = {
    "generate",
    "train",
    "refit",
    "record",
    "evaluate",
    "profile",
    "validate",
    "replay-check",
    "fit",
    "predict",
    "regress",
    "parity",
    "study",
}

#: What an example takes for granted: hours of the real pair (shortened in tests/test_examples_pair.py).
NEEDS = {
    "generate": ("prompts.jsonl",),
    "record": ("prompts.jsonl",),
    "train": ("corpus",),
    "refit": ("corpus",),
    "evaluate": ("texts.parquet",),
    "predict": ("fitted.yaml",),
    "replay-check": ("live-1.parquet",),
}


def examples() -> dict[str, str]:
    """Return the example of every command, by its words."""
    found = {}
    for name, target in COMMANDS.items():
        command = load_command(name, target)
        inner = getattr(command, "commands", {}) or {"": command}
        for word, each in inner.items():
            _, _, example = (each.help or "").partition("Example:")
            found[f"{name} {word}".strip()] = " ".join(example.split())
    return found


EXAMPLES = examples()


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_command_has_an_example_of_itself(name):
    assert EXAMPLES[name].startswith(f"dspark-sim {name}"), f"{name}: no example in its help"


def arguments_of(name: str) -> list[str]:
    """Return the words of an example, patterns of shipped files expanded as a shell does."""
    words = shlex.split(EXAMPLES[name], comments=True)[1:]
    return [
        path for word in words for path in (sorted(map(str, Path().glob(word))) if "*" in word else [word])
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What the examples take for granted: a checkout's folders, a sweep, files that a reader brings."""
    found = tmp_path_factory.mktemp("examples")
    for shared in ("traces", "hw_profiles", "docs", "regress", "tests"):
        (found / shared).symlink_to(ROOT / shared)
    swept = found / "sweeps" / "qwen3-4b-chat.synth-h800"
    small = ("--concurrency", "1,4", "--output-tokens", "60", "--policy", "off", "--policy", "mtp:k=1")
    sweep = ("sweep", "--trace", "qwen3-4b-chat.synth", "--hw", "h800", "--seeds", "2", "--jobs", "1")
    assert dispatch([*sweep, *small, "--out", str(swept)]) == 0
    for copy in ("before", "after"):
        shutil.copytree(swept, swept.with_name(copy))
    shutil.copy(ROOT / "traces" / "chat.parquet", found)
    shutil.copy(ROOT / "tests/data/importers/azure2023.csv", found / "AzureLLMInferenceTrace_conv.csv")
    export = ("hw", "export", "h200-qwen3-14b", "--format", "sglang", "-o", str(found / "sps_table.json"))
    assert dispatch(list(export)) == 0
    return found


#: Shorter still than tests/doc_blocks.py makes them, by command: options that the example leaves open.
SHORTER = {
    "sweep": ("--concurrency", "1,8", "--jobs", "1", "--policy", "off", "--policy", "dspark"),
    "run": ("--policy", "off", "--policy", "dspark-async", "--jobs", "1"),
    "sensitivity": ("--values", "0,1"),
    "frontier": ("--out", "pictures"),
}
#: An example that would write over what the folder of this test holds.
ELSEWHERE = {"hw export": ("-o", "other.json")}


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name.split()[0] not in SLOW])
def test_the_example_runs_shortened(name, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    words = [*shrunk(arguments_of(name)), *SHORTER.get(name, ())]
    if name in ELSEWHERE:
        words += ELSEWHERE[name]
    code = dispatch(words)
    expected = 1 if name == "audit" else 0  # its example shows a counterexample
    assert code == expected, (words, capsys.readouterr().err)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_runs_as_it_stands(name, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    if missing := [word for word in NEEDS.get(name, ()) if not Path(word).exists()]:
        pytest.skip(f"{name} needs {', '.join(missing)}")
    code = dispatch([*arguments_of(name), *ELSEWHERE.get(name, ())])
    assert code == (1 if name == "audit" else 0), capsys.readouterr().err
