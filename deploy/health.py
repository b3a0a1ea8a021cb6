"""`python -m deploy.health`: whether the service of this container answers; a container's health check."""

import os
import sys
from http.client import HTTPConnection, HTTPException

TIMEOUT = 4.0  # seconds


def main() -> int:
    """0 where the service says at `MANAGEMENT_LISTEN`, `host:port`, that it lives, else 1."""
    port = int(os.environ["MANAGEMENT_LISTEN"].rpartition(":")[2])
    connection = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    try:
        connection.request("GET", "/livez")
        return 0 if connection.getresponse().status == 200 else 1
    except (OSError, HTTPException):
        return 1
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main())
