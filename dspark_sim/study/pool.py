"""The drafters of a study: from traces, or evaluated on texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from dspark_sim.errors import InputError
from dspark_sim.study.drafters import Pool
from dspark_sim.study.subjects import NEEDS, Subject
from dspark_sim.study.tally import Tally, joined, tally_of_trace
from dspark_sim.workload.traces import Trace

Bar = Callable[[int, str], AbstractContextManager[Callable[[int], None]]]


def trace_pool(traces: Sequence[Trace]) -> Pool:
    """Every drafter that all ``traces`` hold under one name, counted over their visited anchors."""
    names = [name for name in traces[0].drafters if all(name in trace.drafters for trace in traces)]
    subjects, tallies = [], {}
    for name in names:
        meta = traces[0].meta["drafters"][name]
        subjects.append(
            Subject(
                name=name,
                kind=meta["kind"],
                gamma=int(meta["gamma"]),
                layers=meta.get("layers"),
                head=meta.get("head", ""),
                anchors=None,
                source=f"traces {', '.join(trace.name for trace in traces)}",
                checkpoint=meta.get("checkpoint", ""),
            )
        )
        tallies[name] = joined([tally_of_trace(trace, name) for trace in traces])
    return Pool(subjects, tallies, "counted over the anchors that full-block replays of the traces visit", {})


def evaluated_pool(
    words: Sequence[str], texts: Sequence[str], *, target: str, per_domain: int, cache: Path, bar: Bar
) -> Pool:
    """The drafters of ``words`` (NAME=FOLDER or FOLDER), in expectation over replays of ``texts``.

    Raises:
        InputError: a drafter does not load, or a name stands twice.
    """
    from dspark_sim.model.runtime import use_threads
    from dspark_sim.study.evaluate import Evaluator

    use_threads(1)
    subjects = subjects_of_words(words)
    evaluator = Evaluator(texts, target, per_domain, cache)
    tallies: dict[str, Tally] = {}
    for subject in subjects:
        with bar(evaluator.texts, subject.name) as advance:
            tallies[subject.name] = evaluator.tally(subject.source, advance)
    basis = f"exact expectation of full-block replays of {evaluator.texts} texts, no draws"
    return Pool(subjects, tallies, basis, {})


def subjects_of_words(words: Sequence[str]) -> list[Subject]:
    """Describe drafters given as NAME=FOLDER or FOLDER.

    Raises:
        InputError: a drafter does not load, or a name stands twice.
    """
    from dspark_sim.study.evaluate import subject_of

    subjects: list[Subject] = []
    for word in words:
        name, equals, folder = word.partition("=")
        subject = subject_of(folder if equals else word, name if equals else "")
        if subject.name in {known.name for known in subjects}:
            raise InputError(f"--drafter {word}: the name '{subject.name}' is taken; give NAME=FOLDER")
        subjects.append(subject)
    return subjects


def with_latency(pool: Pool, target: str) -> Pool:
    """Time rounds on this machine, at the draft lengths of the study."""
    from dspark_sim.model.checkpoints import load_drafter
    from dspark_sim.model.loading import load_target
    from dspark_sim.model.runtime import use_threads
    from dspark_sim.study.latency import round_ms, timed_words

    use_threads(1)
    folders = [s.source for s in pool.subjects if s.kind == "dspark" and not s.source.startswith("traces ")]
    loaded = load_target(target)
    shape = load_drafter(folders[0] if folders else "smollm2-dspark-g7", loaded).config
    gammas = sorted({need.gamma for need in NEEDS["length"]})
    return replace(pool, round_ms=round_ms(loaded, shape, gammas), timed=timed_words(loaded))
