"""The report page: its sections in words, into which the script draws the charts."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from dspark_sim.results.page import bullets, definitions, figure, header, page, section

_FRONTIER = (
    "One point per load, lines between neighbouring loads. Faint: loads that another load of the same policy "
    "beats in both. Choose an SLA line to read every policy at it."
)
_STAIRS = (
    "The target's forward pass by tokens in the step, captured sizes as stairs. The strips below show which "
    "step sizes each policy ran at the chosen load: darker is more often, the bar is the mean."
)
_CONDITIONAL = (
    "Share of drafted tokens accepted at each position, given that all before were, over the anchors that a "
    "full-block replay visits. Bars: 95% intervals over prompts."
)
_POSITIONS = (
    "Share of rounds in which a policy verified (line) and accepted (dashed) each draft position at the "
    "chosen load."
)
_RELIABILITY = (
    "Predicted survival against the share that did survive, all positions together. On the diagonal a "
    "confidence means what it says. Bars: 95% intervals over prompts."
)
_SHARE = (
    "Part of the gain over no speculation that a policy reaches, of the gain that an upper bound leaves: no "
    "rule can pass 100 %."
)
_LATENCY = "Share of requests whose time per output token is at most that, at the chosen load."


def report_page(document: Mapping[str, Any]) -> str:
    """Return the page of a report document (:func:`dspark_sim.results.report.report_document`)."""
    return page("report", document, _body(document))


def _body(document: Mapping[str, Any]) -> str:
    detailed = any(column["id"] == "tokens" for column in document["columns"])
    evidence = document["evidence"]
    several = len(document["loads"]) > 1
    parts = [
        header(document, "dspark-sim report"),
        "<main>",
        _answers(document),
        _toolbar(),
        section(
            "frontier-s",
            "Throughput against the speed of each user",
            figure("frontier", _FRONTIER),
            '<div id="readings"></div>',
        ),
        _loads(several_seeds(document)) if several else "",
        _shares() if document.get("bounded") else "",
        _steps() if evidence and detailed else "",
        _acceptance(detailed) if evidence else "",
        _reliability(evidence) if evidence else "",
        section("latency-s", "How requests feel", figure("latency", _LATENCY)) if detailed else "",
        section("table-s", "All numbers", number_table("Means over seeds", several_seeds(document))),
        verdicts(document),
        section("setup-s", "What was simulated", definitions(document["setup"]), bullets(document["notes"])),
        "</main>",
    ]
    return "\n".join(part for part in parts if part)


def several_seeds(document: Mapping[str, Any]) -> bool:
    """Whether any point of a document has several seeds, and so an interval."""
    return any(row["seeds"] > 1 for row in document["points"])


def number_table(what: str, intervals: bool) -> str:
    """Return the place of the table that sorts; ``what`` says what its numbers are over several seeds."""
    means = f"{escape(what)}; ± is half the 95% interval." if intervals else "One seed: no intervals."
    return (
        f'<p class="tools"><span>{means} A heading sorts.</span> '
        '<button type="button" id="columns" aria-expanded="false" aria-controls="table"></button> '
        '<button type="button" id="csv">Download CSV</button></p>'
        '<div class="wide" id="table" tabindex="0"></div>'
    )


def _answers(document: Mapping[str, Any]) -> str:
    if not document["slas"]:
        return section("answer-s", "What it says", "<p>One speed gives no range: no SLA is read.</p>")
    rows = "".join(
        f'<li><button type="button" class="sla" aria-pressed="false">SLA {row["sla"]:g}</button>'
        f"<span>{escape(row['headline'])}</span></li>"
        for row in document["slas"]
    )
    return section("answer-s", "What it says", f'<ul class="answers">{rows}</ul>')


def _toolbar() -> str:
    return (
        '<div class="toolbar" role="toolbar" aria-label="Policies and load"><div id="chips"></div>'
        '<label>Load <select id="load"></select></label></div>'
    )


def _loads(intervals: bool) -> str:
    bands = "; bands are 95% intervals over seeds" if intervals else ""
    return section(
        "load-s",
        "What load does",
        '<div class="pair">',
        figure("throughput", f"Throughput against users{bands}."),
        figure("budget", "Verification budget against users: tokens verified per round, anchor included."),
        "</div>",
    )


def _shares() -> str:
    return section("share-s", "How much of what is possible", figure("share", _SHARE))


def _steps() -> str:
    return section("steps-s", "What a step costs, and where each policy lives", figure("stairs", _STAIRS))


def _acceptance(detailed: bool) -> str:
    own = figure("positions", _POSITIONS) if detailed else ""
    return section(
        "acceptance-s",
        "Acceptance by position",
        '<div class="pair">',
        figure("conditional", _CONDITIONAL),
        own,
        "</div>",
    )


def _reliability(evidence: Mapping[str, Any]) -> str:
    scored = {name: d["reliability"] for name, d in evidence["drafters"].items() if "reliability" in d}
    if not scored:
        return ""
    words = [
        f"{name}: expected calibration error of the survival {r['raw']['ece']:.4f} raw, "
        f"{r['calibrated']['ece']:.4f} as calibrated."
        for name, r in scored.items()
    ]
    return section(
        "reliability-s",
        "Can the confidences be believed",
        figure("reliability", _RELIABILITY),
        bullets(words),
    )


def verdicts(document: Mapping[str, Any]) -> str:
    """Return the section that says of every policy whether its output is the target's."""
    rows = [[arm["name"], arm["verdict"]] for arm in document["arms"]]
    return section("lossless-s", "Is the output still the target's", definitions(rows))
