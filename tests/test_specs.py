"""Specs: options are the function's own keyword-only arguments, checked by their annotations."""

from typing import Annotated, Literal

import pytest
from annotated_types import Ge, Gt
from pydantic import AllowInfNan

from dspark_sim.errors import InputError
from dspark_sim.specs import bind, choose, options


def rule(
    path: str,
    *,
    rate: Annotated[float, Gt(0)],
    cv: Annotated[float, Ge(0)] = 1.0,
    n: int = 3,
    on: Literal["a", "b"] = "a",
    deep: bool = False,
) -> None: ...


def test_values_are_typed_and_the_label_shows_what_differs_from_the_defaults():
    bound = bind("thing", "rule:x.csv, rate=2.50,n=3,deep=true,on=b", rule, bare=["path"])
    assert bound.values == {"path": "x.csv", "rate": 2.5, "n": 3, "deep": True, "on": "b"}
    assert bound.label == "rule:x.csv,rate=2.5,on=b,deep=true"
    assert bind("thing", bound.label, rule, bare=["path"]).label == bound.label


def test_options_are_the_keyword_only_arguments():
    assert list(options(rule)) == ["rate", "cv", "n", "on", "deep"]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("rule:x.csv", "'rate' is missing"),
        ("rule:rate=1", "'path' is missing"),
        ("rule:x.csv,rate=0", "rate = 0: must be above 0"),
        ("rule:x.csv,rate=-1", "must be above 0"),
        ("rule:x.csv,rate=nan", "must be a finite number"),
        ("rule:x.csv,rate=inf", "must be a finite number"),
        ("rule:x.csv,rate=fast", "must be a number"),
        ("rule:x.csv,rate=1,cv=-0.1", "must be at least 0"),
        ("rule:x.csv,rate=1,n=2.5", "must be a whole number"),
        ("rule:x.csv,rate=1,on=c", "must be 'a' or 'b'"),
        ("rule:x.csv,rate=1,rte=1", "no option 'rte' (did you mean 'rate'?)"),
        ("rule:x.csv,rate=1,rate=2", "'rate' is given twice"),
        ("rule:x.csv,y.csv,rate=1", "'y.csv' is not key=value"),
        ("rule:x.csv,rate=", "'rate=' is not key=value"),
    ],
)
def test_refusals_say_what_and_which_rule(spec, words):
    with pytest.raises(InputError) as caught:
        bind("thing", spec, rule, bare=["path"])
    assert words in str(caught.value)
    assert spec in str(caught.value)


def test_unknown_names_get_the_nearest():
    with pytest.raises(InputError, match=r"unknown thing 'ruel' \(did you mean 'rule'\?\); known: rule"):
        choose("thing", "ruel", {"rule": rule})


def test_infinities_are_allowed_where_an_annotation_says_so():
    def open_ended(*, to_s: Annotated[float, AllowInfNan(True)] = 1.0) -> None: ...

    assert bind("thing", "open_ended:to_s=inf", open_ended).values["to_s"] == float("inf")
