"""Blocks of pages that take hours as they stand (the real pair, searches, benchmarks), made short."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from desk import DOMAINS, lay_out
from doc_blocks import ROOT, blocks, run_page, short
from test_docs import PAGES, name

pytest.importorskip("torch", reason="the pair needs the extra 'model'")

Call = Callable[..., Any]
SHORTENED = [page for page in PAGES if any(block.shortened for block in blocks(page))]


def answers_of_own(call: Call) -> None:
    """A corpus, as the page's reader has made one."""
    assert call(*short(["generate", "prompts.jsonl", "--out", "corpus", "--features"])).code == 0


def traces_of_own(call: Call) -> None:
    """A trace a domain, of prompts that the reader has; live logs of the same prompts only."""
    for log in Path("docs/replay").glob("*.parquet"):
        log.unlink()
    drafter = ("--drafter", "dspark=smollm2-dspark-g7")
    for domain in DOMAINS:
        words = ["record", "--prompts", f"eval_{domain}.jsonl", "--out", f"{domain}.parquet", *drafter]
        assert call(*short(words)).code == 0


#: What must be there before the first block of a page.
BEFORE: dict[str, Callable[[Call], None]] = {
    "docs/model.md": answers_of_own,
    "docs/studies.md": answers_of_own,
    "docs/replay.md": traces_of_own,
}


@pytest.mark.slow
@pytest.mark.parametrize("page", SHORTENED, ids=name)
def test_every_long_block_of_a_page_runs_shortened(page, command, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    lay_out(tmp_path)
    if name(page) in BEFORE:
        BEFORE[name(page)](command)
    assert run_page(page, command, chosen=lambda block: block.shortened, changed=short)
