"""Two runs side by side: paired differences, and what moved.

Throughput is exactly accepted length x running requests / step time / GPUs (sum C / T with T the sum of
the steps), so a change of throughput is the product of the changes of its factors; and a change of the
step is that of the forward pass plus that of all else (drafting, attention, host, bubble).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from dspark_sim.errors import InputError
from dspark_sim.results.canvas import name as key_name
from dspark_sim.results.curves import Key, arms
from dspark_sim.results.details import DETAIL, has_details
from dspark_sim.results.metrics import Point
from dspark_sim.results.notes import notes
from dspark_sim.results.report import triple
from dspark_sim.results.stats import Interval, paired_change_pct, t_interval
from dspark_sim.results.store import Results
from dspark_sim.results.style import dasharray, look

SCHEMA = "dspark-sim/compare/1"
_P = TypeVar("_P", bound=Mapping[str, Any])

#: id -> (name, column of a point) of what is compared in percent.
CHANGES = {
    "gpu": ("throughput", "tok_per_s_per_gpu"),
    "user": ("speed", "tok_per_s_per_user"),
    "tau": ("accepted length", "accepted_len"),
    "step": ("step time", "step_ms"),
}
#: id -> (name, unit, decimals, how it is read off a point) of what is given on both sides.
SIDES: dict[str, tuple[str, str, int, Callable[[Point], float]]] = {
    "gpu": ("throughput", "tok/s/GPU", 0, lambda p: float(p["tok_per_s_per_gpu"])),
    "tau": ("accepted length", "tok/round", 2, lambda p: float(p["accepted_len"])),
    "budget": ("verification budget", "tok/round", 2, lambda p: float(p["verification_budget"])),
    "step": ("step", "ms", 2, lambda p: float(p["step_ms"])),
    "forward": ("forward pass", "ms", 2, lambda p: float(p[DETAIL]["verify_ms"])),
    "tokens": ("batch tokens", "tok/step", 0, lambda p: float(p[DETAIL]["batch_tokens"])),
    "padded": ("padded tokens", "tok/step", 0, lambda p: float(p[DETAIL]["padded_tokens"])),
    "eager": ("past capture", "% of steps", 1, lambda p: 100.0 * float(p[DETAIL]["eager"])),
}
#: Sides that are there before the reader asks for all.
FIRST = ("gpu", "tau", "budget", "step", "eager")
DETAILED = ("forward", "tokens", "padded", "eager")

#: Parts of ``run.json`` that may differ -> how they are called.
_PARTS = {name: name for name in ("trace", "profile", "settings", "code", "serving", "traffic")}
_PARTS |= {"believed": "believed cost", "slos": "objectives"}


def compare_document(
    a: Results, b: Results, names: tuple[str, str], pairs: Sequence[tuple[str, str]] = ()
) -> dict[str, Any]:
    """Return the comparison document (schema ``dspark-sim/compare/1``): B against A.

    Args:
        a: what changes are against.
        b: what is compared with it.
        names: what the two are called.
        pairs: (policy of A, policy of B), normalised; none: every (drafter, policy) in both, or the only
            one of each.

    Raises:
        InputError: nothing can be paired: no such policy, no shared load, or no shared seed.
    """
    mine, theirs = list(arms(a.points)), list(arms(b.points))
    chosen = pair_up(mine, theirs, pairs)
    detailed = has_details([*a.points, *b.points])
    sides = [name for name in SIDES if detailed or name not in DETAILED]
    rows = [row for pair in chosen for row in _rows(pair, a.points, b.points, sides)]
    if not rows:
        raise InputError(f"{names[0]} and {names[1]} share no load and seed: nothing to pair")
    return {
        "schema": SCHEMA,
        "title": f"{names[1]} against {names[0]}",
        "names": list(names),
        "synthetic": a.about["trace"]["synthetic"] or b.about["trace"]["synthetic"],
        "same_texts": a.about["trace"]["sha256"] == b.about["trace"]["sha256"],
        "differs": [*differences(a.about, b.about), *policy_differences(mine, theirs, chosen)],
        "arms": [pair_entry(pair, chosen) for pair in chosen],
        "changes": {name: words for name, (words, _) in CHANGES.items()},
        "sides": [
            {"id": s, "name": SIDES[s][0], "unit": SIDES[s][1], "digits": SIDES[s][2], "first": s in FIRST}
            for s in sides
        ],
        "rows": rows,
        "loads": sorted({row["load"] for row in rows}),
        "notes": list(dict.fromkeys([*notes(a.about, a.points), *notes(b.about, b.points)])),
    }


Pair = tuple[Key, Key]


def pair_up(mine: Sequence[Key], theirs: Sequence[Key], asked: Sequence[tuple[str, str]]) -> list[Pair]:
    """Return what of A is compared with what of B: as asked, or what both have, or the only one of each.

    Raises:
        InputError: nothing can be paired.
    """
    if asked:
        return [pair for first, second in asked for pair in _asked(mine, theirs, first, second)]
    shared = [(key, key) for key in mine if key in theirs]
    if shared or len(mine) != 1 or len(theirs) != 1:
        if not shared:
            held = f"{', '.join(p for _, p in mine)} and {', '.join(p for _, p in theirs)}"
            raise InputError(
                f"the runs share no policy ({held}); pair them, as in --pair {mine[0][1]}={theirs[0][1]}"
            )
        return shared
    return [(mine[0], theirs[0])]


def _asked(mine: Sequence[Key], theirs: Sequence[Key], first: str, second: str) -> list[Pair]:
    found = []
    for keys, policy, side in ((mine, first, "A"), (theirs, second, "B")):
        known = [key for key in keys if key[1] == policy]
        if not known:
            raise InputError(
                f"--pair {first}={second}: {side} holds no {policy}; it holds {', '.join(p for _, p in keys)}"
            )
        found.append(known)
    same = [(x, y) for x in found[0] for y in found[1] if x[0] == y[0]]
    return same or [(found[0][0], found[1][0])]


def pair_entry(pair: Pair, chosen: Sequence[Pair]) -> dict[str, Any]:
    """Return what a page knows of one pair: names and look."""
    style = look(pair[1][1])
    keys = [key for both in chosen for key in both]
    first, second = (key_name(key, keys) for key in pair)
    drafters = list(dict.fromkeys(drafter for drafter, _ in keys))
    return {
        "key": pair_id(pair),
        "name": second if pair[0] == pair[1] else f"{second} against {first}",
        "colours": [style.colour, style.text, style.on_dark],
        "marker": style.marker,
        "dash": dasharray(drafters.index(pair[1][0])),
    }


def pair_id(pair: Pair) -> str:
    """Return what rows of one pair are found by."""
    return "|".join(part for key in pair for part in key)


def _rows(pair: Pair, a: Sequence[Point], b: Sequence[Point], sides: Sequence[str]) -> list[dict[str, Any]]:
    rows = []
    mine, theirs = (by_load(points, key, "concurrency") for points, key in zip((a, b), pair, strict=True))
    for load in sorted(set(mine) & set(theirs)):
        seeds = sorted(set(mine[load]) & set(theirs[load]))
        if seeds:
            before, after = ([side[load][seed] for seed in seeds] for side in (mine, theirs))
            rows.append(
                {"key": pair_id(pair), "load": load, "seeds": len(seeds)} | _row(before, after, sides)
            )
    return rows


def by_load(points: Sequence[_P], key: Key, load: str) -> dict[Any, dict[int, _P]]:
    """Return the points of an arm as load -> seed -> point; ``load`` names the column."""
    found: dict[Any, dict[int, _P]] = {}
    for p in points:
        if (p["drafter"], p["policy"]) == key:
            found.setdefault(p[load], {})[p["seed"]] = p
    return found


def _row(before: Sequence[Point], after: Sequence[Point], sides: Sequence[str]) -> dict[str, Any]:
    return {
        "change": {name: triple(_change(before, after, column)) for name, (_, column) in CHANGES.items()},
        "a": {side: triple(t_interval(SIDES[side][3](p) for p in before)) for side in sides},
        "b": {side: triple(t_interval(SIDES[side][3](p) for p in after)) for side in sides},
        "lossless": [before[0]["lossless"], after[0]["lossless"]],
    }


def _change(before: Sequence[Point], after: Sequence[Point], column: str) -> Interval | None:
    arm, base = ({p["seed"]: p[column] for p in points} for points in (after, before))
    return paired_change_pct(arm, base)


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Return in words what two runs were asked differently; the grid is not compared."""
    found = []
    for part, name in _PARTS.items():
        first, second = a.get(part), b.get(part)
        if first != second:
            words = [_words(own, other) for own, other in ((first, second), (second, first))]
            shown = " → ".join(word or "none" for word in words)
            found.append(f"{name}: {shown if any(words) else 'other content'}")
    return found


def policy_differences(mine: Sequence[Key], theirs: Sequence[Key], chosen: Sequence[Pair]) -> list[str]:
    """Return in words which policies one side alone has, or is compared by."""
    held, other = (dict.fromkeys(policy for _, policy in keys) for keys in (mine, theirs))
    first, second = [p for p in held if p not in other], [p for p in other if p not in held]
    differ = [f"{', '.join(first) or 'none'} → {', '.join(second) or 'none'}"] if first or second else []
    differ += [f"{x} → {y}" for (_, x), (_, y) in chosen if x != y and not (x in first and y in second)]
    return [f"policy: {'; '.join(differ)}"] if differ else []


def _words(value: Any, other: Any) -> str:
    """Return what of ``value`` is not in ``other``, in a few words; hashes say nothing to people."""
    if isinstance(value, Mapping):
        rest = other if isinstance(other, Mapping) else {}
        own = {key: _words(item, rest.get(key)) for key, item in value.items() if rest.get(key) != item}
        return ", ".join(f"{key} {words}" for key, words in own.items() if words and key != "sha256")
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)[:60]
    return "" if value in (None, "") else str(value)[:60]
