"""Studies that compare drafters: figures 2, 3, 4 and table 1 of the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dspark_sim.results.plots_study import Curve, Panel
from dspark_sim.study import paper
from dspark_sim.study.result import Row, Study
from dspark_sim.study.subjects import STUDY_ANCHORS, Need, Subject, choose, training_note
from dspark_sim.study.tally import Figures, Tally, figures, interval, shared_prompts
from dspark_sim.workload.published import QWEN3_4B

_PAPER_KIND = {"dspark": "dspark", "dflash": "dflash", "mtp": "eagle3"}
_TITLES = {
    "acceptance": ("Conditional acceptance by position", "figure 2"),
    "gains": ("Accepted length, and gains over the baselines", "table 1"),
    "length": ("Accepted length and round latency by draft length", "figure 4"),
    "depth": ("Accepted length by depth", "figure 3"),
}


@dataclass(frozen=True, slots=True)
class Pool:
    """Drafters at hand, with their rounds.

    Attributes:
        subjects: the drafters.
        tallies: by the names of the subjects.
        basis: how the rounds were got, in words.
        round_ms: (kind, gamma) -> measured time of a round, draft and verification; empty if not timed.
        timed: how that was measured, in words.
        anchors: what the drafters of studies of equal training were trained on.
    """

    subjects: Sequence[Subject]
    tallies: Mapping[str, Tally]
    basis: str
    round_ms: Mapping[tuple[str, int], tuple[float, float]]
    timed: str = ""
    anchors: int = STUDY_ANCHORS


def drafter_study(name: str, pool: Pool, seed: int = 0) -> Study:
    """Run ``acceptance``, ``gains``, ``length`` or ``depth`` on the drafters of ``pool`` that it needs."""
    found, missing = choose(name, pool.subjects, pool.anchors)
    title, figure = _TITLES[name]
    lacks = [need.label for need in missing]
    if not found and not (name == "length" and pool.round_ms):
        return Study(name, title, figure, [], [], [], lacks)
    tallies = {subject.name: pool.tallies[subject.name] for subject in found.values()}
    common = shared_prompts(tallies) if tallies else {}
    known = figures(common, seed=seed) if common else {}
    notes = [pool.basis if common else "", _prompts(common), training_note(found)]
    builder = {"acceptance": _acceptance, "gains": _gains, "length": _length, "depth": _depth}[name]
    rows, panels = builder(found, known, pool)
    if name == "acceptance":
        notes += [_trend(subject, known[subject.name]["mean"]) for subject in found.values()]
    if name == "length" and pool.timed:
        notes.append(pool.timed)
    return Study(name, title, figure, rows, panels, [note for note in notes if note], lacks)


def _trend(subject: Subject, mean: Figures, last: int = 4) -> str:
    """How conditional acceptance changes from position 1 to ``last``, with its interval."""
    change_B = mean.conditional_BG[:, min(last, subject.gamma) - 1] - mean.conditional_BG[:, 0]
    low, high = interval(change_B)
    return (
        f"{subject.name}: conditional acceptance changes by {change_B[0]:+.3f} [{low:+.3f}, {high:+.3f}] "
        f"from position 1 to {min(last, subject.gamma)}, mean over domains"
    )


def _prompts(tallies: Mapping[str, Tally]) -> str:
    if not tallies:
        return ""
    first = next(iter(tallies.values()))
    counts = {domain: first.domains.count(domain) for domain in dict.fromkeys(first.domains)}
    return "prompts: " + ", ".join(f"{domain} {count}" for domain, count in counts.items())


def _domains(known: Mapping[str, Mapping[str, Figures]]) -> list[str]:
    """Domains in the paper's order, then others, the mean last."""
    there = list(next(iter(known.values()))) if known else []
    ordered = [d for d in paper.DOMAINS if d in there] + [d for d in there if d not in paper.DOMAINS]
    return [d for d in ordered if d != "mean"] + ["mean"] * ("mean" in there)


def _of(triple: Sequence[float], domain: str) -> float | None:
    """A domain's number of the paper's (math, code, chat), or their mean."""
    if domain == "mean":
        return float(np.mean(triple))
    return triple[paper.DOMAINS.index(domain)] if domain in paper.DOMAINS else None


Known = Mapping[str, Mapping[str, Figures]]
Built = tuple[list[Row], list[Panel]]


def _acceptance(found: Mapping[Need, Subject], known: Known, pool: Pool) -> Built:
    rows: list[Row] = []
    panels = []
    for domain in _domains(known):
        curves = []
        for need, subject in found.items():
            got, published = known[subject.name][domain], _figure_2(need.kind, domain)
            ends = [interval(got.conditional_BG[:, j]) for j in range(subject.gamma)]
            positions = range(1, subject.gamma + 1)
            for j in range(subject.gamma):
                rows.append(
                    {
                        "domain": domain,
                        "drafter": subject.name,
                        "position": j + 1,
                        "acceptance": float(got.conditional_G[j]),
                        "low": ends[j][0],
                        "high": ends[j][1],
                        "paper": published[j] if published and j < len(published) else None,
                    }
                )
            low, high = zip(*ends, strict=True)
            curves.append(Curve(subject.name, need.kind, positions, got.conditional_G.tolist(), low, high))
            if published:
                name = f"{_PAPER_KIND[need.kind]}, Qwen3-4B"
                curves.append(Curve(name, need.kind, range(1, 8), published, paper=True))
        panels.append(Panel(domain, "position", "conditional acceptance", curves, top=1.0))
    return rows, panels


def _figure_2(kind: str, domain: str) -> Sequence[float] | None:
    if domain == "mean":
        every = [QWEN3_4B[d][_PAPER_KIND[kind]] for d in paper.DOMAINS]
        mean: list[float] = np.mean(every, axis=0).tolist()
        return mean
    return QWEN3_4B.get(domain, {}).get(_PAPER_KIND[kind])


def _gains(found: Mapping[Need, Subject], known: Known, pool: Pool) -> Built:
    """Accepted length of each drafter, and DSpark's gain over each other one, paired over prompts."""
    kinds = {need.kind: subject for need, subject in found.items()}
    rows = []
    for domain in _domains(known):
        for kind, subject in kinds.items():
            length_B = known[subject.name][domain].length_B
            row: Row = {"domain": domain, "drafter": subject.name, **_lengths(length_B)}
            row["paper Qwen3-4B"] = _of(paper.TABLE_1["Qwen3-4B"][_PAPER_KIND[kind]], domain)
            gain_B = np.full(2, np.nan)
            if kind != "dspark" and "dspark" in kinds:
                gain_B = 100 * (known[kinds["dspark"].name][domain].length_B / length_B - 1)
            low, high = interval(gain_B)
            row |= {"dspark gains [%]": float(gain_B[0]), "gain low": low, "gain high": high}
            row["paper gains [%]"] = _paper_gains(kind, domain)
            rows.append(row)
    curves = [
        _curve(subject.name, kind, [r for r in rows if r["drafter"] == subject.name], _domains(known))
        for kind, subject in kinds.items()
    ]
    return rows, [Panel("", "domain", "accepted length [tokens/round]", curves, names=_domains(known))]


def _curve(label: str, look: str, own: Sequence[Row], domains: Sequence[str]) -> Curve:
    return _with_ends(label, look, [domains.index(row["domain"]) + 1 for row in own], own)


def _with_ends(label: str, look: str, x: Sequence[float], own: Sequence[Row]) -> Curve:
    """The accepted lengths of some rows with their intervals."""
    y, low, high = ([row[key] for row in own] for key in ("accepted length", "low", "high"))
    return Curve(label, look, x, y, low, high)


def _paper_gains(kind: str, domain: str) -> str | None:
    """DSpark's gain over the baseline in table 1: least to most over its four targets."""
    if kind == "dspark":
        return None
    gains = []
    for by_drafter in paper.TABLE_1.values():
        ours, theirs = (_of(by_drafter[d], domain) for d in ("dspark", _PAPER_KIND[kind]))
        if ours is not None and theirs is not None:
            gains.append(100 * (ours / theirs - 1))
    return f"{min(gains):.0f} to {max(gains):.0f}" if gains else None


def _lengths(length_B: np.ndarray) -> Row:
    low, high = interval(length_B)
    return {"accepted length": float(length_B[0]), "low": low, "high": high}


def _length(found: Mapping[Need, Subject], known: Known, pool: Pool) -> Built:
    gammas = sorted({need.gamma for need in found} | {gamma for _, gamma in pool.round_ms})
    rows: list[Row] = []
    for kind in ("dspark", "dflash"):
        for gamma in gammas:
            subject = next((s for n, s in found.items() if (n.kind, n.gamma) == (kind, gamma)), None)
            draft, verify = pool.round_ms.get((kind, gamma), (None, None))
            for domain in _domains(known) if subject is not None else ["mean"]:
                got = {"accepted length": None, "low": None, "high": None}
                if subject is not None:
                    got = _lengths(known[subject.name][domain].length_B)
                triple = paper.LENGTH[kind].get(gamma)
                rows.append(
                    {
                        "drafter": kind,
                        "gamma": gamma,
                        "domain": domain,
                        **got,
                        "paper length": _of(triple, domain) if triple else None,
                        "draft [ms]": draft,
                        "verify [ms]": verify,
                        "paper round [ms]": paper.ROUND_MS[kind].get(gamma),
                    }
                )
    return rows, [*_length_panels(rows, known), *_latency_panels(pool)]


def _length_panels(rows: Sequence[Row], known: Known) -> list[Panel]:
    panels = []
    for domain in _domains(known):
        curves = []
        for kind in ("dspark", "dflash"):
            own = [r for r in rows if (r["drafter"], r["domain"]) == (kind, domain) and r["low"] is not None]
            if own:
                curves.append(_with_ends(kind, kind, [r["gamma"] for r in own], own))
                seen = [(g, _of(v, domain)) for g, v in paper.LENGTH[kind].items() if g <= own[-1]["gamma"]]
                theirs = [(g, v) for g, v in seen if v is not None]
                if theirs:
                    x, y = zip(*theirs, strict=True)
                    curves.append(Curve(f"{kind}, Qwen3-4B", kind, x, y, paper=True))
        panels.append(Panel(domain, "gamma", "accepted length [tokens/round]", curves))
    return panels


def _latency_panels(pool: Pool) -> list[Panel]:
    """Round time against gamma, each relative to the shortest draft: machines and models differ too much."""
    curves = []
    for kind in ("dspark", "dflash"):
        own = sorted((g, sum(times)) for (k, g), times in pool.round_ms.items() if k == kind)
        if own:
            x, y = zip(*own, strict=True)
            curves.append(Curve(kind, kind, x, [value / y[0] for value in y]))
            theirs = {g: ms for g, ms in paper.ROUND_MS[kind].items() if g <= x[-1]}
            scaled = [ms / paper.ROUND_MS[kind][3] for ms in theirs.values()]
            curves.append(Curve(f"{kind}, Qwen3-4B", kind, list(theirs), scaled, paper=True))
    title = "round latency, relative to gamma 3"
    return [Panel(title, "gamma", "round / round at gamma 3", curves)] if curves else []


def _depth(found: Mapping[Need, Subject], known: Known, pool: Pool) -> Built:
    rows: list[Row] = []
    panels = []
    for domain in _domains(known):
        for need, subject in found.items():
            triple = paper.DEPTH[need.kind].get(need.layers or 0)
            rows.append(
                {
                    "domain": domain,
                    "drafter": need.kind,
                    "layers": need.layers,
                    **_lengths(known[subject.name][domain].length_B),
                    "paper (Qwen3-4B)": _of(triple, domain) if triple else None,
                }
            )
        curves = []
        for kind in ("dspark", "dflash"):
            own = [r for r in rows if (r["drafter"], r["domain"]) == (kind, domain)]
            if own:
                curves.append(_with_ends(kind, kind, [r["layers"] for r in own], own))
        panels.append(Panel(domain, "layers", "accepted length [tokens/round]", curves))
    return rows, panels
