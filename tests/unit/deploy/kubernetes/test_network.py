"""The network policies and Ingresses of the Kubernetes manifests."""

import re
from collections.abc import Iterable
from ipaddress import ip_address, ip_network
from itertools import product

from common.auth.downloads import download_url
from common.auth.internal_tokens import Caller
from common.auth.signing import Keys
from common.tenants import Tenant
from deploy.cluster.secrets import SETTINGS
from tests.support.deployment.kubernetes import (
    FOLDER,
    NAMES,
    OVERLAYS,
    Resource,
    of_kind,
    parse_yaml,
    pods,
    selected,
    selects,
    settings_of,
    unpatched_resources,
)
from tests.support.tables import each
from upload_service.downloads.routes import routes as downloads
from upload_service.routes import routes
from upload_service.uploads.routes import routes as uploads

RESOURCES = unpatched_resources()
INGRESSES = [
    resource
    for file in (FOLDER / "components" / "ingress").iterdir()
    for resource in parse_yaml(file.read_text())
    if resource["kind"] == "Ingress"
]


def allowed_calls(direction: str, side: str) -> set[tuple[str, str]]:
    """The allowed calls between services, by the policies of one direction: `ingress` or `egress`."""
    return {
        (service, other)
        for policy in of_kind("NetworkPolicy", RESOURCES).values()
        for rule in policy["spec"].get(direction, [])
        if rule.get("ports") == [{"port": "http"}]
        for peer in rule[side]
        if "podSelector" in peer
        for service in selected(policy["spec"]["podSelector"])
        for other in selected(peer["podSelector"])
    }


def test_policies_allow_the_configured_calls_between_services_only() -> None:
    asks = {
        (NAMES[calling], NAMES[called])
        for calling, called in product(SETTINGS, SETTINGS)
        if f"{called}_url" in SETTINGS[calling].model_fields
    }
    assert allowed_calls("egress", "to") == asks
    assert {(calling, called) for called, calling in allowed_calls("ingress", "from")} == asks


@each(
    ("store", "setting", "command"),
    [
        ("to-mongodb", "mongo_url", ["first-tenant", "backup", "operator"]),
        ("to-redis", "redis_url", ["first-tenant", "backup", "operator"]),
        ("to-rabbitmq", "rabbitmq_url", []),
        ("to-object-storage", "s3_url", ["backup", "operator"]),
        ("to-clamd", "scanner_url", []),
        ("to-traces", "otel_exporter_otlp_endpoint", []),
    ],
)
def test_policies_allow_stores_to_configured_services_only(store: str, setting: str, command: list[str]) -> None:
    readers = [NAMES[service] for service in SETTINGS if setting in SETTINGS[service].model_fields]
    policy = of_kind("NetworkPolicy", RESOURCES)[store]
    assert sorted(selected(policy["spec"]["podSelector"])) == sorted([*readers, *command])


@each("overlay", OVERLAYS)
def test_policies_allow_the_configured_collector(overlay: str) -> None:
    text = (FOLDER / "overlays" / overlay / "settings.env").read_text()
    endpoints = re.findall(r"# OTEL_EXPORTER_OTLP_ENDPOINT=http://\w+\.(\w+):(\d+)\n", text)
    [rule] = of_kind("NetworkPolicy", RESOURCES)["to-traces"]["spec"]["egress"]
    namespace = rule["to"][0]["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
    assert endpoints == [(namespace, str(rule["ports"][0]["port"]))]


def test_policies_deny_everything_by_default() -> None:
    deny_policy = of_kind("NetworkPolicy", RESOURCES)["nobody"]
    assert deny_policy["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


PRIVATE = ("10.0.0.7", "100.64.0.7", "127.0.0.1", "169.254.169.254", "172.31.0.7", "192.168.0.7", "fd00::7", "fe80::7")
PUBLIC = ("1.1.1.1", "2606:4700:4700::1111")


def egress_of(name: str) -> list[Resource]:
    """The rules for connections from the pods of this name."""
    labels = pods(RESOURCES)[name]["metadata"]["labels"]
    policies = of_kind("NetworkPolicy", RESOURCES).values()
    return [
        rule
        for policy in policies
        if selects(policy["spec"]["podSelector"], labels)
        for rule in policy["spec"].get("egress", [])
    ]


def allowed(peer: Resource, address: str) -> bool:
    block = peer.get("ipBlock", {"cidr": "0.0.0.0/32"})
    within = [ip_address(address) in ip_network(cidr) for cidr in (block["cidr"], *block.get("except", []))]
    return within[0] and not any(within[1:])


def test_the_pod_that_parses_uploads_may_connect_to_nothing() -> None:
    assert egress_of("clamd") == []
    assert [container["name"] for container in pods(RESOURCES)["clamd"]["spec"]["containers"]] == ["clamd"]


@each("policy", ["to-signatures", "to-identity-providers", "to-object-storage"])
def test_access_to_the_internet_leaves_out_private_networks(policy: str) -> None:
    [rule] = of_kind("NetworkPolicy", RESOURCES)[policy]["spec"]["egress"]
    assert rule["ports"] == [{"port": 443}]
    assert [address for address in PRIVATE if any(allowed(peer, address) for peer in rule["to"])] == []
    assert [address for address in PUBLIC if any(allowed(peer, address) for peer in rule["to"])] == list(PUBLIC)


def test_no_policy_allows_connections_to_every_address() -> None:
    policies = of_kind("NetworkPolicy", RESOURCES)
    rules = {name: policy["spec"].get("egress", []) for name, policy in policies.items()}
    assert [name for name, listed in rules.items() if any(not rule.get("to") for rule in listed)] == []


def paths_of(resources: Iterable[Resource], name: str) -> tuple[str, Resource]:
    """The host of an Ingress with a certificate, and its one path."""
    spec = of_kind("Ingress", resources)[name]["spec"]
    [rule] = spec["rules"]
    assert [rule["host"]] == [host for tls in spec["tls"] for host in tls["hosts"]]
    [path] = rule["http"]["paths"]
    return rule["host"], path


@each(
    ("overlay", "file"),
    [("production", "components/ingress/gateway.yaml"), ("single-node", "overlays/single-node/ingress.yaml")],
)
def test_the_public_address_leads_to_the_gateway(overlay: str, file: str) -> None:
    host, path = paths_of(parse_yaml((FOLDER / file).read_text()), "gateway")
    assert settings_of(overlay)["PUBLIC_URL"] == f"https://{host}"
    assert path["backend"]["service"]["name"] == "gateway"


def test_the_gateway_api_has_the_hosts_and_backends_of_the_ingress() -> None:
    listeners = of_kind("Gateway", RESOURCES)["packages"]["spec"]["listeners"]
    certificates = {row["hostname"]: [secret["name"] for secret in row["tls"]["certificateRefs"]] for row in listeners}
    for name, route in of_kind("HTTPRoute", RESOURCES).items():
        ingress = of_kind("Ingress", INGRESSES)[name]["spec"]
        [host], [rule] = route["spec"]["hostnames"], route["spec"]["rules"]
        [parent] = route["spec"]["parentRefs"]
        assert [row["hostname"] for row in listeners if row["name"] == parent["sectionName"]] == [host]
        assert certificates[host] == [ingress["tls"][0]["secretName"]]
        [path] = ingress["rules"][0]["http"]["paths"]
        assert rule["backendRefs"] == [{"name": path["backend"]["service"]["name"], "port": 8080}]
        assert rule["timeouts"] == {"request": "0s"}


def download_patterns() -> list[str]:
    """The path of the download host, as an Ingress and as the Gateway API have it."""
    [rule] = of_kind("HTTPRoute", RESOURCES)["downloads"]["spec"]["rules"]
    return [paths_of(INGRESSES, "downloads")[1]["path"], rule["matches"][0]["path"]["value"]]


@each("pattern", download_patterns())
def test_the_download_host_serves_downloads_only(pattern: str) -> None:
    host, _ = paths_of(INGRESSES, "downloads")
    direct = settings_of("production")["DOWNLOAD_URL"]
    caller = Caller(Tenant("acme_2"))
    url = download_url(
        caller, Keys("k" * 32), direct=direct, server_filename="0" * 32, file_name="a b.exe", expires=2_000_000_000
    )
    assert url.startswith(f"https://{host}/")
    assert re.fullmatch(pattern, url.removeprefix(f"https://{host}").partition("?")[0])

    samples = {route.path: re.sub(r"\{[^}]+\}", "some", route.path) for route in (*routes, *uploads, *downloads)}
    samples |= {more: more for more in ("/livez", "/readyz", "/metrics", "/some/download/x/y/z", "/some/download/x")}
    open_ones = [template for template, sample in samples.items() if re.search(pattern, sample)]
    assert open_ones == ["/{tenant_id}/download/{server_filename:[^/]+}/{file_name:[^/]+}"]
