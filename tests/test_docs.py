"""Pages: every block of code runs, every link leads somewhere, the site builds without a warning."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from doc_blocks import ROOT, Block, blocks, run_page, shrunk

import dspark_sim
from dspark_sim.cli.app import COMMANDS
from dspark_sim.schema import POINT_COLUMNS

DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), *DOCS.glob("reference/a*.md"), ROOT / "README.md"])


def is_quick(block: Block) -> bool:
    return not block.slow and not block.shortened


def stands(block: Block) -> bool:
    return not block.shortened


def with_block(chosen) -> list[Path]:
    def fits(block: Block) -> bool:
        return block.program and not block.illustrative and chosen(block)

    return [page for page in PAGES if any(map(fits, blocks(page)))]


#: How many blocks of a page nobody runs, and why: the words in the parentheses of ``illustrative (...)``.
NOT_RUN: dict[str, list[str]] = {
    "docs/command-line.md": ["changes your shell's start-up file"],
    "docs/model.md": ["installs from the network, as `make setup` does"],
    "docs/notebooks.md": ["opens a browser; tests execute the notebooks themselves"],
    "docs/scale.md": ["needs a cluster; tests/test_ray.py starts one"],
}

_LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)|\{download\}`[^<]*<(?P<file>[^>]+)>`")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def checkout(command, tmp_path):
    """The working directory, with the folders that pages name by path."""
    for folder in ("traces", "hw_profiles", "docs", "regress", "tests"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    return command


def write_requests(path: Path) -> None:
    """A request table, as a reader has imported one: 1,500 requests within a minute."""
    random = np.random.default_rng(5)
    table = {
        "arrival_s": np.sort(random.uniform(0, 60, 1500)),
        "prompt_tokens": random.integers(20, 400, 1500),
        "output_tokens": random.integers(20, 200, 1500),
    }
    pq.write_table(pa.table(table), path)


@pytest.mark.parametrize("page", with_block(is_quick), ids=name)
def test_every_block_of_a_page_runs(page, checkout, monkeypatch):
    # Pictures have tests of their own, and cost more than these short simulations.
    monkeypatch.setattr("dspark_sim.cli.answer.write_pictures", lambda *arguments: [])
    assert run_page(page, checkout, chosen=is_quick, changed=shrunk)


def test_the_example_of_the_package_runs():
    lines = [line for line in (dspark_sim.__doc__ or "").splitlines() if line.startswith("    ")]
    program = textwrap.dedent("\n".join(lines)).replace("64, 256], seeds=2", "64], output_tokens=150")
    assert "output_tokens" in program, "the example is made short"
    exec(compile(program, "dspark_sim/__init__.py", "exec"), {})


@pytest.mark.slow
@pytest.mark.parametrize("page", with_block(stands), ids=name)
def test_every_block_of_a_page_runs_as_it_stands(page, checkout, tmp_path):
    for workload in ("requests.parquet", "azure2023_conv.parquet"):
        write_requests(tmp_path / workload)
    assert run_page(page, checkout, chosen=stands)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_is_run_or_says_why_not(page):
    """A new block is run; one that cannot be is named here, with its reason."""
    found = blocks(page)
    assert [block.reason for block in found if block.illustrative] == NOT_RUN.get(name(page), [])
    for block in found:
        plain = not block.program and re.search(
            r"^(\S*dspark-sim|python\S*|import|from) ", block.body, re.MULTILINE
        )
        assert not plain, f"{name(page)}:{block.line}: say what it is: sh or python, and how it is run"
        known = {
            "slow",
            "shortened",
            *(word for word in block.info if word.startswith("exit=") or word == block.file),
        }
        assert block.illustrative or not block.program or set(block.info) <= known, block.info
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert not re.search(r"^(?: {4}|\t)(dspark-sim|python) ", text, re.MULTILINE), (
        "indented: fence it, so that it is run"
    )


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub and Sphinx give the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    plain = [re.sub(r"[`*]", "", heading).strip().lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_somewhere(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for found in _LINK.finditer(text):
        target = found["target"] or found["file"]
        if target.startswith(("http:", "https:", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        generated = there == DOCS / "reference" / "cli.md"
        assert there.exists() or generated, f"{name(page)}: {target}"
        assert generated or not anchor or anchor in anchors(there), f"{name(page)}: no heading {target}"


def test_the_site_builds_without_a_warning_and_names_every_command(tmp_path):
    pytest.importorskip("sphinx", reason="Sphinx builds the site: pip install 'dspark-sim[docs]'")
    source = tmp_path / "root" / "docs"
    shutil.copytree(DOCS, source, ignore=shutil.ignore_patterns("_build", "*.parquet"))
    for other in ROOT.iterdir():
        if other.name != "docs" and not other.name.startswith("."):
            (tmp_path / "root" / other.name).symlink_to(other)
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", source, tmp_path / "html"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    commands = (tmp_path / "html" / "reference" / "cli.html").read_text()
    assert [word for word in COMMANDS if f'id="{word}"' not in commands] == []
    api = (tmp_path / "html" / "reference" / "api.html").read_text()
    assert 'id="dspark_sim.run"' in api
    pages = {page.stem for page in DOCS.glob("*.md")}
    index = (tmp_path / "html" / "index.html").read_text()
    assert [page for page in pages if page != "index" and f'href="{page}.html"' not in index] == []


def test_the_glossary_has_every_column_of_a_point_and_its_unit():
    text = (DOCS / "glossary.md").read_text()
    for column, meaning in POINT_COLUMNS.items():
        assert f"`{column}`" in text, column
        unit = re.search(r"\[(.+)\]$", meaning)
        if unit:
            row = next(line for line in text.splitlines() if f"`{column}`" in line)
            assert unit[1].replace("tokens/round", "tok/round").split("/")[0][:3] in row, column
