"""The help examples that drive the real pair, shortened and in the order in which a user meets them."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest
from doc_blocks import ROOT
from test_examples import EXAMPLES

from dspark_sim.cli.app import dispatch

pytest.importorskip("torch", reason="the pair needs the extra 'model'")

#: Options that shorten an example: hours as it stands.
SHORTER = {
    "generate": ("--max-new-tokens", "24"),
    "train": ("--anchors", "96", "--draft-vocab", "100"),
    "refit": ("--anchors", "100", "--all"),
    "record": ("--max-new-tokens", "8"),
    "evaluate": ("--per-domain", "1", "--resamples", "100"),
    "replay-check": ("--permutations", "99"),
}
QUESTIONS = ("What is 12 times 7?", "Name three rivers.", "Write a haiku.", "Why is the sky blue?") * 3


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the examples' reader brings along."""
    monkeypatch.chdir(tmp_path)
    lines = [
        json.dumps({"id": f"own/{i}", "domain": ("math", "chat")[i % 2], "turns": [f"{i}. {text}"]})
        for i, text in enumerate(QUESTIONS)
    ]
    (tmp_path / "prompts.jsonl").write_text("\n".join(lines), encoding="utf-8")
    shutil.copy(ROOT / "traces/texts/train.parquet", tmp_path / "texts.parquet")
    for name, shipped in (("a", "smollm2-dspark-g7-v2"), ("b", "smollm2-dflash-g7")):
        (tmp_path / name).symlink_to(ROOT / "traces/drafters" / shipped)
    (tmp_path / "docs").symlink_to(ROOT / "docs")  # the logs name their step cost by its path there
    for number, log in enumerate(sorted((ROOT / "docs/replay").glob("full-*.parquet")), 1):
        shutil.copy(log, tmp_path / f"live-{number}.parquet")
    return tmp_path


def words_of(name: str) -> list[str]:
    words = shlex.split(EXAMPLES[name])[1:]
    found = [sorted(map(str, Path().glob(word))) if "*" in word else [word] for word in words]
    return [word for each in found for word in each] + list(SHORTER[name])


@pytest.mark.slow
def test_from_prompts_to_a_trace_by_the_examples(desk, capsys):
    for name in ("generate", "train", "refit", "record", "evaluate", "replay-check"):
        assert dispatch(words_of(name)) == 0, (name, capsys.readouterr().err)
        if name == "train":
            shutil.copytree("drafters/dspark", "runs/mine/drafter")
    assert Path("mine.parquet").is_file()
