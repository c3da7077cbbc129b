// Decisions: what, why, what else there was, what each would cost; and once more from the record.

const filter = { acting: true, text: "" };
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

// Ticks in a row that did one thing for one reason are one line: sixty releases of idle nodes need no sixty lines.
const sameness = (row) => row.actions.length && !row.held.length ? [...new Set(row.actions.map((action) => `${action.kind} ${action.reason.replace(/[\d.,]+/g, "#").replaceAll(action.target, "")}`))].sort().join("|") : "";

function folded(rows) {
  const groups = [];
  for (const row of rows) {
    const same = sameness(row), last = groups.at(-1);
    if (same && last?.same === same && dayOf(last.rows[0]) === dayOf(row)) last.rows.push(row);
    else groups.push({ same, rows: [row] });
  }
  return groups;
}

// Orders of people stand among the ticks by their instants, back to the oldest tick that is listed.
function withOrders(groups, orders_, decisions_) {
  const oldest = decisions_.length >= 100 ? decisions_.at(-1).at : -Infinity;
  const all = [...groups, ...orders_.filter((one) => one.at >= oldest).map((one) => ({ order: one }))];
  return all.sort((a, b) => (b.order ?? b.rows[0]).at - (a.order ?? a.rows[0]).at);
}

const dayOf = (row) => new Date(row.at * 1000).toLocaleDateString("en-GB", { weekday: "long", day: "numeric", month: "long" });

function tickDetails(row) {
  return el("details", { class: "tick", "data-key": `tick${row.tick}` },
    el("summary", {}, el("span", { class: "soft" }, `${clock(row.at)} · tick ${row.tick} · `), headline(row), el("p", { class: "why" }, row.actions[0]?.reason ?? `${usd(row.usd_per_hour)}/h, ${counted(row.nodes, "node")}, ${counted(row.jobs, "job")}`)),
    el("ul", {}, row.actions.map((action) => el("li", {}, el("strong", {}, `${action.kind} `), action.kind === "start" || action.kind === "stop" ? el("a", { href: `#job/${encodeURIComponent(action.target)}` }, action.target) : target(action), `: ${action.reason}`,
      action.choice ? el("p", { class: "why" }, `${action.choice.chosen} at ${number(action.choice.cost, 3)} ${action.choice.unit}, not ${action.choice.runner_up} at ${number(action.choice.runner_up_cost, 3)}`) : null))),
    row.held.length ? el("ul", {}, row.held.map((held) => el("li", { class: "warn" }, `held back (${held.code}): ${held.what}`))) : null,
    el("dl", { class: "facts" },
      el("dt", {}, "chosen"), el("dd", {}, option(row.chosen)),
      el("dt", {}, "runner-up"), el("dd", {}, `${row.runner_up.name}: ${option(row.runner_up)}.${weighed(row)}`),
      el("dt", {}, "replay"), el("dd", {}, STATIC ? null : el("button", { type: "button", class: "plain", "data-key": `replay${row.tick}`, onclick: () => replayOf(row.tick) }, "Decide once more"), " ", el("span", { role: "status" }, replays.get(row.tick) ?? ""), el("p", { class: "why" }, code(`boa decisions --record ${row.tick} > decision.json; boa replay decision.json`)))));
}

const heldOrDone = (row) => [...row.actions.map((action) => `${action.kind} ${action.target} ${action.reason}`), ...row.held.map((held) => `held ${held.code} ${held.what}`)].join(" ").toLowerCase();

const decisions = {
  title: "Decisions", every: 8000,
  load: () => ask("decisions", { limit: 100, acting: filter.acting }),
  draw(doc) {
    const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = doc.decisions.filter((row) => words.every((word) => heldOrDone(row).includes(word)));
    const drawn = [];
    let day = "";
    const said = (doc.orders ?? []).filter((one) => words.every((word) => `order ${one.user} ${one.what} ${one.target} ${one.said}`.toLowerCase().includes(word)));
    for (const group of withOrders(folded(rows), said, doc.decisions)) {
      if (group.order) {
        if (dayOf(group.order) !== day) drawn.push(el("h3", { class: "day" }, (day = dayOf(group.order))));
        drawn.push(el("p", { class: "tick order" }, el("span", { class: "soft" }, `${clock(group.order.at)} · ordered by ${group.order.user} · `), group.order.said));
        continue;
      }
      if (dayOf(group.rows[0]) !== day) drawn.push(el("h3", { class: "day" }, (day = dayOf(group.rows[0]))));
      if (group.rows.length < 3) drawn.push(...group.rows.map(tickDetails));
      else drawn.push(el("details", { class: "tick", "data-key": `from${group.rows.at(-1).tick}` },
        el("summary", {}, el("span", { class: "soft" }, `${clock(group.rows.at(-1).at)} to ${clock(group.rows[0].at)} · ${counted(group.rows.length, "tick")} · `), `${[...new Set(group.rows.flatMap((row) => row.actions.map((action) => action.kind)))].join(", ")}, ${counted(group.rows.reduce((sum, row) => sum + row.actions.length, 0), "time")}`, el("p", { class: "why" }, group.rows[0].actions[0].reason)),
        group.rows.map(tickDetails)));
    }
    return [el("h1", { class: "quiet" }, "Decisions"), card(["Decisions ", el("small", {}, `newest first${words.length ? `, ${number(rows.length)} of ${number(doc.decisions.length)}` : ""}`)], "",
      el("div", { class: "tools" }, el("input", { type: "search", placeholder: "job, node, reason or kind: launch, stop, …", "aria-label": "Search decisions", value: filter.text, "data-key": "search", oninput: (event) => { filter.text = event.target.value; redraw(); } }),
        segments("Show", [[true, "those that act"], [false, "all ticks"]], filter.acting, (acting) => { filter.acting = acting; reload(); })),
      drawn.length ? drawn : empty(words.length ? "No decision names that." : filter.acting ? "No tick has done anything yet. Show all ticks to see that they run." : "No tick is done yet."))];
  },
};
