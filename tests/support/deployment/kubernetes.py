"""Reads the Kubernetes manifests, and validates them with the schemas of Kubernetes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml

from deploy.cluster.secrets import SETTINGS

Resource = dict[str, Any]
FOLDER = Path(__file__).parents[3] / "deploy" / "kubernetes"
OVERLAYS = ("production", "single-node")
NAMES = {service: service.replace("_", "-") for service in SETTINGS}  # names of a service's resources
CUSTOM = ("monitoring.coreos.com/", "gateway.networking.k8s.io/")
VERSIONS = ("1.31", "1.37")  # of Kubernetes: the oldest and the newest that are promised
# Read once: they are megabytes.
kubernetes_validate.utils.schema_contents = cache(kubernetes_validate.utils.schema_contents)


@cache
def kustomizations() -> Mapping[Path, Resource]:
    """The `kustomization.yaml` of each folder."""
    return {file.parent: parse_yaml(file.read_text())[0] for file in sorted(FOLDER.rglob("kustomization.yaml"))}


@cache
def unpatched_resources() -> Sequence[Resource]:
    """Every resource without patches."""
    files = [
        folder / name
        for folder, kustomization in kustomizations().items()
        for name in kustomization.get("resources", [])
    ]
    return [resource for file in files if file.is_file() for resource in parse_yaml(file.read_text())]


def patches() -> Iterator[Resource]:
    """Every patch that has the form of a resource; the others are lists of operations."""
    for folder, kustomization in kustomizations().items():
        for patch in kustomization.get("patches", []):
            documents = parse_yaml((folder / patch["path"]).read_text()) if "path" in patch else []
            yield from (document for document in documents if isinstance(document, dict))


def parse_yaml(text: str) -> list[Resource]:
    return list(yaml.load_all(text, yaml.CSafeLoader))


def of_kind(kind: str, resources: Iterable[Resource]) -> dict[str, Resource]:
    """The resources of a kind, by their names."""
    return {resource["metadata"]["name"]: resource for resource in resources if resource["kind"] == kind}


def with_schema(resources: Iterable[Resource]) -> list[Resource]:
    """The resources that have a Kubernetes schema; custom resources have none."""
    return [resource for resource in resources if not resource["apiVersion"].startswith(CUSTOM)]


def describe(resource: Resource) -> str:
    return f"{resource['kind']} {resource['metadata']['name']}"


def validation_error(resource: Resource, version: str) -> str:
    """The validation error of this version of Kubernetes; "" for a valid resource."""
    try:
        kubernetes_validate.validate(resource, version, strict=True)
    except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
        return f"{describe(resource)}: {error.message}"
    return ""


def pods(resources: Iterable[Resource]) -> dict[str, Resource]:
    """The pods and pod templates, by the names of their owners."""
    return {
        resource["metadata"]["name"]: resource["spec"].get("jobTemplate", resource)["spec"].get("template", resource)
        for resource in resources
        if resource["kind"] in {"CronJob", "Deployment", "Job", "Pod", "StatefulSet"}
    }


def image_environment() -> dict[str, str]:
    """The environment of the image."""
    last = (FOLDER.parent / "Dockerfile").read_text().split("\nFROM ")[-1]
    words = [word for line in last.splitlines() if line.startswith("ENV ") for word in line.split()[1:]]
    return dict(word.split("=", 1) for word in words)


def settings_of(overlay: str) -> dict[str, str]:
    """The settings that an overlay gives to every pod."""
    lines = (FOLDER / "overlays" / overlay / "settings.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def selects(selector: Resource, labels: Mapping[str, str]) -> bool:
    """Whether a selector of pods selects a pod with these labels."""
    rows = selector.get("matchExpressions", [])
    assert {row["operator"] for row in rows} <= {"In", "NotIn"}
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        (labels.get(row["key"]) in row["values"]) is (row["operator"] == "In") for row in rows
    )


def selected(selector: Resource) -> list[str]:
    """The names that a selector of pods selects."""
    [row] = selector.get("matchExpressions", [{}])
    return row.get("values") or [selector["matchLabels"]["app.kubernetes.io/name"]]
