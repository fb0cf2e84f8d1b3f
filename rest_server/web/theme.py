"""Look of the web page: colours with sufficient contrast in light and dark themes, and one icon."""

from pathlib import Path

ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">'
    '<rect width="16" height="16" rx="3" fill="#0b5394"/>'
    '<path d="M3 12h2V7H3zm4 0h2V4H7zm4 0h2V9h-2z" fill="#fff"/></svg>'
)
PRIMARY = "#0b5394"
STYLE = Path(__file__).with_name("theme.css")
"""Path of the style sheet."""
