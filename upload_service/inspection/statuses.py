"""The exit status of an inspection, beside those of `common.confined.statuses`."""

DAMAGED = 3
