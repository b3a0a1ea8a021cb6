"""HTTP calls from one service to another."""
