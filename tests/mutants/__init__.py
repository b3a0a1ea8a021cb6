"""Changes of the product that a test must notice, and the tool that makes them: `python -m tests.mutants`."""
