"""A profile as YAML text that people can read: numbers in rows, sections in blocks."""

from __future__ import annotations

from typing import Any

import yaml


class _Dumper(yaml.SafeDumper):
    """Safe dumper without anchors: a table that stands twice is written twice."""

    def ignore_aliases(self, data: Any) -> bool:
        """Return True for everything."""
        return True


def profile_text(document: dict[str, Any]) -> str:
    """Return ``document`` as YAML: keys in their order, lists of numbers in flow style."""
    return yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=108, allow_unicode=True
    )
