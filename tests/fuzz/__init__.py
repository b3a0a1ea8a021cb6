"""Fuzzing of the parsers of untrusted bytes: one target for each parser, and a corpus of inputs for each target.

`python -m tests.fuzz 60` searches for new inputs with atheris, 60 seconds per target. `test_corpus.py` replays the
corpus.
"""
