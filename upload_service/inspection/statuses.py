"""The exit status of an inspection, beside those of `common.confined.confinement`."""

DAMAGED = 3
