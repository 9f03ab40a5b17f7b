"""The comparison page: what differs in words, the changes as charts, both sides as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dspark_sim.results.compare_words import compare_question, compare_sentences
from dspark_sim.results.page import bullets, figure, header, page, section

_MOST = 8  # sentences shown


def compare_page(document: Mapping[str, Any]) -> str:
    """Return the page of a comparison document (:func:`dspark_sim.results.compare.compare_document`)."""
    shown = dict(document) | {"question": compare_question(document)}
    return page("compare", shown, _body(shown))


def _body(document: Mapping[str, Any]) -> str:
    a, b = document["names"]
    differs = document["differs"] or [
        "nothing that was asked: same trace, profile, settings, policies and code"
    ]
    return "\n".join(
        (
            header(document, "dspark-sim compare"),
            "<main>",
            section("answer-s", "What changed, largest first", bullets(compare_sentences(document)[:_MOST])),
            section("differs-s", "What was asked differently", bullets(differs)),
            '<div class="toolbar" role="toolbar" aria-label="Policies"><div id="chips"></div></div>',
            section(
                "gpu-s", "Throughput", figure("gpu", f"Change of tok/s/GPU, {b} against {a}, paired by seed.")
            ),
            section(
                "why-s",
                "Why: throughput is accepted length over step time",
                '<div class="pair">',
                figure("tau", "Change of the accepted length: more is better."),
                figure("step", "Change of the step time: less is better."),
                "</div>",
            ),
            section("table-s", "Both sides", '<div class="wide" id="table" tabindex="0"></div>'),
            section("notes-s", "Notes", bullets(document["notes"])) if document["notes"] else "",
            "</main>",
        )
    )
