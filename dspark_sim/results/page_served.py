"""The page of served requests: its sections in words, into which the script draws the charts."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from dspark_sim.results.page import bullets, definitions, figure, header, page, section
from dspark_sim.results.page_report import number_table, several_seeds, verdicts

_BANDS = " Bands are 95% intervals over replications."
_WITHIN = "Share of the measured requests that keep all objectives."
_GOODPUT = "Output tokens a second of the requests that keep all objectives."
_OVER_TIME = (
    "Averages over 48 stretches of the first replication, from the first arrival to the last token, at the "
    "chosen rate."
)
_TOOLBAR = (
    '<div class="toolbar" role="toolbar" aria-label="Policies and rate"><div id="chips"></div>'
    '<label>Offered <select id="load"></select></label></div>'
)
_QUANTILE = (
    '<p><label>Quantile <select id="quantile"><option value="99">p99</option><option value="90">p90</option>'
    '<option value="50">median</option></select></label></p>'
)


def served_page(document: Mapping[str, Any]) -> str:
    """Return the page of a document of :func:`dspark_sim.results.report_served.served_document`."""
    return page("served", document, _body(document))


def _body(document: Mapping[str, Any]) -> str:
    columns = {column["id"] for column in document["columns"]}
    curves = len({rate["offered"] for rate in document["rates"]} - {None}) > 1
    detailed = document["detailed"]
    bands = _BANDS if several_seeds(document) else ""
    parts = [
        header(document, "dspark-sim report: requests that arrive in time"),
        "<main>",
        _answers(document),
        _TOOLBAR,
        section("readings-s", "At the chosen rate", '<div id="readings"></div>'),
        _objectives(columns, bands) if curves else "",
        _latency(bands) if curves else "",
        _queues(columns, bands) if curves else "",
        _distributions() if detailed else "",
        _time(document) if detailed else "",
        section("table-s", "All numbers", number_table("Means over replications", several_seeds(document))),
        verdicts(document),
        section("setup-s", "What was simulated", definitions(document["setup"]), bullets(document["notes"])),
        "</main>",
    ]
    return "\n".join(part for part in parts if part)


def _answers(document: Mapping[str, Any]) -> str:
    rows = "".join(
        f'<li><button type="button" class="sla" aria-pressed="false">{_name(rate)}</button>'
        f"<span>{escape(rate['headline'])}</span></li>"
        for rate in document["rates"]
    )
    lines = bullets(document["overall"])
    return section("answer-s", "What it says", lines, f'<ul class="answers">{rows}</ul>')


def _name(rate: Mapping[str, Any]) -> str:
    return "burst" if rate["offered"] is None else f"{rate['offered']:,.1f}/s"


def _objectives(columns: set[str], bands: str) -> str:
    if "within" not in columns:
        caption = f"Output tokens a second that get done.{bands}"
        return section("done-s", "What gets done", figure("throughput", caption))
    return section(
        "slo-s",
        "Who is served within the objectives",
        '<div class="pair">',
        figure("within", _WITHIN + bands),
        figure("goodput", _GOODPUT + bands),
        "</div>",
    )


def _latency(bands: str) -> str:
    return section(
        "latency-s",
        "How long requests take",
        _QUANTILE,
        '<div class="pair">',
        figure("ttft", f"Arrival to first token.{bands}"),
        figure("tpot", f"Time per output token after the first.{bands}"),
        figure("e2e", f"Arrival to last token.{bands}"),
        figure("queue", f"Arrival to admission.{bands}"),
        "</div>",
    )


def _queues(columns: set[str], bands: str) -> str:
    kv = figure("kv", f"Most of the KV blocks in use at any step.{bands}") if "kvmost" in columns else ""
    lost = f"Times that a measured request lost its KV.{bands}"
    return section(
        "queue-s",
        "Where load goes",
        '<div class="pair">',
        figure("waiting", f"Requests before admission, on average over time.{bands}"),
        kv,
        figure("preempted", lost) if "preempted" in columns else "",
        "</div>",
    )


def _distributions() -> str:
    share = "Share of the measured requests that took at most so long, at the chosen rate."
    gaps = "Share of the gaps between steps in which a request's tokens appear; tokens of a round share one."
    return section(
        "distribution-s",
        "How requests feel",
        '<div class="pair">',
        figure("ttft-d", f"Time to the first token. {share}"),
        figure("tpot-d", f"Time per output token. {share}"),
        figure("e2e-d", f"From arrival to the last token. {share}"),
        figure("itl-d", gaps),
        "</div>",
    )


def _time(document: Mapping[str, Any]) -> str:
    kv = any(row["over_time"] and "kv" in row["over_time"] for row in document["points"])
    return section(
        "time-s",
        "The run over time",
        f"<p>{_OVER_TIME}</p>",
        '<div class="pair">',
        figure("waiting-t", "Requests before admission."),
        figure("users-t", "Requests between their first and their last token."),
        figure("kv-t", "Share of the KV blocks in use.") if kv else "",
        "</div>",
    )
