"""Sphinx configuration: Markdown pages (MyST), Furo theme, warnings are errors."""

from __future__ import annotations

from silicast import __version__

project = "Silicast"
author = "The Silicast developers"
project_copyright = "The Silicast developers"
release = __version__
version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
nitpicky = False
autodoc_typehints = "description"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_use_ivar = True
suppress_warnings = ["ref.python"]

html_theme = "furo"
html_title = "Silicast"
html_static_path = ["_static"]
