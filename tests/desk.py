"""What a reader of the pages about the real pair brings along: a few prompts, texts, drafters, live logs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from doc_blocks import ROOT

DOMAINS = ("math", "code", "chat")
QUESTIONS = ("What is 12 times 7?", "Name three rivers.", "Write a haiku.", "Why is the sky blue?") * 3
#: Prompt files that pages name.
PROMPTS = ("prompts.jsonl", "train.jsonl", "eval.jsonl", *(f"eval_{domain}.jsonl" for domain in DOMAINS))
#: Names that examples give drafters, and shipped ones.
DRAFTERS = {"a": "smollm2-dspark-g7", "b": "smollm2-dflash-g7"}


def lay_out(folder: Path) -> None:
    """Put the files there: a checkout's folders by link, all that is written to as a copy."""
    for shared in ("traces", "hw_profiles", "tests", "tools", "benchmarks"):
        (folder / shared).symlink_to(ROOT / shared)
    shutil.copytree(ROOT / "docs/replay", folder / "docs/replay")
    for name in PROMPTS:
        (folder / name).write_text(prompts(name), encoding="utf-8")
    for domain in DOMAINS:
        shutil.copy(ROOT / f"traces/texts/eval_{domain}.parquet", folder)
    shutil.copy(ROOT / "traces/texts/train.parquet", folder / "texts.parquet")
    for name, shipped in DRAFTERS.items():
        (folder / name).symlink_to(ROOT / "traces/drafters" / shipped)
    for number, log in enumerate(sorted((ROOT / "docs/replay").glob("full-*.parquet")), 1):
        shutil.copy(log, folder / f"live-{number}.parquet")
    (folder / "CORPUS").symlink_to("corpus")


def prompts(name: str) -> str:
    """Return prompts as JSON Lines; of the domain that a file is called after, else of two."""
    own = [domain for domain in DOMAINS if name == f"eval_{domain}.jsonl"] or ["math", "chat"]
    lines = [
        {"id": f"own/{n}", "domain": own[n % len(own)], "turns": [f"{n}. {text}"]}
        for n, text in enumerate(QUESTIONS)
    ]
    return "\n".join(map(json.dumps, lines))
