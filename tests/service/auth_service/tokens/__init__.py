"""Tests of API tokens."""
