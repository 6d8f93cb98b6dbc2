"""Settings of Sphinx for these pages."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import fleximq  # noqa: E402

project = "FlexiMQ"
author = "The FlexiMQ developers"
project_copyright = f"2026, {author}"
release = version = fleximq.__version__

html_theme = "alabaster"
html_theme_options = {
    "description": "One message broker, four small wire dialects",
    "fixed_sidebar": True,
    "page_width": "1000px",
}
html_show_sourcelink = False
html_sidebars = {"**": ["about.html", "navigation.html", "searchbox.html"]}

exclude_patterns = ["_build", "newsfragments"]
nitpicky = True
