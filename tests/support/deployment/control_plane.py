"""A Kubernetes control plane without nodes, and an installation of the manifests on it.

Pods stay `Pending`. Admission, validation, quotas, controllers and server-side apply are the real ones.
"""

import asyncio
import json
import os
import re
import subprocess
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support.deployment.kubernetes import FOLDER, Resource

SCRIPT = Path(__file__).parents[1] / "kubernetes"
# Go modules with definitions of custom resources, and the files that the components need.
CUSTOM_RESOURCES = {
    "sigs.k8s.io/gateway-api@v1.4.1": [
        "config/crd/standard/gateway.networking.k8s.io_gateways.yaml",
        "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml",
    ],
    "github.com/prometheus-operator/prometheus-operator@v0.85.0": [
        "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
        "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
    ],
}


class KubectlFailed(Exception):
    """A command failed; the text is its error output."""


@dataclass(frozen=True)
class ControlPlane:
    """A running control plane; `kubeconfig` gives every right."""

    kubeconfig: Path
    kubectl: Path

    async def run(self, *words: str) -> tuple[list[str], list[str]]:
        """Run kubectl. Returns the lines of its output and of its errors, which hold warnings. Raises KubectlFailed."""
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig)}
        process = await asyncio.create_subprocess_exec(self.kubectl, *words, env=environment, stdout=PIPE, stderr=PIPE)
        output, errors = [part.decode().splitlines() for part in await process.communicate()]
        if process.returncode:
            raise KubectlFailed("\n".join(errors))
        return output, errors

    async def resources(self, kind: str, namespace: str) -> list[Resource]:
        output, _ = await self.run("get", kind, "--namespace", namespace, "--output", "json")
        return list(json.loads("\n".join(output))["items"])

    @asynccontextmanager
    async def nodes(self, names: Sequence[str], volume: Resource) -> AsyncIterator[None]:
        """Add nodes with room, on which no pod starts, and a volume for the claim of this reference."""
        room = {"cpu": "8", "memory": "16Gi", "ephemeral-storage": "100Gi", "pods": "50"}
        status = {"allocatable": room, "capacity": room, "conditions": [{"type": "Ready", "status": "True"}]}
        spec: Resource = {
            "capacity": {"storage": "2Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/signatures"},
        }
        manifests: list[Resource] = [
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}}
            for name in names
        ]
        claimed: Resource = {"metadata": {"name": names[0]}, "spec": {**spec, "claimRef": volume}}
        manifests.append({"apiVersion": "v1", "kind": "PersistentVolume", **claimed})
        file = self.kubeconfig.with_name(f"{names[0]}.yaml")
        file.write_text(yaml.safe_dump_all(manifests))
        try:
            await self.run("apply", "--server-side", "--filename", str(file))
            for name in names:
                words = ("patch", "node", name, "--subresource=status", "--type=merge", "--patch")
                await self.run(*words, json.dumps({"status": status}))
            yield
        finally:
            await self.run("delete", "--wait=false", "--filename", str(file))


@contextmanager
def run_control_plane(folder: Path) -> Iterator[ControlPlane]:
    """Run one during the block, with the custom resources of the components. Compiles missing programs first."""
    subprocess.run([SCRIPT, "build"], check=True)
    try:
        subprocess.run([SCRIPT, "up", folder], check=True)
        programs = subprocess.run([SCRIPT, "programs"], check=True, capture_output=True, text=True).stdout.strip()
        control_plane = ControlPlane(folder / "kubeconfig", Path(programs) / "kubectl")
        asyncio.run(_define_custom_resources(control_plane))
        yield control_plane
    finally:
        subprocess.run([SCRIPT, "down", folder], check=True)


async def _define_custom_resources(control_plane: ControlPlane) -> None:
    for module, files in CUSTOM_RESOURCES.items():
        command = ["go", "mod", "download", "-json", module]
        output = subprocess.run(command, check=True, capture_output=True).stdout  # noqa: ASYNC221  nothing else runs yet
        folder = Path(json.loads(output)["Dir"])
        paths = [word for file in files for word in ("--filename", str(folder / file))]
        await control_plane.run("apply", "--server-side", *paths)
        await control_plane.run("wait", "--for=condition=Established", "--timeout=60s", *paths)


@dataclass(frozen=True)
class Installation:
    """An overlay in a namespace of its own."""

    control_plane: ControlPlane
    overlay: Path
    namespace: str

    async def kubectl(self, *words: str) -> tuple[list[str], list[str]]:
        return await self.control_plane.run("--namespace", self.namespace, *words)

    async def apply(self, *options: str) -> tuple[list[str], list[str]]:
        """Apply the overlay; the lines of the output and of the errors. Raises KubectlFailed."""
        return await self.kubectl("apply", "--server-side", "--validate=strict", *options, "-k", str(self.overlay))

    async def follow_guide(self, heading: str) -> None:
        """Run the commands of a section of the guide that change objects; no pod ever gets ready here."""
        for command in documented_commands(heading):
            words = [str(self.overlay) if word.startswith("deploy/kubernetes/overlays/") else word for word in command]
            words = [self.namespace if word == "pkgrepo" else word for word in words]
            if {"apply", "delete", "undo"} & set(words):
                await self.control_plane.run(*words)

    async def resources(self, kind: str) -> list[Resource]:
        return await self.control_plane.resources(kind, self.namespace)

    async def images(self) -> set[str]:
        """The images of the Deployments."""
        deployments = await self.resources("deployments")
        return {deployment["spec"]["template"]["spec"]["containers"][0]["image"] for deployment in deployments}

    def edit(self, **fields: Any) -> None:
        """Replace fields of the overlay's `kustomization.yaml`."""
        file = self.overlay / "kustomization.yaml"
        file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **fields}))

    def set_image(self, tag: str) -> None:
        self.edit(images=[{"name": "pkgrepo", "newName": "registry.example.com/pkgrepo", "newTag": tag}])


def documented_commands(heading: str) -> Sequence[list[str]]:
    """The words of the kubectl commands in the first block of a section of the guide, without `kubectl`."""
    section = (FOLDER / "README.md").read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    [block, *_] = re.findall(r"```console\n(.*?)```", section, re.DOTALL)
    lines = [line.removeprefix("$ kubectl ") for line in block.splitlines() if line.startswith("$ kubectl ")]
    return [line.partition("  #")[0].split() for line in lines]
