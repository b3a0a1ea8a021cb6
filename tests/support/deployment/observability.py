"""Reads the files for Prometheus and Grafana, and checks them with promtool."""

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

OBSERVABILITY = Path(__file__).parents[3] / "deploy" / "observability"
# Values for Grafana's variables: all services and tenants, and four scrape intervals.
VARIABLES = {"$service": ".*", "$tenant": ".*", "$__rate_interval": "1m"}


@dataclass(frozen=True)
class Panel:
    """A panel of the dashboard. `limits` are the thresholds of its colours."""

    title: str
    description: str
    kind: str
    unit: str
    source: dict[str, str]
    queries: tuple[str, ...]
    limits: tuple[float, ...]


def find_program(name: str, package: str = "prometheus") -> str:
    """The path of a program of a Debian package; the test fails without it."""
    path = shutil.which(name)
    if path is None:
        pytest.fail(f"For the tests: `apt-get install {package}`, for its {name}.", False)
    return path


def promtool(*words: str | Path) -> str:
    """The output of a failed check; "" if it succeeds."""
    result = subprocess.run([find_program("promtool"), *words], capture_output=True, check=False, text=True)
    return result.stdout + result.stderr if result.returncode else ""


def alerts() -> dict[str, dict[str, Any]]:
    """The alert rules by name."""
    return {rule["alert"]: rule for rule in _rules() if "alert" in rule}


@cache
def records() -> dict[str, str]:
    """The expressions of the recording rules, by name."""
    return {rule["record"]: rule["expr"] for rule in _rules() if "record" in rule}


@cache
def dashboard() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((OBSERVABILITY / "dashboard.json").read_text())
    return document


def panels() -> list[Panel]:
    """The panels with queries."""
    return [_panel(panel) for panel in dashboard()["panels"] if panel["type"] != "row"]


def aggregation_labels(expression: str) -> set[str]:
    """The labels of the aggregation."""
    return {label for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression) for label in labels.split(", ")}


def _panel(panel: dict[str, Any]) -> Panel:
    defaults = panel["fieldConfig"]["defaults"]
    steps = defaults.get("thresholds", {"steps": []})["steps"]
    return Panel(
        title=panel["title"],
        description=panel["description"],
        kind=panel["type"],
        unit=defaults.get("unit", ""),
        source=panel["datasource"],
        queries=tuple(_without_variables(target["expr"]) for target in panel["targets"]),
        limits=tuple(step["value"] for step in steps if step["value"] is not None),
    )


def _without_variables(expression: str) -> str:
    for name, text in VARIABLES.items():
        expression = expression.replace(name, text)
    return expression


@cache
def _rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((OBSERVABILITY / "rules.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]
