"""The Kubernetes manifests as kustomize renders them. Needs kustomize: `make test-kubernetes`."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from common.settings import load
from deploy.cluster.rights import OtherStores
from deploy.cluster.secrets import ClusterSecrets
from deploy.operator.key_files import KeyFiles
from tests.support.deployment.kubernetes import (
    VERSIONS,
    Resource,
    describe,
    of_kind,
    parse_yaml,
    pods,
    validation_error,
    with_schema,
)
from tests.support.deployment.kustomize import LAST, STORES, components, copy_manifests, copy_with_components
from tests.support.deployment.observability import OBSERVABILITY

SERVICES = ["auth-service", "catalog-service", "client-registry", "gateway", "upload-service"]
SCANNER = ("clamd", "freshclam")
OVERLAYS = ("production", "single-node", "with-components", "with-gateway-api")
# Resources that an operator creates: certificates, and the key of an object storage.
OF_OPERATOR = {
    *("Secret packages-tls", "Secret files-tls", "Secret object-storage", "Secret registry"),
    "ConfigMap trusted-certificates",
}

Render = Callable[[str], list[Resource]]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the manifests with secrets, and more overlays."""
    copy = copy_manifests(tmp_path_factory.mktemp("kubernetes"))
    production = copy / "overlays" / "production"
    copy_with_components(production, "with-components", components(without=["gateway-api", "openshift"]))
    copy_with_components(production, "with-gateway-api", components(without=["ingress", "openshift"]))
    copy_with_components(production, "on-openshift", components(without=["gateway-api"]))
    of_operator = [f"../components/{name}" for name in ("backups-at-hand", *LAST)]
    copy_with_components(copy / "operator", "operator-with-components", of_operator)
    return copy


@pytest.fixture(scope="session")
def render(folder: Path, pytestconfig: pytest.Config) -> Render:
    def rendered(overlay: str) -> list[Resource]:
        command = [pytestconfig.getoption("--kustomize"), "build", str(folder / overlay)]
        return parse_yaml(subprocess.run(command, capture_output=True, check=True, text=True).stdout)

    return rendered


@pytest.fixture(scope="session", params=OVERLAYS)
def resources(request: pytest.FixtureRequest, render: Render) -> list[Resource]:
    return render(f"overlays/{request.param}")


def containers(resources: list[Resource]) -> Iterator[tuple[Resource, Resource]]:
    """Every container, with its pod."""
    for pod in pods(resources).values():
        for container in [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]:
            yield pod, container


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_accepts_every_resource(resources: list[Resource], version: str) -> None:
    assert [error for resource in with_schema(resources) if (error := validation_error(resource, version))] == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("beside", "namespace"), [("stores", "stores"), ("operator", "pkgrepo"), ("operator-with-components", "pkgrepo")]
)
def test_kubernetes_accepts_the_additional_kustomizations(
    render: Render, beside: str, namespace: str, version: str
) -> None:
    rendered = render(beside)
    assert [validation_error(resource, version) for resource in rendered] == [""] * len(rendered)
    assert {resource["metadata"]["namespace"] for resource in rendered} == {namespace}


def test_a_cluster_has_alerts_a_dashboard_and_scrape_targets(render: Render) -> None:
    resources = render("overlays/with-components")
    assert list(of_kind("PodMonitor", resources)) == ["pkgrepo"]
    assert list(of_kind("PrometheusRule", resources)) == ["pkgrepo"]
    dashboard = of_kind("ConfigMap", resources)["pkgrepo-dashboard"]
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert dashboard["data"] == {"pkgrepo.json": (OBSERVABILITY / "dashboard.json").read_text()}


def test_secrets_can_be_applied_separately(render: Render) -> None:
    alone, all_of_it = of_kind("Secret", render("secrets")), of_kind("Secret", render("overlays/production"))
    for field in ("data", "labels"):
        values = [
            {name: secret.get(field) or secret["metadata"][field] for name, secret in secrets.items()}
            for secrets in (alone, all_of_it)
        ]
        assert values[0] == values[1]
    assert not any("namespace" in secret["metadata"] for secret in alone.values())  # `-n` sets it.


def test_every_referenced_resource_exists(resources: list[Resource]) -> None:
    existing = {describe(resource) for resource in resources} | OF_OPERATOR
    named = set()
    for pod, container in containers(resources):
        named.add(f"ServiceAccount {pod['spec']['serviceAccountName']}")
        named |= {f"ConfigMap {row['configMapRef']['name']}" for row in container.get("envFrom", [])}
        for volume in pod["spec"]["volumes"]:
            if "configMap" in volume:
                named.add(f"ConfigMap {volume['configMap']['name']}")
            if "secret" in volume:
                named.add(f"Secret {volume['secret']['secretName']}")
            if "persistentVolumeClaim" in volume:
                named.add(f"PersistentVolumeClaim {volume['persistentVolumeClaim']['claimName']}")
    for pod in pods(resources).values():
        spec = pod["spec"]
        mounts = [
            row for each in [*spec.get("initContainers", []), *spec["containers"]] for row in each["volumeMounts"]
        ]
        assert {row["name"] for row in mounts} == {row["name"] for row in spec["volumes"]}
    for gateway in of_kind("Gateway", resources).values():
        listeners = gateway["spec"]["listeners"]
        named |= {f"Secret {row['name']}" for listener in listeners for row in listener["tls"]["certificateRefs"]}
    for route in of_kind("HTTPRoute", resources).values():
        named |= {f"Gateway {row['name']}" for row in route["spec"]["parentRefs"]}
        named |= {f"Service {row['name']}" for rule in route["spec"]["rules"] for row in rule["backendRefs"]}
    for ingress in of_kind("Ingress", resources).values():
        named |= {f"Secret {row['secretName']}" for row in ingress["spec"]["tls"]}
        for rule in ingress["spec"]["rules"]:
            named |= {f"Service {path['backend']['service']['name']}" for path in rule["http"]["paths"]}
    for account in of_kind("ServiceAccount", resources).values():
        named |= {f"Secret {row['name']}" for row in account.get("imagePullSecrets", [])}
    for scaler in of_kind("HorizontalPodAutoscaler", resources).values():
        named.add(f"Deployment {scaler['spec']['scaleTargetRef']['name']}")
    assert named <= existing
    assert len(named) > 3 * len(SERVICES)


def test_all_resources_are_in_one_restricted_namespace(resources: list[Resource]) -> None:
    assert {resource["metadata"].get("namespace", "pkgrepo") for resource in resources} == {"pkgrepo"}
    labels = of_kind("Namespace", resources)["pkgrepo"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


def test_the_guide_pins_every_image_by_its_digest(folder: Path, render: Render) -> None:
    [text] = re.findall(r"```yaml\n(images:.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    file = folder / "overlays" / "with-components" / "kustomization.yaml"
    before = file.read_text()
    file.write_text(yaml.safe_dump({**yaml.safe_load(before), **yaml.safe_load(text.replace("…", "0" * 64))}))
    images = {container["image"] for _, container in containers(render("overlays/with-components"))}
    file.write_text(before)
    digest = f"@sha256:{'0' * 64}"
    assert images == {f"registry.example.com/pkgrepo{digest}", f"registry.example.com/clamav{digest}"}


def test_a_container_has_no_more_rights_than_it_needs(resources: list[Resource]) -> None:
    for pod, container in containers(resources):
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert (spec["securityContext"]["runAsNonRoot"], spec["securityContext"]["runAsUser"]) == (True, 10001)
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        mounts = {row["mountPath"]: row.get("readOnly", False) for row in container["volumeMounts"]}
        written = {"/tmp", "/backups", "/var/cache/pkgrepo", "/var/lib/pkgrepo/installers"}  # noqa: S108  of the container
        if container["name"] == "freshclam":
            written.add("/var/lib/clamav")
        if pod["metadata"]["labels"]["app.kubernetes.io/name"] == "backup":
            written.remove("/var/lib/pkgrepo/installers")
        assert all(read_only is (path not in written) for path, read_only in mounts.items())
    assert {account["automountServiceAccountToken"] for account in of_kind("ServiceAccount", resources).values()} == {
        False
    }


def test_services_have_probes_and_a_matching_selector(resources: list[Resource]) -> None:
    templates, services = pods(resources), of_kind("Service", resources)
    for name in SCANNER:
        services.pop(name, None)
    replicas = services.pop("upload-replicas")["spec"]  # the addresses of single pods
    assert (replicas["clusterIP"], replicas["selector"], replicas["ports"]) == (
        "None",
        services["upload-service"]["spec"]["selector"],
        services["upload-service"]["spec"]["ports"],
    )
    assert sorted(services) == sorted(of_kind("Deployment", resources)) == SERVICES
    for name, service in services.items():
        picked = [
            pod for pod, template in templates.items() if service["spec"]["selector"].items() <= labels_of(template)
        ]
        assert picked == [name]
        [container] = templates[name]["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports == {"http": 8080, "management": 9090}
        assert [(port["port"], port["targetPort"]) for port in service["spec"]["ports"]] == [(8080, "http")]
        probes = {kind: container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")}
        assert {kind: (probe["path"], probe["port"]) for kind, probe in probes.items()} == {
            "startup": ("/livez", "management"),
            "liveness": ("/livez", "management"),
            "readiness": ("/readyz", "management"),
        }


@pytest.mark.parametrize("name", SCANNER)
def test_a_scanner_has_its_configuration_signatures_and_service(render: Render, name: str) -> None:
    resources = render("overlays/with-components")
    stateful_set = of_kind("StatefulSet", resources)[name]["spec"]
    template = stateful_set["template"]
    volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
    configuration = of_kind("ConfigMap", resources)[volumes["configuration"]["configMap"]["name"]]
    assert sorted(configuration["data"]) == ["clamd.conf", "freshclam.conf"]
    assert volumes["signatures"]["persistentVolumeClaim"]["claimName"] == "signatures"
    service = of_kind("Service", resources)[stateful_set["serviceName"]]["spec"]
    assert service["clusterIP"] == "None"
    assert set(service["selector"].items()) <= labels_of(template)


def test_no_selector_has_a_label_that_an_upgrade_changes(resources: list[Resource]) -> None:
    for kind in ("Deployment", "StatefulSet", "Service"):
        for resource in of_kind(kind, resources).values():
            selector = resource["spec"]["selector"]
            assert list(selector.get("matchLabels", selector)) == ["app.kubernetes.io/name"]


def test_every_pod_uses_the_secret_of_the_registry(render: Render) -> None:
    resources = render("overlays/with-components")
    for pod in pods(resources).values():
        account = of_kind("ServiceAccount", resources)[pod["spec"]["serviceAccountName"]]
        assert account["imagePullSecrets"] == [{"name": "registry"}]


def test_every_container_of_ours_trusts_private_authorities(render: Render) -> None:
    trusting = []
    for pod, container in containers(render("overlays/with-components")):
        if "pkgrepo" in container["image"]:
            environment = {row["name"]: row["value"] for row in container["env"]}
            mounts = {row["mountPath"]: row["name"] for row in container["volumeMounts"]}
            volumes = {row["name"]: row.get("configMap") for row in pod["spec"]["volumes"]}
            assert environment["SSL_CERT_FILE"] == "/run/certificates/authorities.pem"
            assert volumes[mounts["/run/certificates"]] == {"name": "trusted-certificates"}
            trusting.append(container["name"])
    assert sorted(trusting) == ["backup", "first-tenant", *["service"] * len(SERVICES)]


def test_openshift_chooses_the_user_of_every_pod(render: Render) -> None:
    for pod in pods(render("overlays/on-openshift")).values():
        assert pod["spec"]["securityContext"].keys() <= {"runAsNonRoot", "seccompProfile", "fsGroupChangePolicy"}
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True


def labels_of(resource: Resource) -> set[tuple[str, str]]:
    return set(resource["metadata"].get("labels", {}).items())


def test_replicas_of_a_service_run_on_different_nodes(render: Render) -> None:
    resources = render("overlays/production")
    for name in SERVICES:
        pod = pods(resources)[name]
        constraints = pod["spec"]["topologySpreadConstraints"]
        topologies = {constraint["topologyKey"] for constraint in constraints}
        assert topologies == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}
        for constraint in constraints:
            assert set(constraint["labelSelector"]["matchLabels"].items()) <= labels_of(pod)
            assert "app.kubernetes.io/name" in constraint["matchLabelKeys"]


def test_several_nodes_share_the_folder_of_installers(render: Render) -> None:
    claims = {
        overlay: of_kind("PersistentVolumeClaim", render(f"overlays/{overlay}"))["installers"]["spec"]["accessModes"]
        for overlay in OVERLAYS
    }
    assert claims == {
        "production": ["ReadWriteMany"],
        "single-node": ["ReadWriteOnce"],
        "with-components": ["ReadWriteMany"],
        "with-gateway-api": ["ReadWriteMany"],
    }


def test_a_single_node_uses_its_own_ingress(render: Render) -> None:
    [rule] = of_kind("NetworkPolicy", render("overlays/single-node"))["from-ingress"]["spec"]["ingress"]
    [peer] = rule["from"]
    assert peer["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "kube-system"}


def plain_names(resources: list[Resource]) -> set[str]:
    """The kinds and names, without kustomize's hashes of their content."""
    return {re.sub(r"(settings|-urls)-[a-z0-9]{10}$", r"\1", describe(resource)) for resource in resources}


def test_the_overlay_outside_of_the_tree_that_the_guide_shows_is_complete(folder: Path, render: Render) -> None:
    [text] = re.findall(r"```yaml\n(apiVersion: kustomize.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    own = folder / "own"
    (own / "pkgrepo" / "deploy").mkdir(parents=True)
    (own / "pkgrepo" / "deploy" / "kubernetes").symlink_to(folder)
    (own / "kustomization.yaml").write_text(text)
    resources, production = render("own"), render("overlays/production")
    backup = {"CronJob backup", "ServiceAccount backup", "PersistentVolumeClaim backups"}
    assert plain_names(resources) - backup == plain_names(production)
    [command] = pods(resources)["first-tenant"]["spec"]["containers"]
    assert command["command"][3] == "acme"
    assert "example.com" not in json.dumps(list(of_kind("Ingress", resources).values()))


def test_new_keys_reach_running_pods_and_new_addresses_replace_pods(folder: Path, render: Render) -> None:
    before = pods(render("overlays/production"))
    KeyFiles(folder / "secrets" / "keys").prepare()
    rotated = render("overlays/production")
    assert pods(rotated) == before

    moved = load(OtherStores, **{**STORES, "rabbitmq_url": "amqp://elsewhere"})
    ClusterSecrets(folder / "secrets", moved).generate()
    after = pods(render("overlays/production"))
    assert {name for name in before if after[name] != before[name]} == {"catalog-service", "gateway", "upload-service"}
