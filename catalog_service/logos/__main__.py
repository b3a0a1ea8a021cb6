"""`python -m catalog_service.logos`: decodes the logo that is the standard input.

The standard output is the new PNG. Otherwise the exit status tells the reason: `Refusal`, or `OUT_OF_MEMORY`.
"""

import sys

from catalog_service.logos.decoder import decode_logo
from catalog_service.logos.model import LogoRefused
from common.concurrency.confinement import OUT_OF_MEMORY, confine

MEMORY = 128 << 20  # bytes; two such processes fit beside the service into the memory of its container


def main() -> int:
    confine(MEMORY)
    try:
        logo = decode_logo(sys.stdin.buffer.read())
    except MemoryError:
        return OUT_OF_MEMORY
    except LogoRefused as error:
        return int(error.args[0])
    sys.stdout.buffer.write(logo)
    return 0


if __name__ == "__main__":
    sys.exit(main())
