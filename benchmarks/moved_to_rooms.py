# ruff: noqa
# mypy: ignore-errors
"""Merge a branch that was begun before modules moved into rooms: run it after `git merge main`, from the root.

It merges conflicted files again with the moved names on both sides, and rewrites old names in what the merge
brought. New modules of the branch it leaves where they are. It goes when no such branch is left.
"""

import ast, re, subprocess, sys, tempfile
from pathlib import Path

ROOT = Path.cwd()


def rooms(old, new, words):
    return {f"{old}.{w}": f"{new}.{w}" for w in words.split()}


M = {}
B = "boa_daemon."
cli = {
    "common": "output completion daemon_client open planning_options report terminal toml_keys usage_message simulation_options log_lines live_view aws_options cluster_resources own_daemon task_progress packing_progress reconcile daemon_status",
    "plan": "blocks catalog commit demo gate_demo real_demo frontier init plan plan_calendar plan_diff plan_list plan_stream simulate solve whatif whatif_base prices import_prices",
    "run": "run run_phases run_screen dev jobs orders artifacts job_sessions classes bench bench_on",
    "operate": "up down daemon uninstall decisions monitoring doctor local_checks image image_plan gc",
    "develop": "config gate iam systemd",
}
for r, w in cli.items():
    M |= rooms(B + "cli", B + "cli." + r, w)
M |= rooms(B + "cli", B + "lab.verbs", "compare study network trace trace_fit")
daemon = {
    "settings": "applied_settings config daemon_paths data_sources secret_references setting_changes setting_conflicts setting_layers setting_origins settings_reload teams",
    "money": "costs group_money purses site_commitments standing_costs",
    "planner": "class_widths dates machines_and_classes node_view planned_markets planner shared_gpus tick_rules warm_pool",
    "jobs": "job_dependencies job_facts job_view job_visibility job_warnings learner_feed liveness move_preparation progress taken_back",
    "watch": "alerts daemon_health decision_summary grafana history_store job_notifications metrics minute_history purse_alerts safety_nets site_metrics",
    "loop": "adaptive_daemon assembly auxiliary_costs clockwork components fallback_tick gate_endpoint journal last_state lock log_lines loop pruning recovery systemd waiting",
    "service": "backtest finish_forecast installation job_access job_forecasts job_service orders real_run replay service service_base site_service submissions",
}
for r, w in daemon.items():
    M |= rooms(B + "daemon", B + "daemon." + r, w)
if True:
    tick = {
        "facts": "actions claims codec draft limits node_lives offers placeable_nodes ports reasons recent_acts rests retries room_caps state team_money warm_pool",
        "money": "cap_projection caps ledger spending team_caps team_turns",
        "room": "deadline_advice forecasts hung_jobs launches link_order narrowing service_order shortfall",
        "explain": "explain explain_sharing headline runner_up",
        "decide": "controller decision diff gc_pause",
        "stages.jobs": "give_up set_aside",
        "stages.widths": "ask_policy keep_still change_machine afford narrow meet_dates leave_lent",
        "stages.places": "find_changes place call_back",
        "stages.nodes": "rent keep_fleet keep_node_limit check_stock start_early bring_together empty_nodes use_spare release",
        "stages.limits": "keep_spend_ceiling break_loops keep_job_limits end_silent keep_caps keep_until_ready",
        "stages.end": "keep_warm order_links schedule_wake_up",
    }
    for r, w in tick.items():
        M |= rooms(B + "tick" + (".stages" if r.startswith("stages.") else ""), B + "tick." + r, w)
M |= rooms(B + "comparing", B + "tasks", "tasks workers content_hash")
M |= rooms(B + "comparing", B + "planning", "commitment_advice commitment_backtest scenario_runs")
M |= rooms(
    B + "comparing",
    B + "lab.compare",
    "cells comparison_page comparison_plots comparison_summary run_cells study study_file study_page study_worlds timeline tune",
)
M |= rooms(
    B + "network",
    B + "lab.network",
    "admission case compiled fit gpu_placement kernel messages model simulate state watchers",
)
M |= rooms(
    B + "traces",
    B + "lab.traces",
    "acme csv_tables elastic gavel helios importers instants itp philly pollux profiles rigid sacct shockwave sia step_rates goodness_of_fit load_model",
)
M |= rooms(B + "sim", B + "sim.bounds", "boot_bound bound_arrays lower_bound stint_costs stint_paths")
PK = {B + "comparing": B + "lab.compare", B + "network": B + "lab.network"}


def p(m):
    return m.replace(".", "/") + ".py"


PATHS = {}
for m, n in M.items():
    PATHS[p(m)] = p(n)
    t, u = Path("tests/" + p(m)), Path("tests/" + p(n))
    PATHS[t.with_name("test_" + t.name).as_posix()] = u.with_name("test_" + u.name).as_posix()
DOT = re.compile(r"boa_daemon(?:\.[A-Za-z_]\w*)+")
SHORT = {}
for a, b in PATHS.items():
    SHORT[a] = b
    a2, b2 = a.removeprefix("tests/"), b.removeprefix("tests/")
    SHORT[a2] = b2
    SHORT[a2.removeprefix("boa_daemon/")] = b2.removeprefix("boa_daemon/")
PATH = re.compile(
    r"(?<![\w/.-])(?:tests/)?(?:boa_daemon/)?(?:cli|daemon|tick|comparing|network|traces|sim)(?:/\w+)+\.py\b"
)


def froms(text):
    """Rewrite `from PACKAGE import module`."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return text
    lines = text.splitlines(keepends=True)
    todo = []
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and node.level == 0
            and node.module.startswith("boa_daemon")
        ):
            hit = [a for a in node.names if f"{node.module}.{a.name}" in M]
            if hit:
                todo.append((node, hit))
    for node, hit in sorted(todo, key=lambda x: -x[0].lineno):
        ind = " " * node.col_offset
        out = []
        tail = lines[node.end_lineno - 1].encode()[node.end_col_offset :].decode()
        rest = [a for a in node.names if a not in hit]
        w = lambda a: a.name + (f" as {a.asname}" if a.asname else "")
        if rest:
            out.append(f"from {node.module} import " + ", ".join(map(w, rest)))
        for a in hit:
            # Written in the old name: the pass over dotted names would see a new one twice.
            pk = M[f"{node.module}.{a.name}"].rpartition(".")[0]
            out.append(f"from {pk.replace('boa_daemon', 'BOA@DAEMON')} import {w(a)}")
        lines[node.lineno - 1 : node.end_lineno] = [ind + o + tail for o in out]
    return "".join(lines)


def is_module(m):
    return (ROOT / (m.replace(".", "/") + ".py")).is_file() or (
        ROOT / m.replace(".", "/") / "__init__.py"
    ).is_file()


ALIAS = {
    "boa_daemon.daemon.config",
    "boa_daemon.daemon.assembly",
    "boa_daemon.tick.ports",
    "boa_daemon.tick.actions",
}


def dot(m):
    parts = m[0].split(".")
    for k in range(len(parts), 1, -1):
        headname = ".".join(parts[:k])
        if k > 2 and headname not in M and is_module(headname):
            return m[0]
        if headname in M:
            if headname not in ALIAS and is_module(headname):
                if k < len(parts) and is_module(".".join(parts[: k + 1])):
                    return m[0]
                after = m.string[m.end() :]
                g = re.match(r"\s+import\s+\(?\s*(\w+)", after)
                if k == len(parts) and g and is_module(f"{headname}.{g[1]}"):
                    return m[0]
            return ".".join([M[headname], *parts[k:]])
        if headname in PK and k == len(parts):
            return PK[headname]
    return m[0]


def rewrite_text(name, text):
    if name.endswith(".py"):
        text = froms(text)
    text = DOT.sub(dot, text).replace("BOA@DAEMON", "boa_daemon")
    text = PATH.sub(lambda m: SHORT.get(m[0], m[0]), text)
    if name.endswith(".py"):
        r = [".venv/bin/ruff"]
        a = subprocess.run(
            [*r, "check", "-q", "--select", "I", "--fix", "--stdin-filename", name, "-"],
            input=text,
            capture_output=True,
            text=True,
        )
        text = a.stdout or text
        a = subprocess.run(
            [*r, "format", "-q", "--stdin-filename", name, "-"], input=text, capture_output=True, text=True
        )
        if a.returncode == 0:
            text = a.stdout
    return text


def show(spec):
    return subprocess.run(["git", "show", spec], capture_output=True, text=True).stdout


if __name__ == "__main__":
    for name in subprocess.check_output(["git", "diff", "--name-only", "--diff-filter=U"], text=True).split():
        base, ours, theirs = (show(f":{n}:{name}") for n in (1, 2, 3))
        d = Path(tempfile.mkdtemp())
        (d / "b").write_text(rewrite_text(name, base))
        (d / "o").write_text(ours)
        (d / "t").write_text(rewrite_text(name, theirs))
        a = subprocess.run(
            ["git", "merge-file", "-p", str(d / "o"), str(d / "b"), str(d / "t")],
            capture_output=True,
            text=True,
        )
        Path(name).write_text(a.stdout)
        print(name, "conflicts:", a.returncode)
        if a.returncode == 0:
            subprocess.run(["git", "add", name], check=True)
    skip = (
        "examples/plugin",
        "tests/data",
        "docs/images",
        "CHANGELOG",
        "docs/reference/library.md",
        "examples/rent_one.py",
        "requirements",
    )
    for name in subprocess.check_output(["git", "diff", "--name-only", "HEAD"], text=True).split():
        if (
            name.startswith(skip)
            or not Path(name).is_file()
            or name in ("boa_daemon/daemon/config/__init__.py",)
        ):
            continue
        try:
            t = Path(name).read_text()
        except UnicodeDecodeError:
            continue
        if "<<<<<<<" in t:
            continue
        new = rewrite_text(name, t)
        if new != t:
            Path(name).write_text(new)
            print("rewritten", name)
