"""Specs: what they parse to, what they are called, what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dspark_sim import policies as folder
from dspark_sim.errors import InputError
from dspark_sim.policies.base import BatchView
from dspark_sim.policies.registry import parse_policy, policies

NOT_RULES = {"__init__", "base", "registry", "selection", "uniform"}

LABELS = {
    "off": "off",
    " static:k=3 ": "static:k=3",
    "static: k = 03": "static:k=3",
    "mtp:k=1": "mtp:k=1",
    "full:": "full",
    "threshold:at=.40,on=survival": "threshold:on=survival,at=0.4",
    "threshold:on=confidence,at=1": "threshold:on=confidence,at=1",
    "dspark": "dspark",
    "dspark-async": "dspark-async",
    "dspark-async:lag=2": "dspark-async",
    "dspark-async:lag=0": "dspark-async:lag=0",
}


@pytest.mark.parametrize("spec", LABELS)
def test_the_label_is_the_normalised_spec_and_parses_to_itself(spec):
    policy = parse_policy(spec)
    assert policy.label == LABELS[spec]
    again = parse_policy(policy.label)
    assert (again.label, again.options, again.lag) == (policy.label, policy.options, policy.lag)


BAD = {
    "": "unknown policy ''",
    "dsprak": "unknown policy 'dsprak' .did you mean 'dspark'.*; known: .*dspark, dspark-async.*, full",
    "static": "policy 'static': 'k' is missing; static takes: k",
    "static:3": "policy 'static:3': '3' is not key=value",
    "static:k=": "'k=' is not key=value",
    "static:k=3,": "'' is not key=value",
    "static:k=3,k=4": "'k' is given twice",
    "static:kk=3": "policy 'static:kk=3': no option 'kk' .did you mean 'k'.*; static takes: k",
    "static:k=3.5": "k = 3.5: must be a whole number",
    "static:k=-1": "k = -1: must be at least 0",
    "mtp:k=0": "k = 0: must be at least 1",
    "off:k=1": "no option 'k'; off takes: no option",
    "threshold:at=0.5": "'on' is missing",
    "threshold:on=surv,at=0.5": "on = surv: must be 'survival' or 'confidence'",
    "threshold:on=survival,at=1.5": "at = 1.5: must be at most 1",
    "threshold:on=survival,at=nan": "at = nan: must be a finite number",
    "dspark:lag=1": "no option 'lag'",
    "dspark-async:lag=-1": "lag = -1: must be at least 0",
    "dspark-async:lag=two": "lag = two: must be a whole number",
    "nowhere.py:rule": "policy file nowhere.py: no such file",
}


@pytest.mark.parametrize("spec", BAD)
def test_bad_specs_are_refused_in_one_line(spec):
    with pytest.raises(InputError, match=BAD[spec]) as caught:
        parse_policy(spec)
    assert "\n" not in str(caught.value)


def test_lag_comes_from_the_spec_then_from_the_run_then_from_the_rule():
    assert parse_policy("dspark-async").lag == 2
    assert parse_policy("dspark-async", lag=1).lag == 1
    assert parse_policy("dspark-async", lag=1).label == "dspark-async:lag=1"
    assert parse_policy("dspark-async:lag=0", lag=1).lag == 0
    assert parse_policy("dspark", lag=1).lag == 0
    with pytest.raises(InputError, match="lag = 65: must be at most 64"):
        parse_policy("dspark-async", lag=65)


def test_who_waits_for_the_confidences_pays_the_bubble():
    waits = {
        "off": False, "static:k=1": False, "mtp:k=1": False, "full": False, "dspark": True,
        "threshold:on=survival,at=0.4": True, "dspark-async": False, "dspark-async:lag=0": True,
    }  # fmt: skip
    assert {spec: parse_policy(spec).synchronous for spec in waits} == waits


def test_every_rule_of_the_folder_is_found_and_has_a_valid_example():
    files = {p.stem for p in Path(folder.__file__).parent.glob("*.py") if "\n@policy(" in p.read_text()}
    assert {info.rule.__module__.rpartition(".")[2] for info in policies()} == files
    for info in policies():
        assert parse_policy(info.example).info is info
        assert info.rule.__doc__
        assert info.source


def test_importing_the_registry_is_cheap():
    """No rule is imported before one is asked for, and nothing heavy at all."""
    code = (
        "import sys, dspark_sim.policies.registry as r; before = set(sys.modules); r.policies();"
        "heavy = {'pandas', 'pyarrow', 'scipy', 'simpy', 'torch', 'matplotlib'} & set(sys.modules);"
        "print('dspark_sim.policies.dspark' in before, sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False []"


MINE = """
from typing import Annotated, Literal
import numpy as np
from annotated_types import Ge, Le
from dspark_sim.policies.registry import policy

@policy("mine", source="me", reads="none", verdict="lossless")
def share(view, *, at: Annotated[float, Ge(0), Le(1)] = 0.5, up: bool = False, by: int = 1,
          how: Literal["a", "b"] = "a", note: str = "x"):
    return np.full(view.num_running, int(at * view.gamma) + up)

def plain(view, *, k=2):
    return np.full(view.num_running, k)

def wrong(view, k):
    return k
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MINE)


def batch(running=3, gamma=4):
    values = np.ones((running, gamma))
    return BatchView(values, values, values, np.ones(running * gamma + 1), gamma, 0)


@pytest.mark.usefixtures("mine")
def test_a_users_file():
    policy = parse_policy("./mine.py:share,up=true,at=.25")
    assert policy.label == "mine.py:share,at=0.25,up=true"
    assert parse_policy(policy.label).label == policy.label
    assert policy(batch()).tolist() == [2, 2, 2]
    assert policy.verdict == "lossless"
    assert parse_policy("mine.py:mine").label == "mine.py:mine"


@pytest.mark.usefixtures("mine")
def test_a_users_plain_function_is_accepted_and_claims_nothing():
    policy = parse_policy("mine.py:plain,k=3")
    assert policy(batch()).tolist() == [3, 3, 3]
    assert (policy.info.reads, policy.verdict, policy.synchronous) == ("current", "not-lossless", True)
    with pytest.raises(InputError, match="k = x: must be a whole number"):
        parse_policy("mine.py:plain,k=x")


@pytest.mark.usefixtures("mine")
def test_a_users_file_does_not_shadow_the_shipped_rules():
    before = policies()
    Path("mine.py").write_text(MINE.replace('"mine"', '"dspark"'))
    parse_policy("mine.py:dspark")
    assert policies() == before
    assert parse_policy("dspark").info.rule.__module__ == "dspark_sim.policies.dspark"


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("mine.py:shar", "has no rule 'shar' .did you mean 'share'"),
        ("mine.py", "name a rule of the file, mine.py:RULE; it has: "),
        ("nowhere.py", "policy file nowhere.py: no such file"),
        ("mine.py:wrong", "keyword-only options"),
        ("mine.py:share,up=maybe", "up = maybe: must be true or false"),
        ("mine.py:share,how=c", "how = c: must be 'a' or 'b'"),
        ("broken.py:rule", "policy file broken.py does not load: ZeroDivisionError"),
    ],
)
def test_a_users_mistakes_are_named(spec, message):
    Path("broken.py").write_text("1 / 0\n")
    with pytest.raises(InputError, match=message):
        parse_policy(spec)


def test_a_file_s_imports_and_helpers_are_not_listed_as_its_rules(tmp_path):
    path = tmp_path / "p.py"
    path.write_text(
        "from dspark_sim.policies.full import full\nfrom dspark_sim.specs import bind\n\n\n"
        "def own(view, *, k=1):\n    return view\n\n\ndef helper(view, other, third):\n    return view\n"
    )
    for spec in (f"{path}:nope", str(path)):
        with pytest.raises(InputError, match=r"it has: own$"):
            parse_policy(spec)
