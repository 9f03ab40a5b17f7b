"""Does a drafter trained on blocks of gamma lose acceptance when it drafts fewer tokens?

    python tools/short_blocks.py --texts traces/texts/eval_math.parquet

A block sees itself in both directions, so its first positions could lean on masks that a shorter block
lacks. Teacher-forced at every output position of some texts, in blocks of 1, 2, ... tokens: the mean of
1 - TV(p, q) at each position, over the anchors whose draft was accepted up to there, and at position 1
the change against the whole block, paired by anchor. Needs the extra `model`.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np

from dspark_sim.model.checkpoints import load_drafter
from dspark_sim.model.drafter import Drafter
from dspark_sim.model.loading import load_target
from dspark_sim.model.record import DrafterRecord, Recorder
from dspark_sim.model.recording import choose_texts, open_texts
from dspark_sim.model.target import Target


def shortened(folder: str, target: Target, gamma: int) -> Drafter:
    """Return the drafter, drafting ``gamma`` tokens a block."""
    drafter = load_drafter(folder, target)
    drafter.config = replace(drafter.config, gamma=gamma)
    return drafter


def main() -> None:
    """Record in blocks of every length, and print what is accepted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--texts", required=True)
    parser.add_argument("--drafter", default="traces/drafters/smollm2-dspark-g7")
    parser.add_argument("--domain", default="")
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--lengths", type=int, nargs="+", default=[1, 2, 3, 4, 7])
    args = parser.parse_args()
    info, texts = open_texts(args.texts)
    target = load_target("smollm2-135m-instruct")
    drafters = {f"g{k}": shortened(args.drafter, target, k) for k in args.lengths}
    recorder = Recorder(target, drafters, temperature=info.temperature)
    found: dict[str, list[DrafterRecord]] = {name: [] for name in drafters}
    for text in choose_texts(texts, args.domain, args.requests):
        for name, record in recorder.record(text).items():
            found[name].append(record)
    whole = first_rates(found[f"g{max(args.lengths)}"])
    print(f"{len(whole):,} anchors of {args.requests} texts of {args.texts}")
    for name, records in found.items():
        rate_NG = np.concatenate([r.accept_rate_NG for r in records]).astype(np.float64)
        accepted_N = np.concatenate([r.accepted_N for r in records])
        means = [rate_NG[accepted_N >= j, j].mean() for j in range(rate_NG.shape[1])]
        change = first_rates(records) - whole
        wide = 1.96 * change.std() / np.sqrt(len(change))
        rates = " ".join(f"{mean:.3f}" for mean in means)
        first = f"{change.mean():+.4f} +- {wide:.4f}"
        print(f"{name}: 1 - TV by position {rates}; position 1 against whole {first}")


def first_rates(records: list[DrafterRecord]) -> np.ndarray:
    """Return 1 - TV at position 1 of every anchor but the last of each text."""
    return np.concatenate([r.accept_rate_NG[:-1, 0].astype(np.float64) for r in records])


if __name__ == "__main__":
    main()
