"""The figures as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def tables(document: dict[str, Any]) -> str:
    """Return a table of each part that has been measured."""
    makers = {
        "closed": _closed,
        "open": _open,
        "linear": _linear,
        "million": _open,
        "start-up": _start_up,
        "memory": _memory,
        "beyond": _beyond,
        "sweep": _sweep,
    }
    texts = []
    for part, make in makers.items():
        if document.get(part, {}).get("figures"):
            machine = document[part]["machine"]
            load = ", ".join(machine["load"])
            on = f"{machine['cpu']}, {machine['cores']} cores, load {load}, numpy {machine['numpy']}"
            texts.append(f"### {part}\n\n{on}\n\n{make(document[part]['figures'])}")
    return "\n\n".join(texts)


def _table(headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def _closed(figures: Sequence[dict[str, Any]]) -> str:
    headers = (
        "trace",
        "rule",
        "users",
        "path",
        "steps/s",
        "of the raw loop",
        "low-high",
        "request-steps/s",
        "tokens/s",
    )
    rows = [
        (
            f["trace"], f["rule"], f["users"], f["path"], f"{f['steps_per_s']:,.0f}", f"{f['ratio']:.2f}",
            f"{f['ratio_low']:.2f}-{f['ratio_high']:.2f}", f"{f['request_steps_per_s'] / 1e6:.2f} M",
            f"{f['tokens_per_s'] / 1e6:.2f} M",
        )
        for f in figures
    ]  # fmt: skip
    return _table(headers, rows)


def _open(figures: Sequence[dict[str, Any]]) -> str:
    headers = (
        "hw",
        "path",
        "requests",
        "output tokens",
        "steps",
        "users",
        "simulate s",
        "total s",
        "wall s",
        "µs a step",
        "peak MiB",
    )
    rows = [
        (
            f["hw"], f["path"], f"{f['requests']:,}", f"{f['output_tokens'] / 1e6:.1f} M", f"{f['steps']:,}",
            f"{f['mean_users']:.1f}", f"{f['simulate_s']:.2f}", f"{f['total_s']:.2f}",
            f"{f['wall_s']:.0f}" if "wall_s" in f else "", f"{f['simulate_s'] / f['steps'] * 1e6:.1f}",
            f"{f['peak_mib']:.0f}",
        )
        for f in figures
    ]  # fmt: skip
    return _table(headers, rows)


def _linear(figures: Sequence[dict[str, Any]]) -> str:
    headers = ("path", "requests", "once, s", "these, s", "ten times as many, s", "ratio", "low-high")
    rows = [
        (
            f["path"], f"{f['requests']:,}", f"{f['once_s']:.2f}", f"{f['one_s']:.3f}", f"{f['ten_s']:.3f}",
            f"{f['ratio_median']:.2f}", f"{f['ratio_low']:.2f}-{f['ratio_high']:.2f}",
        )
        for f in figures
    ]  # fmt: skip
    return _table(headers, rows)


def _beyond(f: dict[str, Any]) -> str:
    headers = (
        "texts", "anchors", "file MiB", "on disk MiB", "allowed MiB", "private MiB", "with mapped pages MiB",
        "first read s", "read again s", "run s", "held",
    )  # fmt: skip
    row = (
        f"{f['texts']:,}", f"{f['anchors']:,}", f"{f['file_mib']:.0f}", f"{f['disk_mib']:,.0f}",
        f["allowed_mib"], f"{f['private_mib']:.0f}", f"{f['peak_mib']:.0f}", f"{f['read_s']:.1f}",
        f"{f['again_s']:.1f}", f"{f['run_s']:.1f}", "fits" if f["held_fits"] else "does not fit",
    )  # fmt: skip
    return _table(headers, [row])


def _start_up(figures: Sequence[dict[str, Any]]) -> str:
    rows = [
        (f"`{f['command']}`", f"{f['cpu_s_median']:.2f}", f"{f['cpu_s_low']:.2f}-{f['cpu_s_high']:.2f}")
        for f in figures
    ]
    return _table(("command", "CPU s", "low-high"), rows)


def _memory(figures: Sequence[dict[str, Any]]) -> str:
    rows = [
        (
            f["texts"],
            f"{f['anchors']:,}",
            f"{f['file_mib']:.1f}",
            f"{f['read_mib']:.0f}",
            f"{f['peak_mib']:.0f}",
        )
        for f in figures
    ]
    return _table(("texts", "anchors", "file MiB", "read, MiB", "peak of a run, MiB"), rows)


def _sweep(f: dict[str, Any]) -> str:
    row = (f["points"], f"{f['sweep']:.2f}", f"{f['spinning']:.2f}", f"{f['share']:.2f}")
    return _table(("points", "gain of two processes", "gain of spinning", "share"), [row])
