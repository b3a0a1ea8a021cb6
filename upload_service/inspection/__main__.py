"""`python -m upload_service.inspection <suffix>`: reads the file that is standard input, and says what it is.

One line of JSON: what was found; or nothing, and a status that says why (`statuses`, or `OUT_OF_MEMORY`).
"""

import sys

import orjson

from common.concurrency.confinement import OUT_OF_MEMORY, confine
from upload_service.inspection.exit_status import DAMAGED
from upload_service.inspection.formats.detection import Damaged, inspect_file
from upload_service.inspection.formats.encodings import load_encodings

MEMORY = 192 << 20  # bytes; two such processes fit beside the service into the memory of its container


def main() -> int:
    load_encodings()
    confine(MEMORY)
    try:
        with open(0, "rb", closefd=False) as file:
            found = inspect_file(file, sys.argv[1])
    except MemoryError:
        return OUT_OF_MEMORY
    except Damaged:
        return DAMAGED
    sys.stdout.buffer.write(orjson.dumps(found.to_document()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
