"""`python -m upload_service.inspection <suffix>`: inspects the file on standard input, and prints findings as JSON.

Without findings the exit status is `DAMAGED_STATUS` or `OUT_OF_MEMORY`.
"""

import sys

import orjson

from common.concurrency.confinement import OUT_OF_MEMORY, confine
from upload_service.inspection.formats import Damaged, inspect_file
from upload_service.inspection.formats.msi import load_encodings
from upload_service.inspection.model import DAMAGED_STATUS

MEMORY = 192 << 20  # bytes; the container of the service has room for two such processes


def main() -> int:
    load_encodings()
    confine(MEMORY)
    try:
        with open(0, "rb", closefd=False) as file:
            findings = inspect_file(file, sys.argv[1])
    except MemoryError:
        return OUT_OF_MEMORY
    except Damaged:
        return DAMAGED_STATUS
    sys.stdout.buffer.write(orjson.dumps(findings.to_document()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
