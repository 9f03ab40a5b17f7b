"""How blocks of pages are read before they are run."""

from __future__ import annotations

import re

import pytest
from doc_blocks import ROOT, Block, blocks, commands, short, shrunk

PAGE = """
```sh exit=2
dspark-sim swep
```
text
```python mine.py
x = 1
```
```sh illustrative (needs a cluster, and a key)
ray start
```
```
plain
```
"""


def test_blocks_of_a_page_are_told_apart(tmp_path):
    (tmp_path / "page.md").write_text(PAGE)
    wrong, file, shown, plain = blocks(tmp_path / "page.md")
    assert (wrong.kind, wrong.code, wrong.line, wrong.program) == ("sh", 2, 2, True)
    assert (file.file, file.body) == ("mine.py", "x = 1\n")
    assert (shown.illustrative, shown.reason) == (True, "needs a cluster, and a key")
    assert (plain.program, Block("sh", ("illustrative",), "", 1).reason) == (False, "")


def test_commands_are_those_that_a_shell_would_run():
    body = """\
python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/dspark-sim policies   # a comment
for d in math code; do
  dspark-sim record --trace $d.parquet \\
    --out ${d}-x
done    # and more
dspark-sim train corpus &   # beside it
python tools/figures.py
"""
    assert list(commands(body)) == [
        ["policies"],
        ["record", "--trace", "math.parquet", "--out", "math-x"],
        ["record", "--trace", "code.parquet", "--out", "code-x"],
        ["train", "corpus"],
        ["python", "tools/figures.py"],
    ]


def test_what_no_test_can_run_is_refused():
    with pytest.raises(AssertionError, match="not a command of ours: curl"):
        list(commands("curl -O x"))


def test_simulations_are_shrunk_where_nothing_else_is_asked():
    assert shrunk(["run", "--trace", "x"]) == ["run", "--trace", "x", "--output-tokens", "150"]
    assert shrunk(["run", "--output-tokens", "9"]) == ["run", "--output-tokens", "9"]
    assert shrunk(["run", "--arrivals", "x"]) == ["run", "--arrivals", "x", "--requests", "20"]
    assert shrunk(["swep"]) == ["swep"]


def test_hours_are_made_short_whatever_is_asked():
    assert short(["train", "corpus", "--anchors", "360000"])[3:5] == ["360000", "--anchors"]
    assert short(["python", "tools/rule_ceilings.py", "who"])[-2:] == ["--loads", "4"]
    assert "--share" in short(["python", "-m", "benchmarks"])
    assert short(["run", "--trace", "x"])[-1] == "150"


def test_make_slow_runs_every_slow_test_once():
    rules = (ROOT / "Makefile").read_text(encoding="utf-8")
    run = [word for line in re.findall(r"\$\(SLOW\)(.*)", rules) for word in line.split() if "test_" in word]
    listed = re.search(r"^SLOW_FILES := \$\(addprefix tests/test_,(.*?)\)$", rules, re.MULTILINE | re.DOTALL)
    assert listed is not None
    left_to_parts = [f"tests/test_{word}" for word in listed[1].replace("\\\n", " ").split()]
    assert sorted(run) == sorted(left_to_parts), "a file that slow-rest leaves out is in one part"
    assert all((ROOT / path).is_file() for path in run)
    parts = re.search(r"^slow: (.*) ##", rules, re.MULTILINE)
    assert parts is not None
    assert set(parts[1].split()) == set(re.findall(r"^(slow-\w+):", rules, re.MULTILINE))
