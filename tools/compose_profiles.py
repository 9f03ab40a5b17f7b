"""Rebuild the shipped hardware profiles from the measured tables they rest on, or check them.

    python tools/compose_profiles.py DATA [--out hw_profiles]
    python tools/compose_profiles.py DATA --check

DATA holds hardware/ (kernel tables) and engines/ (published curves); see docs/hardware.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from dspark_sim.files import write_text
from dspark_sim.hardware.checks import comparisons
from dspark_sim.hardware.library import RECIPES, composed_document
from dspark_sim.hardware.shipped import b300_document, engine_tables
from dspark_sim.hardware.writing import profile_text


def check(folder: Path) -> None:
    """Print composed beside measured elsewhere."""
    for c in comparisons(folder):
        print(f"{c.group:36} {c.at:>20} {c.composed_ms:9.3f} {c.measured_ms:9.3f} ms {c.error_pct:+6.1f}%")


def main() -> None:
    """Write the profiles, or print the checks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("hw_profiles"))
    parser.add_argument("--check", action="store_true", help="compare with independent measurements")
    arguments = parser.parse_args()
    if arguments.check:
        check(arguments.data / "hardware")
        return
    documents = [
        *(composed_document(recipe, arguments.data / "hardware") for recipe in RECIPES),
        b300_document(arguments.data / "engines" / "vllm_dsv4flash_tp4_b300_cost.csv"),
        *engine_tables(arguments.data / "hardware" / "published_sps_tables.json"),
    ]
    for document in documents:
        path = arguments.out / f"{document['name']}.yaml"
        write_text(path, profile_text(document))
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
