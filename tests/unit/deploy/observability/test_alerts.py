"""promtool tests of every alert, the Prometheus configuration, the dashboard, and their copies for Kubernetes."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
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
    alerts,
    dashboard,
    panels,
    promtool,
    records,
)
from tests.support.tables import each

UP = {f'up{{job="pkgrepo", service="{service}", instance="{service}-1"}}': "1+0x200" for service in SETTINGS}


@dataclass(frozen=True)
class Case:
    """Metrics each `step` minutes, and the alerts that fire at `minute`: exactly `fires`."""

    alert: str
    description: str
    samples: dict[str, str]
    minute: int
    fires: set[str]
    up: tuple[str, ...] = tuple(UP)
    step: int = 1

    def document(self) -> dict[str, object]:
        series = {**{name: UP[name] for name in self.up}, **self.samples}
        return {
            "interval": f"{self.step}m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [
                {
                    "expr": f'group by (alertname) (ALERTS{{alertstate="firing"}})  # {self.alert}: {self.description}',
                    "eval_time": f"{self.minute}m",
                    "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(self.fires)],
                }
            ],
        }


def fires(alert: str, description: str, samples: dict[str, str], minute: int, *, also: tuple[str, ...] = ()) -> Case:
    return Case(alert, description, samples, minute, {alert, *also})


def of_days(case: Case) -> Case:
    """The same case with metrics each half hour, which is quick for an alert about days."""
    return replace(case, step=30)


def quiet(alert: str, description: str, samples: dict[str, str], minute: int, *, but: tuple[str, ...] = ()) -> Case:
    return Case(alert, description, samples, minute, set(but))


def steady(number: float) -> str:
    return f"{number}+0x200"


def growing(number: float, start: float = 0) -> str:
    """A metric that changes by a step each minute."""
    return f"{start:.0f}{number:+f}x200"


def ready(*missing: str) -> dict[str, str]:
    """Two replicas of auth_service; the named ones do not reach MongoDB."""
    return {
        f'pkgrepo_ready{{service="auth_service", dependency="{store}", instance="{replica}"}}': steady(
            0 if store == "mongodb" and replica in missing else 1
        )
        for store in ("mongodb", "redis")
        for replica in ("a", "b")
    }


def requests(succeeded: str, failed: str) -> dict[str, str]:
    return {
        f'pkgrepo_requests_total{{service="gateway", method="GET", route="/{{tenant_id}}/test", status="{status}"}}': of
        for status, of in (("200", succeeded), ("500", failed))
    }


def catalogs(within_half_a_second: float) -> dict[str, str]:
    name = (
        'pkgrepo_request_seconds_bucket{service="gateway", method="POST", route="/{tenant_id}/get_packages", le="%s"}'
    )
    return {name % "0.5": growing(within_half_a_second), name % "2.5": growing(100), name % "+Inf": growing(100)}


def disk(free: str) -> dict[str, str]:
    return {"pkgrepo_installers_free_bytes": free, "pkgrepo_installers_size_bytes": steady(100_000)}


def storage(used: int, reserved: int) -> dict[str, str]:
    samples = {"used": used, "reserved": reserved, "quota": 100}
    return {f'pkgrepo_storage_{name}_bytes{{tenant_id="acme"}}': steady(number) for name, number in samples.items()}


def clients(number: int) -> dict[str, str]:
    return {'pkgrepo_clients{tenant_id="acme"}': steady(number), 'pkgrepo_clients_max{tenant_id="acme"}': steady(100)}


def events(**outcomes: str) -> dict[str, str]:
    name = 'pkgrepo_events_handled_total{type="upload.finished", outcome="%s"}'
    return {name % outcome: numbers for outcome, numbers in outcomes.items()}


def consumers(*missing: str) -> dict[str, str]:
    """The missing consumers of each replica of catalog_service."""
    name = 'pkgrepo_event_consumers_missing{service="catalog_service", instance="%s"}'
    return {name % number: numbers for number, numbers in enumerate(missing)}


def files(opened: int) -> dict[str, str]:
    labels = '{job="pkgrepo", service="gateway", instance="gateway-1"}'
    return {f"process_open_fds{labels}": steady(opened), f"process_max_fds{labels}": steady(1000)}


def lag(seconds: str) -> dict[str, str]:
    return {'pkgrepo_event_loop_lag_seconds{service="gateway", instance="gateway-1"}': seconds}


def logins(refused: str, throttled: str) -> dict[str, str]:
    return {
        f'pkgrepo_logins_total{{outcome="{name}"}}': of for name, of in (("refused", refused), ("throttled", throttled))
    }


SECOND = 'up{job="pkgrepo", service="gateway", instance="gateway-2"}'
CASES = [
    Case("PkgrepoServiceMissing", "one is not found", {}, 5, {"PkgrepoServiceMissing"}, up=tuple(UP)[:-1]),
    fires("PkgrepoServiceMissing", "its replicas are down", dict.fromkeys(UP, "0+0x20"), 4),
    quiet("PkgrepoServiceMissing", "it has another", {SECOND: "0+0x20"}, 4),
    fires("PkgrepoReplicaDown", "it does not come back", {SECOND: "1 1 0+0x20"}, 10),
    quiet("PkgrepoReplicaDown", "it comes back", {SECOND: "1 1 0 0 0 1+0x20"}, 10),
    fires("PkgrepoServiceNotReady", "all miss one", ready("a", "b"), 5, also=("PkgrepoDependencyMissing",)),
    quiet("PkgrepoServiceNotReady", "one has all", ready("a"), 5, but=("PkgrepoDependencyMissing",)),
    fires("PkgrepoDependencyMissing", "one misses one", ready("b"), 5),
    quiet("PkgrepoDependencyMissing", "all have all", ready(), 5),
    fires("PkgrepoErrorsFast", "two in a hundred fail", requests(growing(98), growing(2)), 30),
    quiet("PkgrepoErrorsFast", "few are asked", requests(growing(1), "0+0x14 1+0x14 2+0x14 3+0x20"), 60),
    quiet("PkgrepoErrorsFast", "it is over", requests(growing(100), "0+20x10 200+0x200"), 50),
    fires("PkgrepoErrorsSlow", "two in a thousand fail", requests(growing(998), growing(2)), 120),
    quiet("PkgrepoErrorsSlow", "one in two thousand fails", requests(growing(1999), growing(1)), 120),
    fires("PkgrepoCatalogSlow", "two in a hundred take long", catalogs(98), 30),
    quiet("PkgrepoCatalogSlow", "none takes long", catalogs(100), 30),
    fires("PkgrepoEventLoopLag", "it stays", lag(steady(0.7)), 10),
    quiet("PkgrepoEventLoopLag", "it is seldom", lag("0.7 0.7 0 0.7 0.7 0 0.7 0.7 0 0.7 0.7"), 10),
    fires("PkgrepoFilesNearLimit", "nine in ten are open", files(900), 10),
    quiet("PkgrepoFilesNearLimit", "seven in ten are open", files(700), 10),
    fires("PkgrepoInstallersDiskLow", "a twentieth is free", disk(steady(5_000)), 10),
    quiet("PkgrepoInstallersDiskLow", "a fifth is free", disk(steady(20_000)), 10),
    fires("PkgrepoInstallersDiskFilling", "it is full in hours", disk(growing(-100, 40_000)), 120),
    quiet("PkgrepoInstallersDiskFilling", "it is full in days", disk(growing(-5, 40_000)), 120),
    quiet("PkgrepoInstallersDiskFilling", "most of it is free", disk(growing(-100, 90_000)), 120),
    fires("PkgrepoInstallersDamaged", "there is one", {"pkgrepo_damaged_installers": steady(1)}, 1),
    quiet("PkgrepoInstallersDamaged", "there is none", {"pkgrepo_damaged_installers": steady(0)}, 1),
    fires("PkgrepoTransfersPileUp", "they stay", {"pkgrepo_open_transfers": steady(1001)}, 40),
    quiet("PkgrepoTransfersPileUp", "they end", {"pkgrepo_open_transfers": "1001+0x20 10+0x40"}, 40),
    fires("PkgrepoTenantNearQuota", "with what is reserved", storage(80, 10), 10),
    quiet("PkgrepoTenantNearQuota", "not quite", storage(80, 9), 10),
    fires("PkgrepoOutboxLag", "it stays", {"pkgrepo_outbox_lag_seconds": steady(90)}, 5),
    quiet("PkgrepoOutboxLag", "it is short", {"pkgrepo_outbox_lag_seconds": steady(30)}, 5),
    fires("PkgrepoBrokerDown", "one has no connection", consumers("0+0x20", steady(1)), 10),
    quiet("PkgrepoBrokerDown", "both connect again", consumers("1 1 0+0x20", "2 2 2 0+0x20"), 10),
    fires("PkgrepoEventsFail", "one failed", events(failed="0 0 0 1+0x20", handled=growing(50)), 10),
    fires("PkgrepoEventsFail", "one cannot be read", events(unreadable="0 0 0 1+0x20"), 10),
    quiet("PkgrepoEventsFail", "one failed long ago", events(failed="0 1+0x60", handled=growing(50)), 20),
    fires("PkgrepoAuditWaiting", "they stay", {'pkgrepo_audit_waiting{service="gateway"}': steady(3)}, 10),
    quiet("PkgrepoAuditWaiting", "they go", {'pkgrepo_audit_waiting{service="gateway"}': "3 3 0 3 3 0 3 3 0 3 3"}, 10),
    fires("PkgrepoLoginsRefused", "both kinds are many", logins(growing(3), growing(3)), 15),
    quiet("PkgrepoLoginsRefused", "they are few", logins(growing(2), growing(2)), 15),
    fires("PkgrepoClientsNearLimit", "19 of 20", clients(95), 10),
    quiet("PkgrepoClientsNearLimit", "half of them", clients(50), 10),
    of_days(fires("PkgrepoBackupMissing", "none in a day", {"pkgrepo_backup_last_success": steady(0)}, 1500)),
    of_days(quiet("PkgrepoBackupMissing", "a new installation", {"pkgrepo_backup_last_success": steady(0)}, 1410)),
    of_days(fires("PkgrepoBackupOld", "of two nights ago", {"pkgrepo_backup_last_success": steady(60)}, 1860)),
    of_days(quiet("PkgrepoBackupOld", "of last night", {"pkgrepo_backup_last_success": steady(60)}, 1770)),
    fires("PkgrepoScannerDown", "it stays away", {"pkgrepo_scanner_up": steady(0)}, 20),
    quiet("PkgrepoScannerDown", "it is back", {"pkgrepo_scanner_up": "0+0x5 1+0x40"}, 20),
    fires("PkgrepoScanLag", "it stays", {"pkgrepo_scan_lag_seconds": steady(1000)}, 10),
    quiet("PkgrepoScanLag", "it is short", {"pkgrepo_scan_lag_seconds": steady(600)}, 20),
    quiet("PkgrepoScanLag", "a long scan ends", {"pkgrepo_scan_lag_seconds": "0+60x18 0+0x20"}, 18),
    fires("PkgrepoSignaturesOld", "four days", {"pkgrepo_scanner_signatures_age_seconds": steady(345_600)}, 70),
    quiet("PkgrepoSignaturesOld", "two days", {"pkgrepo_scanner_signatures_age_seconds": steady(172_800)}, 70),
    fires("PkgrepoVersionsWait", "a scan", {'pkgrepo_versions_waiting{gate="scan"}': steady(1)}, 130),
    quiet("PkgrepoVersionsWait", "approvals", {'pkgrepo_versions_waiting{gate="approval"}': steady(9)}, 130),
    fires("PkgrepoMalwareFound", "one file", {'pkgrepo_scans_total{state="infected"}': "0 0 0 1+0x20"}, 10),
    quiet("PkgrepoMalwareFound", "clean files", {'pkgrepo_scans_total{state="clean"}': growing(9)}, 10),
]


SAMPLE = list({case.alert: case for case in CASES if case.alert in case.fires}.values())
OTHERS = [case for case in CASES if case not in SAMPLE]


@pytest.mark.parametrize("cases", [SAMPLE, pytest.param(OTHERS, marks=pytest.mark.full)], ids=["sample", "others"])
def test_each_alert_fires_on_its_own_metrics_only(tmp_path: Path, cases: list[Case]) -> None:
    files = []
    for step in sorted({case.step for case in cases}):
        tests = [case.document() for case in cases if case.step == step]
        rules = {"rule_files": [str(OBSERVABILITY / "rules.yaml")], "evaluation_interval": f"{step}m"}
        files.append(tmp_path / f"{step}.yaml")
        files[-1].write_text(yaml.safe_dump({**rules, "tests": tests}))
    assert promtool("test", "rules", *files) == ""


def test_each_alert_has_a_firing_and_a_quiet_case() -> None:
    assert {case.alert for case in CASES if case.alert in case.fires} == set(alerts())
    assert {case.alert for case in CASES if case.alert not in case.fires} == set(alerts())


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


def test_every_alert_is_named_in_a_panel() -> None:
    assert {name for panel in PANELS for name in re.findall(r"Pkgrepo\w+", panel.description)} == set(ALERTS)


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
