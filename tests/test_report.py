"""Report pages: what the document says, that strings stay strings, and that old folders still do."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path

import pytest
from results_cases import ABOUT, make_point, small_run
from small_traces import small_trace
from worlds import make_profile

from dspark_sim.errors import InputError
from dspark_sim.results.details import DETAIL, SHARES, bin_start, detail
from dspark_sim.results.evidence import gather
from dspark_sim.results.frontier import frontier
from dspark_sim.results.page import embedded
from dspark_sim.results.page_report import report_page
from dspark_sim.results.report import report_document
from dspark_sim.results.shares import read_bounds, shares, with_shares
from dspark_sim.results.store import Results, merge, read_results, write_results

POLICIES = ("off", "static:k=3", "dspark-async")
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u2028&'\""


def made_detail(policy: str, load: int) -> dict:
    """A detail of a run at ``load``, with twice its tokens in a step."""
    return {
        "batch": [[load, load, 90], [2 * load, 2 * load + 1, 10]],
        "batch_tokens": 1.1 * load,
        "padded_tokens": 1.2 * load,
        "most_tokens": 2 * load + 1,
        "verify_ms": 5.0 + load / 50,
        "eager": 0.0,
        "running": float(load),
        "verify_len": [10, 20, 70],
        "verified": [90, 70],
        "accepted": [60, 40],
        "tpot_ms": [5.0 + i + load / 50 for i in range(len(SHARES))],
        "step_ms": [9.0 + i for i in range(len(SHARES))],
    }


def points(detailed: bool = True, seeds=(0, 1)) -> list[dict]:
    found = []
    for i, policy in enumerate(POLICIES):
        for load in (1, 8, 64, 256):
            for seed in seeds:
                speed = (80 + 60 * i) / (1 + load / (150 - 30 * i)) + seed
                case = make_point(policy, load, speed, speed * load, seed)
                found.append(case | ({DETAIL: made_detail(policy, load)} if detailed else {}))
    return found


def results(**changes: object) -> Results:
    trace = small_trace(seed=3, requests=12, gamma=7, longest=40)
    evidence = gather(trace, make_profile(), ["dspark"], 16)
    about = copy.deepcopy(ABOUT) | {"code": "c0de"}
    return Results(**({"points": points(), "about": about, "evidence": evidence} | changes))


def document(found: Results, slas=(60.0, 120.0, 900.0)) -> dict:
    return report_document(found, frontier(found.points, "off", list(slas)))


def data_of(page: str) -> dict:
    """The JSON inside a page."""
    [text] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)


def test_a_detail_counts_what_the_run_did():
    found = detail(small_run(), make_profile())
    assert found["batch"] == [[3, 3, 1], [6, 6, 2]]
    assert (found["batch_tokens"], found["padded_tokens"], found["most_tokens"]) == (
        5.0,
        pytest.approx(20 / 3),
        6,
    )
    assert found["verify_len"] == [0, 0, 5]
    assert (found["verified"], found["accepted"]) == ([5, 5], [5, 3])
    assert found["eager"] == 0.0
    assert found["tpot_ms"][SHARES.index(0.5)] == pytest.approx(1000 * (0.1 + 0.15) / 2)
    assert json.loads(json.dumps(found)) == found


def test_a_page_speaks_of_intervals_only_where_there_are_some():
    for seeds, there in (((0,), False), ((0, 1), True)):
        page = report_page(document(results(points=points(seeds=seeds))))
        assert ("bands are 95% intervals over seeds" in page) is there
        assert ("± is half the 95% interval" in page) is there


def test_a_drafter_is_named_only_where_its_policy_ran_with_several():
    cases = points(detailed=False)
    for p in cases:
        p["drafter"] = "eagle" if p["policy"] == POLICIES[1] else "dspark"
    found = document(results(points=cases))
    assert [arm["name"] for arm in found["arms"]] == list(POLICIES)
    assert "when the drafters dspark and eagle draft for" in found["question"]
    twice = [dict(p, drafter="eagle") for p in cases if p["policy"] == POLICIES[0]]
    names = [arm["name"] for arm in document(results(points=[*cases, *twice]))["arms"]]
    assert names == [f"{POLICIES[0]} (dspark)", *POLICIES[1:], f"{POLICIES[0]} (eagle)"]
    assert "when the drafter dspark drafts for" in document(results())["question"]


def test_bins_are_a_sixteenth_of_an_octave_and_small_sizes_stand_alone():
    assert [bin_start(size) for size in (1, 15, 16, 31, 33, 63, 64, 67, 68, 1024, 1087)] == [
        1, 15, 16, 31, 32, 62, 64, 64, 68, 1024, 1024,
    ]  # fmt: skip


def test_evidence_agrees_with_the_trace_and_rebuilds_the_cost():
    import numpy as np

    from dspark_sim.hardware.cost import verify_ms
    from dspark_sim.hardware.tables import capture_sizes

    profile = make_profile()
    found = gather(small_trace(seed=3, requests=12, gamma=7, longest=40), profile, ["dspark", "eagle"], 16)
    cost = found["cost"]
    rebuilt = np.interp(np.arange(1, 129), cost["tokens"], cost["ms"])
    true = verify_ms(profile, 128, capture_sizes(profile.capture, profile.verify.tokens))[1:]
    assert rebuilt == pytest.approx(true, rel=1e-5)
    assert cost["limit"] == 32
    dspark, eagle = found["drafters"]["dspark"], found["drafters"]["eagle"]
    assert "reliability" not in eagle
    assert sum(b["rounds"] for b in dspark["reliability"]["raw"]["bins"]) > 0
    for value, low, high in dspark["conditional"]:
        assert value is None or low <= value <= high
    for bin_ in dspark["reliability"]["calibrated"]["bins"]:
        assert bin_["low"] <= bin_["observed"] <= bin_["high"]


def test_the_cost_goes_no_further_than_the_requests_that_run_at_once(toy_trace):
    from dspark_sim.cli.plan import make_plan
    from dspark_sim.sweeps.running import evidence

    found = [
        evidence(
            make_plan(
                str(toy_trace), "h800", policies=["off"], loads=[load], seeds=[0], output_tokens=10,
                drafters=None, lag=None,
                assignments=["max_num_seqs=4"], baseline=None,
            ).tasks
        )
        for load in (4, 1_000_000_000)
    ]  # fmt: skip
    assert found[0]["cost"] == found[1]["cost"]


def test_details_and_evidence_survive_the_folder_and_same_results_are_same_bytes(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_results(tmp_path / name, results())
    for name in ("details.jsonl", "evidence.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    back = read_results(tmp_path / "a")
    assert [p[DETAIL] for p in back.points] == [p[DETAIL] for p in points()]
    assert back.evidence == json.loads(json.dumps(results().evidence))
    assert merge([tmp_path / "a", tmp_path / "b"]).evidence == back.evidence


def test_the_document_counts_what_the_points_say():
    found = document(results())
    row = next(r for r in found["points"] if r["key"].endswith("|static:k=3") and r["load"] == 64)
    both = [p for p in points() if p["policy"] == "static:k=3" and p["concurrency"] == 64]
    assert row["gpu"][0] == pytest.approx(sum(p["tok_per_s_per_gpu"] for p in both) / 2)
    assert row["gpu"][1] < row["gpu"][0] < row["gpu"][2]
    assert row["seeds"] == 2
    assert row["bins"] == [[64, 64, 0.9], [128, 129, 0.1]]
    assert (row["verified"], row["accepted"]) == ([0.9, 0.7], [0.6, 0.4])
    assert [column["id"] for column in found["columns"]][:2] == ["gpu", "vs"]
    assert len({tuple(arm["colours"]) for arm in found["arms"]}) == len(POLICIES)


def test_every_anchor_has_a_sentence_with_winner_gain_and_runner_up():
    first, second, third = [row["headline"] for row in document(results())["slas"]]
    assert first.startswith("At 60 tok/s/user, dspark-async gives the most: ")
    assert "over off" in first
    assert "; next is static:k=3 with " in first
    assert "a speed that off does not reach" in second
    assert third.startswith("No policy serves each user at 900 tok/s/user; the fastest is dspark-async")


def test_where_off_wins_the_sentence_says_that_speculation_does_not_pay():
    only = [make_point("off", load, 100 - load, 50.0 * load) for load in (1, 8)]
    only += [make_point("full", load, 99 - load, 40.0 * load) for load in (1, 8)]
    found = document(Results(only, ABOUT), [90.0])
    assert "off gives the most" in found["slas"][0]["headline"]
    assert "speculation does not pay there" in found["slas"][0]["headline"]


def test_a_folder_without_details_gets_a_page_without_their_charts():
    page = report_page(document(results(points=points(detailed=False), evidence=None)))
    assert 'id="frontier"' in page
    assert 'id="table"' in page
    for absent in ("stairs", "positions", "latency", "conditional", "reliability"):
        assert f'id="{absent}"' not in page


def test_a_page_carries_everything_and_asks_for_nothing():
    page = report_page(document(results()))
    assert not re.findall(r'(?:src|href)="(?!data:,)', page)
    assert "@import" not in page
    assert "url(" not in page.replace("url(#${this.clipId})", "")
    assert "default-src 'none'" in page
    assert len(page) < 200_000
    assert data_of(page)["schema"] == "dspark-sim/report/1"


def test_strings_cannot_become_markup():
    about = copy.deepcopy(ABOUT)
    about["trace"] |= {"name": EVIL, "made": EVIL, "target": EVIL}
    about["profile"] |= {"model": EVIL, "device": EVIL, "name": EVIL, "overrides": {EVIL: EVIL}}
    page = report_page(document(results(about=about)))
    assert page.count("<script") == page.count("</script>") == 2
    assert "<img" not in page
    assert data_of(page)["title"] == f"{EVIL} on {EVIL}"
    assert embedded({"a": EVIL, "b": float("nan")}).count("<") == 0


def test_the_command_writes_the_page_beside_the_run_or_where_it_is_told(command, toy_trace, tmp_path):
    arguments = ("--policy", "off", "--policy", "full", "--concurrency", "1,8", "--output-tokens", 100)
    assert command("run", "--trace", toy_trace, "--hw", "h800.yaml", *arguments, "--out", "r").code == 0
    assert "wrote r/report.html" in command("report", "r", "--sla", "30").err
    page = (tmp_path / "r" / "report.html").read_text()
    assert "SLA 30" in page
    assert 'id="stairs"' in page
    assert command("report", "r", "--out", "deep/page.html").code == 0
    assert (tmp_path / "deep" / "page.html").is_file()
    assert command("report", "r", "--json").document["schema"] == "dspark-sim/report/1"
    assert "nowhere: no such result folder" in command("report", "nowhere").error


def bound_file(path: Path, **changes: object) -> Path:
    loads = [{"concurrency": load, "bound": 1e6} for load in (1, 64)]
    path.write_text(
        json.dumps({"schema": "dspark-sim/bound/1", "drafter": "dspark", "loads": loads} | changes)
    )
    return path


def test_shares_of_a_bound_are_paired_by_seed_and_only_where_there_is_one(tmp_path):
    cases = points(seeds=(0, 1))
    drafter, bounds = read_bounds(bound_file(tmp_path / "b.json"))
    found = shares(cases, drafter, bounds)
    assert {load for _, _, load in found} == {1, 64}
    off, arm = (
        {p["seed"]: p["tok_per_s"] for p in cases if p["policy"] == policy and p["concurrency"] == 64}
        for policy in ("off", "static:k=3")
    )
    expected = sum((arm[s] - off[s]) / (1e6 - off[s]) for s in (0, 1)) / 2
    assert found["dspark", "static:k=3", 64].mean == pytest.approx(expected)
    assert found["dspark", "off", 64].mean == 0.0
    page = report_page(with_shares(document(results()), found))
    assert 'id="share"' in page
    assert 'id="share"' not in report_page(document(results()))


def test_bounds_of_another_setup_or_kind_are_refused(tmp_path):
    with pytest.raises(InputError, match="passes the bound"):
        shares(points(), "dspark", {64: 10.0})
    with pytest.raises(InputError, match="no such file"):
        read_bounds(tmp_path / "nothing.json")
    with pytest.raises(InputError, match="expected 'dspark-sim/bound/1'"):
        read_bounds(bound_file(tmp_path / "a.json", schema="x"))
    with pytest.raises(InputError, match="needs concurrency and bound"):
        read_bounds(bound_file(tmp_path / "c.json", loads=[{}]))
