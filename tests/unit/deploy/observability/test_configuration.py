"""The Prometheus configuration, the alert rules, the dashboard, and their copies for Kubernetes."""

import json
import re
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import yaml

from deploy.cluster.secrets import SETTINGS
from tests.support.deployment.kubernetes import (
    FOLDER,
    NAMES,
    image_environment,
    kustomizations,
    of_kind,
    parse_yaml,
    pods,
    unpatched_resources,
)
from tests.support.deployment.observability import (
    OBSERVABILITY,
    Panel,
    aggregation_labels,
    alerts,
    dashboard,
    panels,
    promtool,
    records,
)
from tests.support.tables import each

DEPLOY = OBSERVABILITY.parent
GUIDE = (DEPLOY / "docs" / "alerts.md").read_text(encoding="utf-8")
ALERTS = alerts()
PANELS = panels()


def test_prometheus_accepts_its_configuration_and_the_rules() -> None:
    assert promtool("check", "config", "--lint=all", "--lint-fatal", OBSERVABILITY / "prometheus.yaml") == ""


def test_prometheus_scrapes_every_service_of_the_compose_file() -> None:
    [job] = yaml.safe_load((OBSERVABILITY / "prometheus.yaml").read_text())["scrape_configs"]
    [dns_config] = job["dns_sd_configs"]
    assert sorted(dns_config["names"]) == sorted(SETTINGS)
    assert set(SETTINGS) <= set(yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"])
    assert image_environment()["MANAGEMENT_LISTEN"].endswith(f":{dns_config['port']}")


@each("alert", ALERTS)
def test_every_alert_has_a_description_and_a_runbook(alert: str) -> None:
    says = ALERTS[alert]["annotations"]
    assert sorted(says) == ["description", "runbook", "summary"]
    assert ALERTS[alert]["labels"]["severity"] in {"critical", "warning"}
    assert f"\n### {alert}\n\n" in GUIDE
    assert says["runbook"] == f"deploy/docs/alerts.md#{alert.lower()}"


def test_the_guide_describes_existing_alerts_only() -> None:
    assert re.findall(r"^### (Pkgrepo\w+)$", GUIDE, re.MULTILINE) == list(ALERTS)


def test_a_service_without_scrape_targets_raises_an_alert() -> None:
    services_of_alert = re.findall(
        r'absent\(up\{job="pkgrepo", service="(\w+)"\}\)', ALERTS["PkgrepoServiceMissing"]["expr"]
    )
    assert sorted(services_of_alert) == sorted(SETTINGS)


def test_every_recorded_series_is_used() -> None:
    expressions = " ".join(
        [rule["expr"] for rule in ALERTS.values()] + [text for panel in PANELS for text in panel.queries]
    )
    assert [name for name in records() if f"{name}{{" not in expressions] == []


@each("panel", PANELS, ids=lambda panel: panel.title)
def test_a_panel_has_a_description_a_unit_and_the_limits_of_its_alert(panel: Panel) -> None:
    assert panel.description.endswith(".")
    assert panel.unit or panel.kind in {"stat", "table"}
    alert_names = re.findall(r"Pkgrepo\w+", panel.description)
    assert set(alert_names) <= set(ALERTS)
    limits = {float(number) for name in alert_names for number in re.findall(r"[<>=] ?([\d.]+)", ALERTS[name]["expr"])}
    assert {limit for limit in panel.limits if panel.unit} <= limits


def test_a_legend_names_the_labels_of_its_query() -> None:
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            label_names = re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", ""))
            recorded = [text for name, text in records().items() if name in target["expr"]]
            assert set(label_names) <= aggregation_labels(" ".join([target["expr"], *recorded])), panel["title"]


def test_every_alert_is_named_in_a_panel() -> None:
    assert {name for panel in PANELS for name in re.findall(r"Pkgrepo\w+", panel.description)} == set(ALERTS)


def test_panels_have_unique_ids_and_positions() -> None:
    every = dashboard()["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    assert [(a["title"], b["title"]) for a, b in combinations(every, 2) if _overlap(a["gridPos"], b["gridPos"])] == []
    assert max(panel["gridPos"]["x"] + panel["gridPos"]["w"] for panel in every) == 24


def _overlap(a: Mapping[str, int], b: Mapping[str, int]) -> bool:
    return all(a[axis] < b[axis] + b[size] and b[axis] < a[axis] + a[size] for axis, size in (("x", "w"), ("y", "h")))


def test_the_dashboard_uses_the_selected_datasource() -> None:
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    variables = {variable["name"]: variable for variable in dashboard()["templating"]["list"]}
    assert list(variables) == ["datasource", "service", "tenant"]
    asking = [*PANELS, *(variable for name, variable in variables.items() if name != "datasource")]
    assert {
        json.dumps(element.source if isinstance(element, Panel) else element["datasource"]) for element in asking
    } == {json.dumps(chosen)}


def test_the_kubernetes_rules_are_a_current_copy() -> None:
    [rule] = parse_yaml((FOLDER / "components" / "observability" / "alerts.yaml").read_text())
    assert rule["kind"] == "PrometheusRule"
    assert rule["spec"] == yaml.safe_load((OBSERVABILITY / "rules.yaml").read_text()), "run `make alerts`"


def test_scraped_kubernetes_pods_have_the_names_of_services() -> None:
    resources = unpatched_resources()
    spec = of_kind("PodMonitor", resources)["pkgrepo"]["spec"]
    [pairs] = [row["pairs"] for row in kustomizations()[FOLDER / "base"]["labels"]]
    assert spec["selector"]["matchLabels"] == pairs
    [endpoint] = spec["podMetricsEndpoints"]
    [policy] = [row["spec"] for name, row in of_kind("NetworkPolicy", resources).items() if name == "from-monitoring"]
    assert policy["ingress"][0]["ports"] == [{"port": endpoint["port"]}]
    assert endpoint["honorLabels"] is True
    for service, name in NAMES.items():
        labels = pods(resources)[name]["metadata"]["labels"]
        assert _relabeled(endpoint["relabelings"], labels) == {"job": "pkgrepo", "service": service}


def _relabeled(rules: list[dict[str, Any]], pod: Mapping[str, str]) -> dict[str, str]:
    """The labels of a pod's metrics after relabelling."""
    of_pod = {f"__meta_kubernetes_pod_label_{re.sub('[./-]', '_', name)}": text for name, text in pod.items()}
    labels: dict[str, str] = {}
    for rule in rules:
        source_value = ";".join({**of_pod, **labels}[name] for name in rule.get("sourceLabels", []))
        if match := re.fullmatch(rule.get("regex", "(.*)"), source_value):
            by = rule.get("replacement", "$1" if "sourceLabels" in rule else "")
            labels[rule["targetLabel"]] = match.expand(re.sub(r"\$\{?(\d)\}?", r"\\\1", by))
    return labels
