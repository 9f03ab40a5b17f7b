"""How the site is built: `make docs`. Pages are Markdown; commands and Python names are read off the code."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from dspark_sim import __version__

project = "dspark-sim"
release = version = __version__
copyright = "the authors of dspark-sim; Apache-2.0"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "house"]
exclude_patterns = ["_build", "replay/**"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

smartquotes = False  # --option stays an option
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
autodoc_default_options = {"exclude-members": "__init__, __new__"}

html_theme = "furo"
html_title = f"dspark-sim {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
