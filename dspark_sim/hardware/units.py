"""Whether the tables of a profile can share a unit: seconds typed for milliseconds read as a fast machine."""

from __future__ import annotations

from collections.abc import Iterator

from dspark_sim.hardware.profile import HardwareProfile

#: A drafter costs a fraction of its target; one that costs this many target passes is a slip of units.
_BY_FAR = 10.0


def odd_units(profile: HardwareProfile) -> str:
    """Return one line if another part exceeds the target's own pass by far, as in seconds; else ``""``.

    Least entries are compared: of drafters, which begin as small as the target, with the least of verify; of
    attention and the eager tail, which grow on their own, with the largest.
    """
    least, most = min(profile.verify.ms), max(profile.verify.ms)
    for path, ms, own in _parts(profile, least, most):
        if ms > _BY_FAR * own:
            return f"verify {least:.3g} to {most:.3g} ms, and {path} at least {ms:.3g} ms: are these seconds?"
    return ""


def _parts(profile: HardwareProfile, least: float, most: float) -> Iterator[tuple[str, float, float]]:
    """Yield key, least entry and what it is measured against [ms]."""
    for kind in profile.draft.kinds:
        draft = profile.draft.get(kind)
        assert draft is not None, "a kind of the profile has a cost"
        yield f"draft.{kind}.pass_ms", min(draft.pass_ms), least
    if profile.attention is not None:
        yield "attention.ms", min(map(min, profile.attention.ms)), most
    if profile.eager is not None and profile.eager.ms:
        yield "eager.ms", min(profile.eager.ms), most
