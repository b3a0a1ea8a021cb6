"""A copy of the Kubernetes manifests with secrets, and with overlays that have all components."""

import shutil
from collections.abc import Iterable
from pathlib import Path

import yaml

from common.settings import load
from deploy.cluster.rights import OtherStores
from deploy.cluster.secrets import ClusterSecrets
from tests.support.deployment.kubernetes import FOLDER
from tests.support.deployment.observability import OBSERVABILITY

STORES = {"mongo_url": "mongodb://u:p@mongodb.stores/", "redis_url": "redis://:p@r", "rabbitmq_url": "amqp://u:p@q"}
OF_OPERATOR = "backups-at-hand"  # a component of the operator's pod
LAST = ("pull-secret", "trusted-certificates", "openshift")  # They change pods of other components.
ROUTES = ("ingress", "gateway-api")  # an overlay has one of them


def copy_manifests(folder: Path) -> Path:
    """Copy the manifests below `folder`, with new secrets. Returns the folder of the copy."""
    copy = folder / "kubernetes"
    shutil.copytree(FOLDER, copy)
    for beside in (OBSERVABILITY, OBSERVABILITY.parent / "scanner"):
        shutil.copytree(beside, copy.parent / beside.name)
    ClusterSecrets(copy / "secrets", load(OtherStores, **STORES)).generate()
    return copy


def components(*, without: Iterable[str]) -> list[str]:
    """The components of an overlay, as its `kustomization.yaml` names them, in an order that works."""
    left_out = {OF_OPERATOR, *without, *LAST}
    names = [path.name for path in sorted((FOLDER / "components").iterdir()) if path.name not in left_out]
    return [f"../../components/{name}" for name in (*names, *(name for name in LAST if name not in without))]


def copy_with_components(folder: Path, name: str, components: list[str]) -> None:
    """Copy a folder of manifests beside itself, with these components in place of its own."""
    copy = folder.with_name(name)
    shutil.copytree(folder, copy)
    kustomization = yaml.safe_load((copy / "kustomization.yaml").read_text())
    kustomization["components"] = components
    (copy / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
