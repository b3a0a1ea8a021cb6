"""The exit status of an inspection, beside those of `common.concurrency.confinement`."""

DAMAGED = 3
