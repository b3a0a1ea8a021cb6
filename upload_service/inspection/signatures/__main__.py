"""`python -m upload_service.inspection.signatures [PATH]`: verifies the file on standard input; prints the verdict.

PATH has the trusted certificates. Without a verdict the exit status tells why.
"""

import os
import sys
from pathlib import Path

import cryptography.hazmat.backends.openssl.backend  # noqa: F401  the library imports it at its first use
import orjson

from common.concurrency.confinement import OUT_OF_MEMORY, confine
from upload_service.inspection.formats.msi import load_encodings
from upload_service.inspection.signatures.trust import TrustStore, read_trusted
from upload_service.inspection.signatures.verification import verify_file

MEMORY = 192 << 20  # bytes
CPU_TIME = 15  # seconds, for half a gigabyte


def main() -> int:
    load_encodings()
    trust = TrustStore(read_trusted(Path(sys.argv[1]) if sys.argv[1:] else None))
    confine(MEMORY, CPU_TIME)
    try:
        with open(0, "rb", closefd=False) as file:
            signature = verify_file(file, os.fstat(0).st_size, trust)
    except MemoryError:
        return OUT_OF_MEMORY
    sys.stdout.buffer.write(orjson.dumps(signature.to_document()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
