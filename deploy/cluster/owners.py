"""Owners of the files that a deployment in containers reads."""

import os
from pathlib import Path

ROOT = 0
SERVICES_USER = 10001  # of our image
STORES_USER = 999  # of the images of MongoDB, Redis and RabbitMQ
# The folders of secrets of other owners than SERVICES_USER.
OWNERS = {"mongodb": STORES_USER, "redis": STORES_USER, "rabbitmq": STORES_USER, "grafana": 472}


def prepare_backup_folder(path: Path) -> None:
    """Create the folder of backups; give an empty folder of root to the services' user. Raises OSError.

    A container engine creates a missing folder as root. Any other folder stays as it is.
    """
    path.mkdir(parents=True, exist_ok=True)
    if path.stat().st_uid == ROOT and not any(path.iterdir()):
        path.chmod(0o700)
        os.chown(path, SERVICES_USER, SERVICES_USER)
