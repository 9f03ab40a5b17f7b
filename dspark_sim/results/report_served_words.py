"""The sentences of a report of served requests: the question, the set-up, what each rate says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dspark_sim.results.report_words import setup_words
from dspark_sim.results.serving_tables import Figures, offered, over_seeds, value
from dspark_sim.results.stats import Interval, paired_change_pct
from dspark_sim.results.tables import number, signed, spread

Groups = Sequence[Sequence[Figures]]
Rates = Mapping[float, str]  # rate scale -> words
_GOODPUT = "goodput_tok_per_s_per_gpu"


def traffic_words(about: Mapping[str, Any]) -> str:
    """Return what arrived, in a few words."""
    traffic = about["traffic"]
    what = [word for word in (traffic["workload"], traffic["arrivals"], *traffic["mix"]) if word]
    return f"{' '.join(what)}: {traffic['requests']:,} requests"


def served_question(about: Mapping[str, Any], runs: Sequence[Figures], baseline: str) -> str:
    """Return what was asked, in a sentence or two."""
    policies = len({run["policy"] for run in runs})
    scales = sorted({run["rate_scale"] for run in runs})
    rates = [rate for scale in scales if (rate := offered(runs, scale)) is not None]
    many = "s" if about["profile"]["num_gpus"] > 1 or about["serving"]["replicas"] > 1 else ""
    when = f"arrive at {number(rates[0], 1)}" if rates else "arrive all at once"
    if len(rates) > 1:
        when += f" to {number(rates[-1], 1)}"
    when += " a second" if rates else ""
    asked = f" within {' and '.join(about['slos'])}" if about["slos"] else ""
    return (
        f"Requests {when} (each with a prompt and a text of its own). How long do they wait for the first "
        f"token and for each token after it, and what does the GPU{many} get done{asked}, when each of "
        f"{policies} policies decides how much to verify? Changes are against {baseline}."
    )


def served_setup(about: Mapping[str, Any], runs: Sequence[Figures]) -> list[list[str]]:
    """Return [term, description] pairs of what was simulated."""
    serving, settings = about["serving"], about["settings"]
    points = [dict(run) | {"concurrency": 0} for run in runs]
    kept = [p for p in setup_words(_as_loop(about), points) if p[0] not in ("Users", "Measured")]
    replicas = f"{serving['replicas']}, {serving['router']}" if serving["replicas"] > 1 else ""
    measured = (
        f"requests in order of arrival from {100 * settings['warmup']:g}% on, without the drain"
        if settings["warmup"]
        else "whole, from an empty service to the last token"
    )
    own = [
        ["Traffic", traffic_words(about)],
        ["Rate scales", ", ".join(f"{scale:g}" for scale in about["grid"]["rate_scale"])],
        ["Objectives", ", ".join(about["slos"])],
        ["Prompts", f"prefill {serving['prefill']}"],
        ["Replicas", replicas + (", in lockstep" if serving["lockstep"] else "")],
        ["Measured", measured],
    ]
    return [*kept[:-2], *(pair for pair in own if pair[1]), *kept[-2:]]


def _as_loop(about: Mapping[str, Any]) -> dict[str, Any]:
    return dict(about) | {"settings": {"output_tokens": 0} | about["settings"]}


def overall(found: Groups, slos: Sequence[str]) -> list[str]:
    """Return a line per policy: up to which rate its objectives hold; none without objectives."""
    if not slos:
        return []
    by_policy: dict[str, list[Sequence[Figures]]] = {}
    for group in found:
        by_policy.setdefault(group[0]["policy"], []).append(group)
    rates = _rates(found)
    return [_up_to(policy, by_rate, rates) for policy, by_rate in by_policy.items()]


def _up_to(policy: str, by_rate: Sequence[Sequence[Figures]], rates: Rates) -> str:
    """Return up to which of the rates, ascending, every replication met every objective."""
    several = len(rates) > 1
    met = [all(run["slos_met"] for run in group) for group in by_rate]
    if all(met):
        return f"{policy} meets all objectives" + (" at every rate here." if several else ".")
    first = met.index(False)
    missed = f"{_missed(by_rate[first])} at {rates[by_rate[first][0]['rate_scale']]}"
    if first == 0:
        return f"{policy} misses {missed}" + (", the lowest rate here." if several else ".")
    last = rates[by_rate[first - 1][0]["rate_scale"]]
    return f"{policy} meets all objectives up to {last}, and misses {missed}."


def _missed(group: Sequence[Figures]) -> str:
    """Return which objectives some replication missed, with what the quantile was and should be."""
    found = []
    for name in group[0]["slo"]:
        missed = sum(not run["slo"][name]["met"] for run in group)
        if missed:
            where = "" if missed == len(group) else f" in {missed} of {len(group)} replications"
            reached = over_seeds(group, f"slo.{name}.value_ms")
            assert reached is not None, "a missed objective has a value"
            limit = group[0]["slo"][name]["limit_ms"]
            found.append(
                f"{name}{where} ({spread(reached, 0 if reached.mean >= 100 else 1)} ms of {number(limit)})"
            )
    return " and ".join(found)


def _rates(found: Groups) -> Rates:
    """Return the words for each rate scale."""
    runs = [run for group in found for run in group]
    rates = {scale: offered(runs, scale) for scale in dict.fromkeys(run["rate_scale"] for run in runs)}
    return {s: "a burst" if rate is None else f"{number(rate, 1)} requests/s" for s, rate in rates.items()}


def rate_words(found: Groups, scale: float, baseline: str) -> str:
    """Return what one rate says, in a few sentences."""
    here = [group for group in found if group[0]["rate_scale"] == scale]
    where = _rates(here)[scale]
    where = "With all requests at once" if where == "a burst" else f"At {where}"
    words = f"{where}, {_kept(here)}{_fastest(here, baseline)}."
    first = min(here, key=lambda group: _mean(group, "ttft_ms.p99"))
    p99 = over_seeds(first, "ttft_ms.p99")
    if p99 is not None:
        words += f" TTFT p99 is lowest with {first[0]['policy']}: {spread(p99)} ms."
    past = [group[0]["policy"] for group in here if 2 * sum(run["knee_passed"] for run in group) > len(group)]
    if past:
        words += f" Past their load knee, with a queue that only grows: {', '.join(past)}."
    return words


def _kept(here: Groups) -> str:
    if "slos_met" not in here[0][0] or here[0][0]["slos_met"] is None:
        return ""
    met = [group[0]["policy"] for group in here if all(run["slos_met"] for run in group)]
    if len(met) == len(here):
        return "every policy meets the objectives; " if len(here) > 1 else "the objectives are met; "
    if not met:
        closest = max(here, key=lambda group: _mean(group, "attainment"))
        share = 100 * _mean(closest, "attainment")
        return (
            f"no policy meets the objectives (closest: {closest[0]['policy']}, {share:.1f}% of the requests "
            "within them); "
        )
    return f"the objectives are met by {', '.join(met)}{_most(here)}; "


def _most(here: Groups) -> str:
    """Return which of the policies that meet all objectives has the most goodput, if that is no chance.

    They serve the same arrivals: their goodput differs by which requests end within the measured time.
    """
    met = sorted(
        (group for group in here if all(run["slos_met"] for run in group)),
        key=lambda group: -_mean(group, _GOODPUT),
    )
    most, *others = met
    good = over_seeds(most, _GOODPUT)
    assert good is not None, "met objectives have a goodput"
    if not others:
        return f" alone, with a goodput of {spread(good)} tok/s/GPU"
    whole = all(run["attainment"] == 1.0 for group in met for run in group)
    if not whole and all(_more(most, other) for other in others):
        return f"; most goodput has {most[0]['policy']} with {spread(good)} tok/s/GPU"
    return ", which serve the same traffic: goodput does not tell them apart"


def _more(most: Sequence[Figures], other: Sequence[Figures]) -> bool:
    """Whether one has more goodput than the other beyond the interval of their paired change."""
    change = paired_change_pct(*(_by_seed(group, _GOODPUT) for group in (other, most)))
    return change is not None and change.bounds is not None and change.bounds[1] < 0


def _mean(group: Sequence[Figures], path: str) -> float:
    found = over_seeds(group, path)
    return float("inf") if found is None else found.mean


def _fastest(here: Groups, baseline: str) -> str:
    """Return who writes fastest, and at which quantile where median and p99 have not the same winner."""
    best, steady = (
        min(here, key=lambda group: _mean(group, path)) for path in ("tpot_ms.p50", "tpot_ms.p99")
    )
    low = over_seeds(steady, "tpot_ms.p99")
    if best is steady or low is None:
        return f"{best[0]['policy']} writes fastest: {_speed(best, here, baseline)}"
    return (
        f"{best[0]['policy']} writes fastest by the median ({_speed(best, here, baseline)}), "
        f"{steady[0]['policy']} by the p99 (TPOT p99 {spread(low, 1)} ms)"
    )


def _speed(best: Sequence[Figures], here: Groups, baseline: str) -> str:
    p50, p99 = over_seeds(best, "tpot_ms.p50"), over_seeds(best, "tpot_ms.p99")
    if p50 is None or p99 is None:
        return "no text of two tokens was measured"
    words = f"TPOT p50 {spread(p50, 1)} ms, p99 {spread(p99, 1)} ms"
    base = [group for group in here if group[0]["policy"] == baseline]
    own = [group for group in base if group[0]["drafter"] == best[0]["drafter"]] or base
    if best[0]["policy"] == baseline or not own:
        return words
    change: Interval | None = paired_change_pct(*(_by_seed(group, "tpot_ms.p50") for group in (best, own[0])))
    if change is None:
        return words
    return f"{words}; the median {signed(change.mean, change.bounds)} against {baseline}"


def _by_seed(group: Sequence[Figures], path: str) -> dict[int, float]:
    return {run["seed"]: found for run in group if (found := value(run, path))}
