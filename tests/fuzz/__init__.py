"""Fuzzing of what reads the bytes of strangers: one target for each reader, and a corpus of inputs for each target.

`python -m tests.fuzz 60` lets atheris look for new inputs, 60 seconds per target; `test_corpus.py` replays those kept.
"""
