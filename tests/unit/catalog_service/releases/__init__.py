"""Tests of release control."""
