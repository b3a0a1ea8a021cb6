"""The version of this program."""

import os
from functools import cache
from importlib.metadata import version


@cache
def software_version() -> str:
    """The release, and the commit of the image's build if it is known, as in `1.0.0+4f2a91c07d3b`."""
    commit = os.environ.get("PKGREPO_COMMIT")  # of the image; see deploy/Dockerfile
    return version("pkgrepo") + (f"+{commit}" if commit else "")
