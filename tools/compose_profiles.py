"""Rebuild the shipped hardware profiles from the measured tables they rest on.

    python tools/compose_profiles.py DATA [--out hw_profiles]

DATA holds hardware/ (kernel tables) and engines/ (published curves); see docs/hardware.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from dspark_sim.files import write_text
from dspark_sim.hardware.shipped import b300_document, h800_document
from dspark_sim.hardware.writing import profile_text


def main() -> None:
    """Write both profiles."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("hw_profiles"))
    arguments = parser.parse_args()
    documents = [
        h800_document(arguments.data / "hardware"),
        b300_document(arguments.data / "engines" / "vllm_dsv4flash_tp4_b300_cost.csv"),
    ]
    for document in documents:
        path = arguments.out / f"{document['name']}.yaml"
        write_text(path, profile_text(document))
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
