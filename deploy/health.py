"""`python -m deploy.health [readyz]`: the health check of a container, for the service that runs in it."""

import os
import sys
from http.client import HTTPConnection, HTTPException

TIMEOUT = 4.0  # seconds


def main() -> int:
    """0 if the service answers `/livez`, or the probe that is named, at `MANAGEMENT_LISTEN`, `host:port`; else 1."""
    probe = sys.argv[1] if len(sys.argv) > 1 else "livez"
    port = int(os.environ["MANAGEMENT_LISTEN"].rpartition(":")[2])
    connection = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    try:
        connection.request("GET", f"/{probe}")
        return 0 if connection.getresponse().status == 200 else 1
    except (OSError, HTTPException):
        return 1
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main())
