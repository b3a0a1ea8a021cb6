"""The folder of backups of a deployment in containers."""

import os
from pathlib import Path

from deploy.cluster.secrets import SERVICES_USER

ROOT = 0


def give_backup_folder(path: Path) -> None:
    """Give the folder to the user of the services if it is root's; make it if it is missing.

    A container engine makes a missing folder as root. A folder of any other owner stays as it is.
    Raises OSError.
    """
    path.mkdir(parents=True, exist_ok=True)
    if path.stat().st_uid == ROOT:
        path.chmod(0o700)
        os.chown(path, SERVICES_USER, SERVICES_USER)
