"""The documentation pages, and the static files of all pages."""
