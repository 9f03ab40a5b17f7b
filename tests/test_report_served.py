"""Pages of served requests: details against plain loops, what the document and its sentences say, folders."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from served_cases import POLICIES, SCALES, bare_details, served
from test_report import EVIL, data_of
from test_serving import services
from test_serving_cases import kv, run_of
from worlds import constant_cost

from dspark_sim.engine.simulator import serve
from dspark_sim.errors import DataError, InputError
from dspark_sim.results.details import DETAIL, SHARES
from dspark_sim.results.page_served import served_page
from dspark_sim.results.report_served import served_document
from dspark_sim.results.serving import serving_figures
from dspark_sim.results.serving_details import STRETCHES, serving_detail
from dspark_sim.results.serving_store import flat, merge_served, nested, one_kind, read_served, write_served


@settings(max_examples=25, deadline=None)
@given(world=services())
def test_details_agree_with_the_figures_and_with_counting(world):
    run = serve(**world)
    found = serving_detail(run, world["profile"])
    assert json.loads(json.dumps(found)) == found
    figures = serving_figures(run)
    for name in ("ttft_ms", "tpot_ms", "e2e_ms", "queue_ms", "itl_ms"):
        for quantile, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
            if figures[name][quantile] is not None:
                assert found[name][SHARES.index(share)] == pytest.approx(figures[name][quantile], rel=1e-6)
    time = found["over_time"]
    if time is None:
        return
    edges = run.requests.arrival_s.min() + np.linspace(0, time["end_s"], STRETCHES + 1)
    for stretch in (0, STRETCHES // 2, STRETCHES - 1):
        low, high = edges[stretch], edges[stretch + 1]
        waited = zip(run.requests.arrival_s, run.requests.admission_s, strict=True)
        by_hand = sum(max(0.0, min(e, high) - max(s, low)) for s, e in waited) / (high - low)
        assert time["waiting"][stretch] == pytest.approx(by_hand, abs=1e-3 * len(run.requests.request))


def test_kv_in_use_is_weighed_by_time():
    """One request of 4 prompt and 4 output tokens in blocks of 4: steps of 10 ms, 1 then 2 of 4 blocks."""
    run = run_of([4], [4], profile=kv(4))
    steps, found = run.steps, serving_detail(run, kv(4))
    by_hand = (steps.kv_blocks * steps.step_s).sum() / (run.requests.end_s[0] * 4)
    assert found["kv_mean"] == pytest.approx(by_hand)
    assert found["kv_most"] == steps.kv_blocks.max() / 4 == 0.5
    assert np.mean(found["over_time"]["kv"]) == pytest.approx(by_hand, rel=1e-3)
    assert serving_detail(run_of([4], [4]), constant_cost())["kv_mean"] is None


def test_steps_of_a_prefill_pool_do_not_count_as_decoding():
    run = run_of([8, 8], [3, 3], prefill="disaggregated:workers=1", profile=kv(100))
    assert run.steps.replica.max() == 1
    assert serving_detail(run, kv(100))["batch_tokens"] < 8


def test_a_service_that_refused_everything_has_empty_details():
    found = serving_detail(run_of([50], [3], profile=kv(10)), kv(10))
    assert (found["ttft_ms"], found["step_ms"], found["over_time"]) == ([], None, None)


def test_names_with_dots_come_back_from_the_columns():
    figures = {"a": 1, "slo": {"tpot_p99.9": {"met": True}}, "ttft_ms": {"p99": 2.0}}
    assert nested(flat(figures)) == figures


def test_the_document_counts_what_the_runs_say():
    found = served_document(served(), "off")
    row = next(r for r in found["points"] if r["key"].endswith("static:k=3") and r["load"] == 2.0)
    assert row["tpot99"][0] == pytest.approx((16.0 + 16.16) / 2)
    assert row["vstpot"] == pytest.approx([-20.0, -20.0, -20.0])
    assert row["within"][0] == 100.0
    assert (row["met"], row["seeds"], row["knee"]) == (2, 2, 0)
    assert row["kvmost"][0] == 50.0
    assert [rate["offered"] for rate in found["rates"]] == [10.5, 20.5, 30.5]
    shown = [column["id"] for column in found["columns"] if column["first"]]
    assert shown[:3] == ["within", "good", "vsgood"]
    assert len(shown) < len(found["columns"]) / 2


def test_the_words_say_who_keeps_the_objectives_and_who_is_fastest():
    found = served_document(served(), "off")
    assert found["overall"][0] == (
        "off meets all objectives up to 10.5 requests/s, and misses tpot_p99 in 1 of 2 replications (20.1 "
        "±1.3 ms of 20) at 20.5 requests/s."
    )
    first, second, third = [rate["headline"] for rate in found["rates"]]
    assert first.startswith(
        "At 10.5 requests/s, every policy meets the objectives; dspark-async writes fastest"
    )
    assert "the objectives are met by static:k=3, dspark-async" in second
    assert "no policy meets the objectives" in third
    assert "Past their load knee, with a queue that only grows: off." in third


def second_headline(change) -> str:
    found = served()
    for run in found.runs:
        if run["rate_scale"] == 2.0 and run["policy"] != "off":
            run.update(change(run))
    return str(served_document(found, "off")["rates"][1]["headline"])


def test_no_winner_is_named_by_goodput_where_chance_may_have_made_it():
    met = "the objectives are met by static:k=3, dspark-async"
    same = f"{met}, which serve the same traffic: goodput does not tell them apart; "
    ahead = {"static:k=3": 0.0, "dspark-async": 200.0}

    def goodput(attainment, seed_1=1.0):
        return lambda run: {
            "attainment": attainment,
            "goodput_tok_per_s_per_gpu": 1000.0
            + ahead[run["policy"]] * (1.0 if run["seed"] == 0 else seed_1),
        }

    assert same in second_headline(goodput(1.0))
    assert same in second_headline(goodput(0.995, seed_1=0.1))
    assert f"{met}; most goodput has dspark-async with 1,200 ±0 tok/s/GPU; " in second_headline(
        goodput(0.995)
    )
    one = served_document(served(seeds=(1,)), "off")["rates"][1]["headline"]
    assert same in one


def test_one_policy_that_meets_the_objectives_is_told_with_its_goodput():
    words = second_headline(lambda run: {"slos_met": run["policy"] == "dspark-async"})
    assert "the objectives are met by dspark-async alone, with a goodput of 1,000 ±0 tok/s/GPU; " in words


def test_the_fastest_by_the_median_and_by_the_p99_are_both_named_where_they_differ():
    def slow_tail(run):
        late = run["policy"] == "dspark-async"
        return {"tpot_ms": run["tpot_ms"] | {"p99": 19.0 if late else 16.0}}

    words = second_headline(slow_tail)
    assert "dspark-async writes fastest by the median (TPOT p50 6.0 ±0.4 ms, p99 19.0 ±0.0 ms; " in words
    assert "static:k=3 by the p99 (TPOT p99 16.0 ±0.0 ms)." in words


def test_intervals_are_spoken_of_only_where_there_are_some():
    one, two = (served_document(served(seeds=seeds), "off") for seeds in ((0,), (0, 1)))
    assert "95% interval" not in served_page(one).partition("<script")[0]
    assert "Bands are 95% intervals over replications." in served_page(two)
    assert "± is half the 95% interval" in served_page(two)
    assert any(line.startswith("Two seeds are few") for line in two["notes"])
    assert not any("seeds are few" in line for line in one["notes"])
    assert any("a small lead may be chance" in line for line in one["notes"])


def test_the_notes_say_where_the_offered_rate_comes_from_and_why_more_may_be_measured():
    found = served()
    drawn = "poisson:rate=10 holds on average, and 2,000 requests come by chance"
    passed = "What gets done may pass what is offered"
    notes = "\n".join(served_document(found, "off")["notes"])
    assert drawn in notes
    assert passed not in notes
    for run in found.runs:
        run["requests_per_s"] = run["offered_per_s"] + 0.5
    assert passed in "\n".join(served_document(found, "off")["notes"])
    found.about["traffic"]["arrivals"] = None
    assert "holds on average" not in "\n".join(served_document(found, "off")["notes"])


def test_without_objectives_nothing_is_said_of_them():
    found = served_document(served(slos=False), "off")
    assert found["overall"] == []
    assert "objectives" not in found["rates"][0]["headline"]
    assert {"within", "good"}.isdisjoint(column["id"] for column in found["columns"])
    page = served_page(found)
    assert 'id="throughput"' in page
    assert 'id="within"' not in page


def test_a_page_shows_what_was_recorded_and_no_more():
    whole = served_page(served_document(served(), "off"))
    for chart in ("within", "goodput", "ttft", "kv", "preempted", "ttft-d", "kv-t"):
        assert f'id="{chart}"' in whole
    unlimited = served_page(served_document(served(kv=None), "off"))
    assert 'id="kv"' not in unlimited
    assert 'id="kv-t"' not in unlimited
    old = served_page(served_document(bare_details(served()), "off"))
    assert 'id="ttft"' in old
    assert 'id="ttft-d"' not in old
    one = served_page(served_document(served(scales=(1.0,)), "off"))
    assert 'id="ttft"' not in one
    assert 'id="readings"' in one


def test_a_page_of_arrivals_asks_for_nothing_and_strings_stay_strings():
    found = served()
    found.about["trace"] |= {"name": EVIL, "made": EVIL}
    found.about["traffic"]["workload"] = EVIL
    page = served_page(served_document(found, "off"))
    assert not re.findall(r'(?:src|href)="(?!data:,)', page)
    assert page.count("<script") == page.count("</script>") == 2
    assert "<img" not in page
    assert data_of(page)["schema"] == "dspark-sim/report-served/1"


def test_runs_survive_the_folder_and_folders_of_one_question_are_read_as_one(tmp_path):
    for name, policies in (("a", POLICIES[:2]), ("b", POLICIES[2:])):
        (tmp_path / name).mkdir()
        write_served(tmp_path / name, served(policies).runs, served().about)
    back = read_served(tmp_path / "a")
    assert back.runs == served(POLICIES[:2]).runs
    both = merge_served([tmp_path / "a", tmp_path / "b"])
    assert {run["policy"] for run in both.runs} == set(POLICIES)
    assert len(both.runs) == len(POLICIES) * len(SCALES) * 2
    (tmp_path / "c").mkdir()
    write_served(tmp_path / "c", served().runs, served().about | {"slos": []})
    with pytest.raises(InputError, match="differ in slos: not comparable"):
        merge_served([tmp_path / "a", tmp_path / "c"])
    other = served(POLICIES[:1]).runs
    other[0]["tok_per_s"] = 7.0
    write_served(tmp_path / "c", other, served().about)
    with pytest.raises(InputError, match="two different results for off at rate scale 1, seed 0"):
        merge_served([tmp_path / "a", tmp_path / "c"])


def test_folders_that_are_not_what_this_version_writes_are_refused(tmp_path):
    write_served(
        tmp_path, [{k: v for k, v in run.items() if k != "knee_passed"} for run in served().runs], {}
    )
    with pytest.raises(DataError, match="knee_passed"):
        read_served(tmp_path)
    write_served(tmp_path, served().runs, served().about)
    (tmp_path / "details.jsonl").write_text("{}\n")
    with pytest.raises(DataError, match="holds 1 lines for 18 points"):
        read_served(tmp_path)
    (tmp_path / "capacity.json").write_text("{}")
    with pytest.raises(InputError, match="the answer of a search for capacity"):
        read_served(tmp_path)


ARRIVALS = ("--arrivals", "poisson:rate=20", "--requests", "24", "--rate-scale", "1,2", "--seeds", "2")


def test_the_command_makes_a_page_of_arrivals_and_refuses_two_kinds_at_once(command, toy_trace, tmp_path):
    base = ("run", "--trace", toy_trace, "--hw", "h800.yaml", "--policy", "off", "--policy", "full")
    assert command(*base, *ARRIVALS, "--slo", "tpot_p99.9=25ms", "--out", "served").code == 0
    assert command(*base, "--concurrency", "2", "--output-tokens", "50", "--out", "loop").code == 0
    assert one_kind([tmp_path / "served"])
    assert not one_kind([tmp_path / "loop"])
    assert "wrote served/report.html" in command("report", "served").err
    found = data_of((tmp_path / "served" / "report.html").read_text())
    assert found["slos"] == [{"name": "tpot_p99.9", "metric": "tpot", "percent": 99.9, "limit_ms": 25.0}]
    assert command("report", "served", "--json").document["schema"] == "dspark-sim/report-served/1"
    mixed = "served holds requests that arrived in time, loop users in a loop"
    assert mixed in command("report", "loop", "served").error
    assert mixed in command("compare", "loop", "served").error
    assert "--sla: is for users in a loop" in command("report", "served", "--sla", "80").error


def test_figures_carry_their_detail_only_to_the_folder(command, toy_trace, tmp_path):
    asked = ("run", "--trace", toy_trace, "--hw", "h800.yaml", "--policy", "off", *ARRIVALS, "--out", "r")
    done = command(*asked, "--json")
    assert all(DETAIL not in run for run in done.document["runs"])
    assert len((tmp_path / "r" / "details.jsonl").read_text().splitlines()) == len(done.document["runs"])
