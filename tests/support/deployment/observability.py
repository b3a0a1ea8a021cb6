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
# What Grafana puts in place of its variables: everything, and four times the pause between two looks.
VARIABLES = {"$service": ".*", "$tenant": ".*", "$__rate_interval": "1m"}


@dataclass(frozen=True)
class Panel:
    """A panel of the dashboard; `limits` is where its colours change."""

    title: str
    description: str
    kind: str
    unit: str
    source: dict[str, str]
    queries: tuple[str, ...]
    limits: tuple[float, ...]


def find_program(name: str) -> str:
    """The path of `prometheus` or `promtool`; the test fails without it."""
    found = shutil.which(name)
    if found is None:
        pytest.fail(f"For the tests of alerts and dashboard: `apt-get install prometheus`, for its {name}.", False)
    return found


def promtool(*words: str | Path) -> str:
    """The output of a failed check; "" if it succeeds."""
    said = subprocess.run([find_program("promtool"), *words], capture_output=True, check=False, text=True)
    return said.stdout + said.stderr if said.returncode else ""


def alerts() -> dict[str, dict[str, Any]]:
    """The alert rules by name."""
    return {rule["alert"]: rule for rule in _rules() if "alert" in rule}


@cache
def records() -> dict[str, str]:
    """The expressions of the recording rules, by name."""
    return {rule["record"]: rule["expr"] for rule in _rules() if "record" in rule}


@cache
def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((OBSERVABILITY / "dashboard.json").read_text())
    return found


def panels() -> list[Panel]:
    """The panels with queries."""
    return [_panel(found) for found in dashboard()["panels"] if found["type"] != "row"]


def aggregation_labels(expression: str) -> set[str]:
    """The labels of the aggregation."""
    return {label for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression) for label in labels.split(", ")}


def _panel(found: dict[str, Any]) -> Panel:
    defaults = found["fieldConfig"]["defaults"]
    steps = defaults.get("thresholds", {"steps": []})["steps"]
    return Panel(
        title=found["title"],
        description=found["description"],
        kind=found["type"],
        unit=defaults.get("unit", ""),
        source=found["datasource"],
        queries=tuple(_without_variables(target["expr"]) for target in found["targets"]),
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
