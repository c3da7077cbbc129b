"""A Grafana dashboard and Prometheus alert rules for the daemon's metrics.

A test parses every expression and checks that each name is a registered metric.
"""

from __future__ import annotations

from typing import Any

_PANELS: tuple[tuple[str, str, str, tuple[tuple[str, str], ...]], ...] = (
    (
        "Burn against the budget",
        "timeseries",
        "currencyUSD",
        (("boa_price_dollars_per_hour", "burn"), ("boa_budget_dollars_per_hour", "budget")),
    ),
    (
        "Spent, forecast and cap",
        "bargauge",
        "currencyUSD",
        (
            ("boa_spent_dollars", "spent, {{window}}"),
            ("boa_forecast_dollars", "forecast, {{window}}"),
            ("boa_cap_dollars", "cap, {{window}}"),
        ),
    ),
    (
        "What the money is for, dollars per hour",
        "timeseries",
        "currencyUSD",
        (("3600 * rate(boa_state_spend_dollars_total[10m])", "{{state}}"),),
    ),
    (
        "Spend of a day by class",
        "bargauge",
        "currencyUSD",
        (("sum by (class) (increase(boa_class_spend_dollars_total[1d]))", "{{class}}"),),
    ),
    (
        "Spend of a day by user",
        "bargauge",
        "currencyUSD",
        (("topk(12, sum by (user) (increase(boa_user_spend_dollars_total[1d])))", "{{user}}"),),
    ),
    (
        "Caps of teams and users",
        "bargauge",
        "currencyUSD",
        (
            ("boa_purse_spent_dollars", "spent, {{kind}} {{name}} {{window}}"),
            ("boa_purse_reserved_dollars", "reserved, {{kind}} {{name}} {{window}}"),
            ("boa_purse_cap_dollars", "cap, {{kind}} {{name}} {{window}}"),
        ),
    ),
    ("GPUs", "timeseries", "short", (("boa_gpus", "{{state}}"),)),
    (
        "Nodes by type, zone and market",
        "timeseries",
        "short",
        (("boa_fleet_nodes", "{{instance_type}} {{zone}} {{market}}"),),
    ),
    ("Jobs", "timeseries", "short", (("boa_jobs", "{{state}}"),)),
    ("Why jobs wait", "timeseries", "short", (("boa_jobs_waiting", "{{reason}}"),)),
    (
        "Waiting, half and 95 % of jobs",
        "timeseries",
        "s",
        (
            ("histogram_quantile(0.5, sum by (le) (rate(boa_job_wait_seconds_bucket[1h])))", "half"),
            ("histogram_quantile(0.95, sum by (le) (rate(boa_job_wait_seconds_bucket[1h])))", "95 %"),
        ),
    ),
    (
        "From arrival to end, mean by class",
        "timeseries",
        "s",
        (
            (
                "sum by (class) (rate(boa_job_completion_seconds_sum[6h])) "
                "/ sum by (class) (rate(boa_job_completion_seconds_count[6h]))",
                "{{class}}",
            ),
        ),
    ),
    (
        "Boots, 95 %",
        "timeseries",
        "s",
        (
            (
                "histogram_quantile(0.95, "
                "sum by (le, instance_type) (rate(boa_node_boot_seconds_bucket[6h])))",
                "{{instance_type}}",
            ),
        ),
    ),
    (
        "What went wrong, per hour",
        "timeseries",
        "short",
        (
            ("sum(increase(boa_interruptions_total[1h]))", "interruptions"),
            ("sum by (kind) (increase(boa_refusals_total[1h]))", "refused: {{kind}}"),
            ("increase(boa_job_restarts_total[1h])", "restarts"),
            ("increase(boa_lost_gpu_hours_total[1h])", "GPU-hours lost"),
        ),
    ),
    (
        "A tick, 95 %",
        "timeseries",
        "s",
        (("histogram_quantile(0.95, sum by (le) (rate(boa_tick_duration_seconds_bucket[10m])))", "seconds"),),
    ),
)
_WIDTH, _HEIGHT = 12, 8

_RULES: tuple[tuple[str, str, str, str, str], ...] = (
    ("BoaDown", "absent(boa_last_tick_timestamp_seconds)", "5m", "critical", "no daemon is scraped"),
    (
        "BoaTicksLate",
        "time() - boa_last_tick_timestamp_seconds > 600",
        "1m",
        "critical",
        "no tick completed for ten minutes: running nodes continue to cost money",
    ),
    ("BoaFault", "boa_fault == 1", "2m", "critical", "the daemon cannot do its work: see `boa status`"),
    (
        "BoaSafetyNetLost",
        "boa_safety_net_lost == 1",
        "5m",
        "warning",
        "the safety net {{ $labels.net }} is lost: see the notes of `boa status`",
    ),
    (
        "BoaCapNear",
        "boa_spent_dollars / on (window) boa_cap_dollars > 0.9",
        "0m",
        "warning",
        "90 % of the cap of this {{ $labels.window }} is spent",
    ),
    (
        "BoaCapForecast",
        "boa_forecast_dollars > on (window) boa_cap_dollars",
        "15m",
        "warning",
        "at this rate the cap of this {{ $labels.window }} holds work back",
    ),
    (
        "BoaBudgetBelowLoad",
        "boa_best_effort == 1",
        "30m",
        "warning",
        "the budget is below the load: the queue grows",
    ),
    (
        "BoaIdle",
        'boa_gpus{state="idle"} > 0.3 * on () group_left () sum(boa_gpus)',
        "30m",
        "warning",
        "more than 30 % of the GPUs idle for half an hour",
    ),
    (
        "BoaRefused",
        "sum by (kind) (increase(boa_refusals_total[1h])) > 10",
        "5m",
        "warning",
        "the cloud refuses launches ({{ $labels.kind }}): see `boa explain` of a job that waits",
    ),
    (
        "BoaFactsOld",
        "boa_oldest_fact_age_seconds > 6 * 3600",
        "10m",
        "warning",
        "prices or quotas are older than six hours",
    ),
    (
        "BoaJobsFail",
        'increase(boa_jobs_ended_total{status="failed"}[1h]) > 5',
        "0m",
        "warning",
        "more than five jobs failed within an hour",
    ),
)


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana imports it; Grafana asks for the data source on import."""
    panels = [
        {
            "id": number + 1,
            "title": title,
            "type": kind,
            "datasource": {"type": "prometheus", "uid": "${datasource}"},
            "gridPos": {
                "x": _WIDTH * (number % 2),
                "y": _HEIGHT * (number // 2),
                "w": _WIDTH,
                "h": _HEIGHT,
            },
            "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
            "options": {"legend": {"displayMode": "list", "placement": "bottom"}}
            if kind == "timeseries"
            else {},
            "targets": [
                {"refId": chr(ord("A") + letter), "expr": expression, "legendFormat": legend}
                for letter, (expression, legend) in enumerate(targets)
            ],
        }
        for number, (title, kind, unit, targets) in enumerate(_PANELS)
    ]
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    return {
        "title": "BOA",
        "uid": "boa",
        "tags": ["boa"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-24h", "to": "now"},
        "templating": {"list": [source]},
        "panels": panels,
    }


def rules() -> dict[str, Any]:
    """Return the alert rules as Prometheus reads them."""
    return {
        "groups": [
            {
                "name": "boa",
                "rules": [
                    {
                        "alert": name,
                        "expr": expression,
                        "for": wait,
                        "labels": {"severity": severity},
                        "annotations": {"summary": f"BOA: {sentence}"},
                    }
                    for name, expression, wait, severity, sentence in _RULES
                ],
            }
        ]
    }
