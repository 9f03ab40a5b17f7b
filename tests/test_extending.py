"""A policy of your own from its template; the table of rules. (docs/extending.md: tests/test_docs.py.)"""

from __future__ import annotations

from pathlib import Path

import pytest

from dspark_sim.policies.registry import parse_policy

DOCS = Path(__file__).parents[1] / "docs"


def test_the_template_is_a_policy_with_its_own_name(command):
    done = command("policy", "new", "my-rule")
    assert done.code == 0
    assert "dspark-sim audit ./my_rule.py:my_rule" in done.out
    assert parse_policy("./my_rule.py:my_rule,margin=0.1").verdict == "lossless-under-lag"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["9lives"], "not a digit first"), (["mine", "--out", "mine.txt"], "a policy is a .py file")],
)
def test_a_bad_name_is_refused(command, arguments, message):
    assert message in command("policy", "new", *arguments).error


def test_a_file_is_not_overwritten_unless_asked(command):
    assert command("policy", "new").code == 0
    assert "is there already" in command("policy", "new").error
    assert command("policy", "new", "--force").code == 0


def test_the_table_of_rules_is_the_registrys(command):
    """Regenerate with `dspark-sim policies --markdown`."""
    page = (DOCS / "policies.md").read_text()
    table = page.partition("<!-- table -->\n")[2].partition("<!-- end of table -->")[0]
    assert table.strip() == command("policies", "--markdown").out.strip()
