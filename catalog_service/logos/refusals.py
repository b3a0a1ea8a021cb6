"""Reasons to refuse a logo."""

from enum import IntEnum


class Refusal(IntEnum):
    """The exit statuses of the decoding process."""

    NOT_AN_IMAGE = 10
    TOO_MANY_PIXELS = 11
    TOO_MANY_SCANS = 12


class LogoRefused(Exception):
    """A logo must not or cannot be decoded."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal)
        self.refusal = refusal
