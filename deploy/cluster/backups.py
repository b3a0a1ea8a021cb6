"""The folder of backups of a deployment in containers."""

import os
from pathlib import Path

from deploy.cluster.secrets import SERVICES_USER

ROOT = 0


def give_backup_folder(path: Path) -> None:
    """Give an empty folder of root to the user of the services; make it if it is missing.

    A container engine makes a missing folder as root. Any other folder stays as it is.
    Raises OSError.
    """
    path.mkdir(parents=True, exist_ok=True)
    if path.stat().st_uid == ROOT and not any(path.iterdir()):
        path.chmod(0o700)
        os.chown(path, SERVICES_USER, SERVICES_USER)
