"""Which drafters there are, and which ones a study needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: Anchors that every drafter of the gamma and depth studies is trained on, for itself.
STUDY_ANCHORS = 150_000


@dataclass(frozen=True, slots=True)
class Subject:
    """One drafter of a study.

    Attributes:
        name: label in tables.
        kind: dspark, dflash, mtp.
        gamma: tokens drafted.
        layers: of the backbone; None where a trace does not say.
        head: sequential head.
        anchors: trained on; None where it is not known.
        source: where it comes from: a trace's drafter, or a folder.
        checkpoint: hash of its weights, or empty.
    """

    name: str
    kind: str
    gamma: int
    layers: int | None
    head: str
    anchors: int | None
    source: str
    checkpoint: str = ""


@dataclass(frozen=True, slots=True)
class Need:
    """A drafter that a study asks for. ``layers`` None: any depth will do."""

    kind: str
    gamma: int
    layers: int | None = None

    @property
    def label(self) -> str:
        """The drafter in words."""
        depth = "" if self.layers is None else f", {self.layers} layer{'s' if self.layers > 1 else ''}"
        return f"{self.kind} gamma {self.gamma}{depth}"

    def met_by(self, subject: Subject) -> bool:
        """Whether ``subject`` is such a drafter; the plain Markov head stands for DSpark."""
        depth = self.layers is None or subject.layers in (None, self.layers)
        plain = self.kind != "dspark" or subject.head in ("", "vanilla")
        return (self.kind, self.gamma) == (subject.kind, subject.gamma) and depth and plain


#: A run ends with the step that reaches its number: so many anchors may be on top.
_STEP_ANCHORS = 100

#: study -> drafters that its figure compares.
NEEDS: dict[str, tuple[Need, ...]] = {
    "acceptance": (Need("dspark", 7, 2), Need("dflash", 7, 2), Need("mtp", 7)),
    "gains": (Need("dspark", 7, 2), Need("dflash", 7, 2), Need("mtp", 7)),
    "length": tuple(Need(kind, gamma, 2) for kind in ("dspark", "dflash") for gamma in (3, 7, 11)),
    "depth": (*(Need("dspark", 7, layers) for layers in (1, 2, 3)), Need("dflash", 7, 3)),
}

#: Studies whose drafters must have had the same training.
EQUAL_TRAINING = ("length", "depth")


def choose(
    study: str, subjects: Sequence[Subject], anchors: int = STUDY_ANCHORS
) -> tuple[dict[Need, Subject], list[Need]]:
    """Return the drafter for each need of ``study``, and the needs that nothing meets.

    Studies of equal training take only drafters known to be trained on ``anchors`` anchors (within 5%);
    others, where several meet a need, the one trained longest.
    """
    found: dict[Need, Subject] = {}
    for need in NEEDS[study]:
        meeting = [subject for subject in subjects if need.met_by(subject)]
        if study in EQUAL_TRAINING:
            near = max(0.05 * anchors, _STEP_ANCHORS)
            meeting = [s for s in meeting if s.anchors is not None and abs(s.anchors - anchors) <= near]
        if meeting:
            found[need] = max(meeting, key=lambda s: s.anchors or 0)
    return found, [need for need in NEEDS[study] if need not in found]


def training_note(chosen: Mapping[Need, Subject]) -> str:
    """Say what the compared drafters were trained on."""
    words = [
        f"{subject.name} {f'{subject.anchors:,}' if subject.anchors else 'not said'}"
        for subject in chosen.values()
    ]
    return f"anchors trained on: {', '.join(words)}" if words else ""
