"""The help examples that drive the real pair, shortened and in the order in which a user meets them."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from desk import lay_out
from doc_blocks import matched, short
from test_cli_progress import Terminal, plain
from test_examples import EXAMPLES

from dspark_sim.cli.app import dispatch

pytest.importorskip("torch", reason="the pair needs the extra 'model'")


@pytest.mark.slow
def test_from_prompts_to_a_trace_by_the_examples(tmp_path, monkeypatch):
    """On a terminal each shows how far it is and how long it still takes."""
    lay_out(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    for name in ("generate", "train", "refit", "record", "evaluate", "replay-check"):
        seen = len(screen.getvalue())
        code = dispatch(short(matched(shlex.split(EXAMPLES[name])[1:])))
        said = plain(screen.getvalue()[seen:])
        assert code == 0, (name, said)
        # A count (that of training is in anchors), and the time left.
        assert re.search(r"(\d+/\d+|\d+ anchors).* (-|\d+):[\d-]+:[\d-]+", said), (name, said[-300:])
        if name == "train":
            shutil.copytree("drafters/dspark", "runs/mine/drafter")
    assert Path("mine.parquet").is_file()
