"""One self-contained HTML file: words, data, style and scripts in it, nothing fetched from anywhere.

The content security policy forbids every request, and every script but the two that are hashed in it,
so a string from a trace or a profile can neither run nor call home. Strings are escaped besides.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

_SHARED = ("dom.js", "scale.js", "chart.js", "controls.js")
#: Kind of page -> its scripts beside the shared ones.
_SCRIPTS = {"report": ("figures.js", "report.js"), "served": ("served.js",), "compare": ("compare.js",)}
_SYNTHETIC = "SYNTHETIC TRACE: acceptance was drawn from a model of acceptance, not recorded from a pair."


def part(name: str) -> str:
    """Return one of the files that pages are made of."""
    return (files("dspark_sim.results") / "page" / name).read_text(encoding="utf-8")


def page(kind: str, document: Mapping[str, Any], body: str) -> str:
    """Return a page as HTML text.

    Args:
        kind: ``report``, ``served`` or ``compare``: which script draws it.
        document: its data; needs ``title``, and ``arms`` with the colours of each.
        body: what is in it before the script runs, escaped already.
    """
    script = "\n".join(part(name) for name in (*_SHARED, *_SCRIPTS[kind]))
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; "
        f"script-src '{_hash(script)}'; base-uri 'none'; form-action 'none'"
    )
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            '<link rel="icon" href="data:,">',
            f"<title>{escape(document['title'])}</title>",
            f"<style>\n{part('page.css')}\n{_colours(document['arms'])}\n</style>",
            "</head>",
            "<body>",
            body,
            f'<script type="application/json" id="data">{embedded(document)}</script>',
            f"<script>{script}</script>",
            "</body>",
            "</html>",
            "",
        )
    )


def embedded(document: Mapping[str, Any]) -> str:
    """Return ``document`` as JSON that no string in it can break out of a script element."""
    text = json.dumps(_finite(document), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _finite(value: Any) -> Any:
    """Return ``value`` with NaN and infinity as None, and floats to nine significant digits."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.9g}") if math.isfinite(value) else None
    return value


def _hash(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _colours(arms: Sequence[Mapping[str, Any]]) -> str:
    """Return a class per arm: its colour for lines (--c) and for words (--t), light and dark."""
    light = "".join(f".p{i}{{--c:{a['colours'][0]};--t:{a['colours'][1]}}}" for i, a in enumerate(arms))
    dark = [f".p{i}{{--c:{a['colours'][2]};--t:{a['colours'][2]}}}" for i, a in enumerate(arms)]
    chosen = "".join(f':root[data-theme="dark"] {rule}' for rule in dark)
    system = "".join(f':root:not([data-theme="light"]) {rule}' for rule in dark)
    return f"{light}\n@media screen and (prefers-color-scheme:dark){{{system}}}\n{chosen}"


def definitions(pairs: Iterable[Sequence[str]]) -> str:
    """Return [term, description] pairs as a definition list."""
    rows = "".join(f"<div><dt>{escape(term)}</dt><dd>{escape(text)}</dd></div>" for term, text in pairs)
    return f'<dl class="facts">{rows}</dl>'


def bullets(lines: Iterable[str]) -> str:
    """Return lines as a list; nothing for none."""
    rows = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul>{rows}</ul>" if rows else ""


def section(id_: str, heading: str, *content: str) -> str:
    """Return a section with its heading; ``content`` is HTML."""
    head = f'<h2 id="{id_}-h">{escape(heading)}</h2>'
    return f'<section id="{id_}" aria-labelledby="{id_}-h">{head}{"".join(content)}</section>'


def figure(id_: str, caption: str) -> str:
    """Return the place of a chart with its caption."""
    return f'<figure><div class="host" id="{id_}"></div><figcaption>{escape(caption)}</figcaption></figure>'


def header(document: Mapping[str, Any], lead: str) -> str:
    """Return the top of a page: kicker, title, the question, and a warning where a trace is synthetic."""
    banner = f'<p class="banner">{_SYNTHETIC}</p>' if document["synthetic"] else ""
    theme = '<button type="button" id="theme"></button>'
    return (
        f'<header><div class="top"><p class="kicker">{escape(lead)}</p>{theme}</div>'
        f"<h1>{escape(document['title'])}</h1>{banner}"
        f'<p class="question">{escape(document["question"])}</p></header>'
    )
