"""docs/hardware.md is complete, and its example is a profile."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from dspark_sim.hardware.cost import StepCost
from dspark_sim.hardware.form import keys_at, known_paths
from dspark_sim.hardware.reading import parse_profile

TEXT = (Path(__file__).parents[1] / "docs" / "hardware.md").read_text(encoding="utf-8")
(EXAMPLE,) = re.findall(r"```yaml\n(.*?)```", TEXT, flags=re.DOTALL)


def test_the_example_is_a_profile_with_the_cliff_it_promises():
    profile = parse_profile(yaml.safe_load(EXAMPLE), "docs/hardware.md")
    cost = StepCost(profile, 8, 600)
    assert cost.step_s(128, 8, 0, 0.0, False) == pytest.approx(8.5e-3)
    assert cost.step_s(129, 8, 0, 0.0, False) == pytest.approx(40.7e-3)


@pytest.mark.parametrize("path", known_paths())
def test_every_key_is_documented(path):
    """Keys of a draft are named once for both kinds that share them."""
    section, _, key = path.rpartition(".")
    shared = key if section.startswith("draft.") else path
    assert f"`{shared}`" in TEXT or any(f"`{path}.{key}`" in TEXT for key in keys_at(tuple(path.split("."))))


@pytest.mark.parametrize(
    "word", ["ceil_to_capture", "floor", "linear", "last_octave", "last_two", "hold", "ramp"]
)
def test_every_convention_is_documented(word):
    assert f"`{word}`" in TEXT
