// Decisions: what, why, what else there was, what each would cost; and once more from the record.

const filter = { acting: true };
const replays = new Map();
// An offer is type/zone/market, and some clouds have no zones.
const target = (action) => (action.kind === "launch" ? action.target.split("/").filter(Boolean).join(", ") : action.target);

function option(one) {
  return `${counted(one.gpus, "GPU")} at ${usd(one.usd_per_hour)}/h, ${number(one.job_hours_left, 1)} job-hours left${one.jobs_without_gpus ? `, ${counted(one.jobs_without_gpus, "job")} without GPUs` : ""}`;
}

function weighed(row) {
  const a = row.chosen.usd_of_money_and_waiting, b = row.runner_up.usd_of_money_and_waiting;
  return a === null || a === undefined || b === null || b === undefined ? "" : ` Money and waiting together: ${usd(a)} chosen, ${usd(b)} for the runner-up.`;
}

function headline(row) {
  if (!row.actions.length) return "changed nothing";
  const counts = new Map();
  for (const action of row.actions) counts.set(action.kind, (counts.get(action.kind) ?? 0) + 1);
  return [...counts].map(([kind, count]) => `${kind} ${count > 1 ? `× ${count}` : target(row.actions.find((action) => action.kind === kind))}`).join(", ");
}

async function replayOf(tick) {
  replays.set(tick, "deciding once more…");
  redraw();
  replays.set(tick, await ask(`decisions/${tick}/replay`).then((again) => (again.is_same ? `Decided once more: the same ${counted(again.actions.length, "action")}.` : "Decided once more: NOT the same. That is a bug; please report it."), (error) => error.message));
  redraw();
}

const decisions = {
  title: "Decisions", every: 8000,
  load: () => ask("decisions", { limit: 50, acting: filter.acting }),
  draw(doc) {
    const rows = doc.decisions;
    return [card(["Decisions ", el("small", {}, "newest first")], "",
      el("div", { class: "tools" }, segments("Show", [[true, "those that act"], [false, "all ticks"]], filter.acting, (acting) => { filter.acting = acting; reload(); })),
      rows.length ? rows.map((row) => el("details", { class: "tick", "data-key": `tick${row.tick}` },
        el("summary", {}, el("span", { class: "soft" }, `${clock(row.at, true)} · tick ${row.tick} · `), headline(row), el("p", { class: "why" }, row.actions[0]?.reason ?? `${usd(row.usd_per_hour)}/h, ${counted(row.nodes, "node")}, ${counted(row.jobs, "job")}`)),
        el("ul", {}, row.actions.map((action) => el("li", {}, el("strong", {}, `${action.kind} `), action.kind === "start" || action.kind === "stop" ? el("a", { href: `#job/${encodeURIComponent(action.target)}` }, action.target) : target(action), `: ${action.reason}`,
          action.choice ? el("p", { class: "why" }, `${action.choice.chosen} at ${number(action.choice.cost, 3)} ${action.choice.unit}, not ${action.choice.runner_up} at ${number(action.choice.runner_up_cost, 3)}`) : null))),
        row.held.length ? el("ul", {}, row.held.map((held) => el("li", { class: "warn" }, `held back (${held.code}): ${held.what}`))) : null,
        el("dl", { class: "facts" },
          el("dt", {}, "chosen"), el("dd", {}, option(row.chosen)),
          el("dt", {}, "runner-up"), el("dd", {}, `${row.runner_up.name}: ${option(row.runner_up)}.${weighed(row)}`),
          el("dt", {}, "replay"), el("dd", {}, STATIC ? null : el("button", { type: "button", class: "plain", "data-key": `replay${row.tick}`, onclick: () => replayOf(row.tick) }, "Decide once more"), " ", el("span", { role: "status" }, replays.get(row.tick) ?? ""), el("p", { class: "why" }, code(`boa decisions --record ${row.tick} > decision.json; boa replay decision.json`)))))) :
        empty(filter.acting ? "No tick has done anything yet. Show all ticks to see that they run." : "No tick is done yet."))];
  },
};
