"""Settings of Sphinx for these pages."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import fleximq  # noqa: E402

project = "FlexiMQ"
author = "The FlexiMQ developers"
project_copyright = f"2026, {author}"
release = version = fleximq.__version__

extensions = ["sphinx.ext.autodoc", "sphinx_copybutton"]

html_theme = "furo"
html_title = f"FlexiMQ {version}"
html_static_path = ["static"]
html_css_files = ["pages.css"]
html_show_sourcelink = False

# A prompt is not part of the command.
copybutton_prompt_text = "$ "

# The pages say what a client and a plug-in can use; every method comes from the docstrings, in the order of the source.
autodoc_default_options = {
    "members": True,
    "inherited-members": "BaseException, int, tuple, dict",
    "member-order": "bysource",
}
autodoc_typehints = "signature"

exclude_patterns = ["_build", "newsfragments"]
nitpicky = True
# Annotations and docstrings name classes of Python, Twisted and of FlexiMQ's inside, which have no page here.
nitpick_ignore_regex = [("py:.*", ".*")]
