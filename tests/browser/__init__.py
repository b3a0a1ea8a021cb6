"""The dashboard in a real browser, on the running whole."""
