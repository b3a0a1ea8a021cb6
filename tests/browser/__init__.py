"""Tests of the dashboard in a real browser with all services."""
