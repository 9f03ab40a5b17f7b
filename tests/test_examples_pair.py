"""The help examples that drive the real pair, shortened and in the order in which a user meets them."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest
from desk import lay_out
from doc_blocks import matched, short
from test_examples import EXAMPLES

pytest.importorskip("torch", reason="the pair needs the extra 'model'")


@pytest.mark.slow
def test_from_prompts_to_a_trace_by_the_examples(command, tmp_path):
    lay_out(tmp_path)
    for name in ("generate", "train", "refit", "record", "evaluate", "replay-check"):
        done = command(*short(matched(shlex.split(EXAMPLES[name])[1:])))
        assert done.code == 0, (name, done.err)
        if name == "train":
            shutil.copytree("drafters/dspark", "runs/mine/drafter")
    assert Path("mine.parquet").is_file()
