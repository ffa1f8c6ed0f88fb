"""How `scripts/docs` makes the documentation's site of these pages.

The rule: everything comes from this tree. Nothing is fetched while building, and a warning is an error.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

import rocketstream

project = "rocketstream"
author = copyright = "the rocketstream maintainers"
version = release = rocketstream.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "plain_docstrings", "settings_table", "command_reference"]
exclude_patterns = ["_extensions"]
# `word` in a docstring is code, as it is in Markdown.
default_role = "code"
# Quotes and dashes of prose are often those of code: --data is not –data.
smartquotes = False

# A block without a language is what one types into a terminal.
highlight_language = "none"
myst_enable_extensions = ["attrs_inline", "colon_fence"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
autodoc_preserve_defaults = True
# What the faces of a client use of each other, and our own tests.
autodoc_default_options = {
    "members": True,
    "exclude-members": "core, ready, ready_batch, ready_half, ready_request, submit",
}
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "rocketstream"
html_static_path = ["_static"]
html_css_files = ["rocketstream.css"]
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
