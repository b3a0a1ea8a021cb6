"""`python -m upload_service.inspection <suffix>`: reads the file that is standard input, and says what it is.

One line of JSON: what was found; or nothing, and a status that says why (`statuses`).
"""

import sys

import orjson

from upload_service.inspection.confinement import confine
from upload_service.inspection.formats import Damaged, look
from upload_service.inspection.statuses import DAMAGED, OUT_OF_MEMORY


def main() -> int:
    confine()
    try:
        with open(0, "rb", closefd=False) as file:
            found = look(file, sys.argv[1])
    except MemoryError:
        return OUT_OF_MEMORY
    except Damaged:
        return DAMAGED
    sys.stdout.buffer.write(orjson.dumps(found.document()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
