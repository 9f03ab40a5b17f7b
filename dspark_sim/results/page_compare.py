"""The comparison page: what differs in words, the changes as charts, both sides as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dspark_sim.results.compare_served_words import served_compare_question, served_sentences
from dspark_sim.results.compare_words import compare_question, compare_sentences
from dspark_sim.results.page import bullets, figure, header, page, section

_MOST = 8  # sentences shown
_TABLE = (
    '<p class="tools"><span>{means}</span> '
    '<button type="button" id="columns" aria-expanded="false" aria-controls="table"></button></p>'
    '<div class="wide" id="table" tabindex="0"></div>'
)
_VERDICTS = {
    "lossless": "lossless",
    "lossless-under-lag": "lossless under lag",
    "not-lossless": "NOT lossless",
}


def compare_page(document: Mapping[str, Any]) -> str:
    """Return the page of a comparison document (:func:`dspark_sim.results.compare.compare_document`)."""
    a, b = document["names"]
    charts = [
        section(
            "gpu-s", "Throughput", figure("gpu", f"Change of tok/s/GPU, {b} against {a}, paired by seed.")
        ),
        section(
            "why-s",
            "Why: throughput is accepted length over step time",
            *_pair(_TAU, _STEP),
        ),
    ]
    return _page(document, compare_question(document), compare_sentences(document), charts, "throughput")


def compare_served_page(document: Mapping[str, Any]) -> str:
    """Return the page of a comparison of served requests.

    Args:
        document: of :func:`dspark_sim.results.compare_served.compare_served_document`.
    """
    there = document["changes"]
    pace = "Change of the median time per output token: less is better."
    late = "Change of the p99 of the time to the first token: less is better."
    total = "Change of the median time from arrival to the last token: less is better."
    within = "Change of the share of requests that keep all objectives, in percentage points: more is better."
    good = "Change of the tokens a second of requests that keep all objectives: more is better."
    done = "Change of tok/s/GPU: where all requests get done in time, it is what arrives."
    charts = [
        section("times-s", "How long requests take", *_pair(("tpot50", pace), ("ttft99", late)),
                *_pair(("e2e50", total), ("gpu", done))),
        section("slo-s", "Who is served within the objectives", *_pair(("within", within), ("good", good)))
        if "within" in there else "",
        section("why-s", "Why: time per token is step time over accepted length", *_pair(_TAU, _STEP))
        if "step" in there else "",
    ]  # fmt: skip
    return _page(document, served_compare_question(document), served_sentences(document), charts, "TPOT p50")


_TAU = ("tau", "Change of the accepted length: more is better.")
_STEP = ("step", "Change of the step time: less is better.")


def _pair(*charts: tuple[str, str]) -> Sequence[str]:
    return '<div class="pair">', *(figure(*chart) for chart in charts), "</div>"


def _page(
    document: Mapping[str, Any], question: str, sentences: Sequence[str], charts: Sequence[str], shown_as: str
) -> str:
    differs = document["differs"] or [
        "nothing that was asked: same trace, profile, settings, policies and code"
    ]
    shown = dict(document) | {"question": question}
    body = (
        header(shown, "dspark-sim compare"),
        "<main>",
        section(
            "answer-s", f"What moved and why, largest change of {shown_as} first", bullets(sentences[:_MOST])
        ),
        section("differs-s", "What was asked differently", bullets(differs)),
        '<div class="toolbar" role="toolbar" aria-label="Policies"><div id="chips"></div></div>',
        *charts,
        section("table-s", "Both sides", _TABLE.format(means=_means(document))),
        section("lossless-s", "Is the output still the target's", bullets(_verdicts(document))),
        section("notes-s", "Notes", bullets(document["notes"])) if document["notes"] else "",
        "</main>",
    )
    return page("compare", shown, "\n".join(part for part in body if part))


def _means(document: Mapping[str, Any]) -> str:
    several = any(row["seeds"] > 1 for row in document["rows"])
    return f"Means{', ± half the 95% interval' if several else ' of one seed'}; the change is paired."


def _verdicts(document: Mapping[str, Any]) -> list[str]:
    """Return a line per pair: whether its output is the target's, on both sides."""
    found = {}
    for arm in document["arms"]:
        row = next((row for row in document["rows"] if row["key"] == arm["key"]), None)
        if row is not None:
            words = dict.fromkeys(_VERDICTS[verdict] for verdict in row["lossless"])
            found[arm["name"]] = f"{arm['name']}: {' → '.join(words)}"
    return list(found.values())
