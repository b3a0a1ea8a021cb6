"""Finished uploads that do not belong to a version yet."""
