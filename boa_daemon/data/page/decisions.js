// Decisions: what, why, what else there was, what each would cost; and once more from the record.

const filter = { acting: true, text: "", job: "", user: "", node: "", kind: "", by: "time", limit: 100, from: "" };
const ACTION_KINDS = ["launch", "start", "stop", "end", "terminate", "give-up", "held", "hold", "release", "resize", "weigh", "cancel", "cap"];
const known = { users: new Set(), jobs: new Set(), nodes: new Set() };
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

const countsOf = (row) => new Map(row.action_counts ? Object.entries(row.action_counts) : row.actions.map((action) => [action.kind, row.actions.filter((other) => other.kind === action.kind).length]));

function headline(row) {
  if (!row.actions.length) return "changed nothing";
  // Of very many actions some are listed; the counts are of all.
  const counts = countsOf(row);
  return [...counts].map(([kind, count]) => `${kind} ${count > 1 ? `× ${count}` : target(row.actions.find((action) => action.kind === kind))}`).join(", ");
}

async function replayOf(tick) {
  replays.set(tick, "deciding once more…");
  redraw();
  replays.set(tick, await ask(`decisions/${tick}/replay`).then((again) => (again.is_same ? `Decided once more: the same ${counted(again.actions.length, "action")}.` : "Decided once more: NOT the same. That is a bug; please report it."), (error) => error.message));
  redraw();
}

// Ticks that did one thing for one reason are one line: sixty releases of idle nodes need no sixty lines.
const sameness = (row) => row.actions.length && !row.held.length ? [...new Set(row.actions.map((action) => `${action.kind} ${action.reason.replace(/[\d.,]+/g, "#").replaceAll(action.target, "").replace(/\b(jobs?|nodes?|waits?|GPUs?)\b/g, (word) => word.replace(/s$/, ""))}`))].sort().join("|") : "";

// By time only those in a row; by reason all of a day, the most frequent first.
function folded(rows) {
  const groups = [], ofDay = new Map();
  for (const row of rows) {
    const same = sameness(row), at = `${dayOf(row)}|${same || row.tick}`, last = filter.by === "reason" ? ofDay.get(at) : groups.at(-1);
    if (last && (filter.by === "reason" || (same && last.same === same && dayOf(last.rows[0]) === dayOf(row)))) last.rows.push(row);
    else {
      groups.push({ same, rows: [row] });
      ofDay.set(at, groups.at(-1));
    }
  }
  return groups;
}

// Orders of people stand among the ticks by their instants, back to the oldest tick that is listed.
function withOrders(groups, orders_, decisions_) {
  const oldest = decisions_.length >= filter.limit ? decisions_.at(-1).at : -Infinity;
  const all = [...groups, ...orders_.filter((one) => one.at >= oldest).map((one) => ({ order: one }))];
  const first = (one) => (one.order ?? one.rows[0]), midnight = (one) => new Date(first(one).at * 1000).setHours(0, 0, 0, 0);
  if (filter.by === "reason") return all.sort((a, b) => midnight(b) - midnight(a) || (b.rows?.length ?? 0) - (a.rows?.length ?? 0) || first(b).at - first(a).at);
  return all.sort((a, b) => first(b).at - first(a).at);
}

const dayOf = (row) => new Date(row.at * 1000).toLocaleDateString("en-GB", { weekday: "long", day: "numeric", month: "long" });

// The nearest other choice for what a tick did: another width of one of its jobs, and what that would have cost more.
// A tick that started and stopped nothing weighed nothing that concerns it.
function instead(row) {
  const weighed_ = row.actions.map((action) => action.choice).filter((choice) => choice?.unit === "USD" && choice.runner_up_cost !== null);
  if (!weighed_.length) return null;
  const more = (choice) => choice.runner_up_cost - choice.cost, nearest = weighed_.reduce((least, choice) => (more(choice) < more(least) ? choice : least));
  return `${nearest.runner_up} instead: ${more(nearest) < 0 ? "−" : "+"}${usd(Math.abs(more(nearest)))}`;
}
const INSTEAD = "At the right: the nearest other width of one of the tick's jobs, and what it would have cost more (+) or less (−): money for its GPUs, and its time in dollars as the plan values it. Less, where a limit, whole nodes or a recent move decided.";

function line(when, said, why, more = null) {
  return [el("span", { class: "when" }, when), el("span", { class: "did" }, el("strong", {}, said), el("span", { class: "because" }, why)), el("span", { class: "else soft" }, more)];
}

const plural = (count, word) => (count === 1 ? word : `${word} × ${count}`);

const unlisted = (row) => [...countsOf(row).values()].reduce((sum, count) => sum + count, 0) - row.actions.length;

const unnamed = (row) => Object.values(row.held_counts ?? {}).reduce((sum, count) => sum + count, 0) - row.held.length;

function tickDetails(row) {
  return el("details", { class: "tick", "data-key": `tick${row.tick}` },
    el("summary", {}, line(clock(row.at), headline(row), row.actions[0]?.reason ?? row.held[0]?.what ?? `${usd(row.usd_per_hour)}/h, ${counted(row.nodes, "node")}, ${counted(row.jobs, "job")}`, instead(row))),
    el("ul", {}, row.actions.map((action) => el("li", {}, el("strong", {}, `${action.kind} `), ["start", "stop", "end", "give-up"].includes(action.kind) ? [el("a", { href: `#job/${encodeURIComponent(action.target)}` }, action.target), action.user ? ` of ${action.user}` : ""] : target(action), `: ${action.reason}`,
      action.nodes?.length ? el("p", { class: "why" }, "on ", action.nodes.slice(0, 8).flatMap((node, i) => [i ? ", " : "", el("a", { href: `#decisions/node=${encodeURIComponent(node)}` }, node)]), action.nodes.length > 8 ? ` and ${action.nodes.length - 8} more` : "") : null,
      action.choice ? el("p", { class: "why" }, `${action.choice.chosen} at ${priceOf(action.choice.cost, action.choice.unit)}, not ${action.choice.runner_up} at ${priceOf(action.choice.runner_up_cost, action.choice.unit)}`) : null))),
    unlisted(row) > 0 ? el("p", { class: "why" }, `and ${number(unlisted(row))} more: a job, user, node or kind above names them`) : null,
    row.held.length ? el("ul", {}, row.held.map((held) => el("li", { class: "warn" }, `held back: ${held.what}: ${HELD_WORDS[held.code] ?? held.code}`))) : null,
    unnamed(row) > 0 ? el("p", { class: "why" }, `and ${number(unnamed(row))} more held back (${Object.entries(row.held_counts).map(([code_, count]) => `${code_} ${number(count)}`).join(", ")} in all): a job or node above names the tick that began it`) : null,
    el("dl", { class: "facts" },
      el("dt", {}, "tick"), el("dd", {}, `${number(row.tick)}, ${usd(row.usd_per_hour)}/h, ${counted(row.nodes, "node")}, ${counted(row.jobs, "job")}`),
      el("dt", {}, "chosen"), el("dd", {}, option(row.chosen)),
      el("dt", {}, "alternative"), el("dd", {}, `runner-up: ${row.runner_up.name}: ${option(row.runner_up)}.${weighed(row)}`),
      el("dt", {}, "replay"), el("dd", {}, STATIC ? null : el("button", { type: "button", class: "plain", "data-key": `replay${row.tick}`, onclick: () => replayOf(row.tick) }, "Decide once more"), " ", el("span", { role: "status" }, replays.get(row.tick) ?? ""), el("p", { class: "why" }, code(`boa decisions --record ${row.tick} > decision.json; boa replay decision.json`)))));
}

const priceOf = (cost, unit) => (unit === "USD/hour" ? `${usd(cost)}/h` : unit === "USD" ? usd(cost) : `${number(cost, 3)} ${unit}`);

function groupDetails(rows) {
  const times = new Map();
  for (const row of rows) for (const [kind, count] of countsOf(row)) times.set(kind, (times.get(kind) ?? 0) + count);
  return el("details", { class: "tick", "data-key": `from${rows.at(-1).tick}` },
    el("summary", {}, line(`${clock(rows.at(-1).at)}–${clock(rows[0].at)}`, [...times].map(([kind, count]) => plural(count, kind)).join(", "), rows[0].actions[0].reason, counted(rows.length, "tick"))),
    rows.map(tickDetails));
}

const heldOrDone = (row) => [...row.actions.map((action) => `${action.kind} ${action.target} ${action.user ?? ""} ${(action.nodes ?? []).join(" ")} ${action.reason}`), ...row.held.map((held) => `held ${held.code} ${held.what}`)].join(" ").toLowerCase();

function flatDecisions(rows) {
  return rows.flatMap((row) => [...row.actions.map((action) => ({ ...action, choice: undefined, alternative: action.choice?.runner_up, cost: action.choice?.cost, alternative_cost: action.choice?.runner_up_cost, cost_unit: action.choice?.unit })), ...row.held.map((held) => ({ kind: "held", target: held.what, reason: held.code }))].map((one) => ({ tick: row.tick, at_seconds: row.at, ...one, runner_up: row.runner_up.name, chosen_usd: row.chosen.usd_of_money_and_waiting, runner_up_usd: row.runner_up.usd_of_money_and_waiting })));
}

function ask_for(name, label, options) {
  const change = (event) => { filter[name] = event.target.value.trim(); reload(); };
  if (name === "user" || name === "kind") return el("select", { "aria-label": label, "data-key": `of:${name}`, onchange: change }, el("option", { value: "" }, label), options.map((one) => el("option", { value: one, selected: one === filter[name] }, one)));
  return [el("input", { type: "search", class: "short", list: `list-${name}`, placeholder: label, "aria-label": label, value: filter[name], "data-key": `of:${name}`, onchange: change }), el("datalist", { id: `list-${name}` }, options.slice(0, 300).map((one) => el("option", { value: one })))];
}

const decisions = {
  title: "Decisions", every: 8000,
  load: (of) => {
    // A link names what it is about: #decisions/job=NAME.
    if (of && of !== filter.from) {
      const [name, ...rest] = of.split("=");
      Object.assign(filter, { job: "", user: "", node: "", kind: "", text: "", from: of }, ["job", "user", "node", "kind"].includes(name) ? { [name]: rest.join("=") } : {});
    }
    if (!of) filter.from = "";
    const about = Object.fromEntries(["job", "user", "node", "kind"].filter((name) => filter[name]).map((name) => [name, filter[name]]));
    return ask("decisions", { limit: filter.limit, acting: filter.acting && filter.kind !== "held", ...about });
  },
  draw(doc) {
    const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = doc.decisions.filter((row) => words.every((word) => heldOrDone(row).includes(word)));
    for (const row of doc.decisions) for (const action of row.actions) {
      if (action.user) known.users.add(action.user);
      for (const node of action.nodes ?? []) known.nodes.add(node);
      if (action.kind === "start") known.jobs.add(action.target);
    }
    for (const one of doc.orders ?? []) if (one.user) known.users.add(one.user);
    const drawn = [], asked = words.length || filter.job || filter.user || filter.node || filter.kind;
    let day = "";
    const said = (doc.orders ?? []).filter((one) => words.every((word) => `order ${one.user} ${one.what} ${one.target} ${one.said}`.toLowerCase().includes(word)));
    for (const group of withOrders(folded(rows), said, doc.decisions)) {
      const at = dayOf(group.order ?? group.rows[0]);
      if (at !== day) drawn.push(el("h3", { class: "day" }, (day = at)));
      if (group.order) drawn.push(el("p", { class: "tick order" }, line(clock(group.order.at), `${group.order.what} by ${group.order.user}`, group.order.said)));
      else if (group.rows.length < (filter.by === "reason" ? 2 : 3)) drawn.push(...group.rows.map(tickDetails));
      else drawn.push(groupDetails(group.rows));
    }
    const sorted = (found, name) => [...new Set([...found, filter[name]])].filter(Boolean).sort();
    const more = doc.decisions.length >= filter.limit && filter.limit < 1000;
    return [el("h1", { class: "quiet" }, "Decisions"), card(["Decisions ", el("small", {}, `newest first${words.length ? `, ${number(rows.length)} of ${number(doc.decisions.length)}` : ""}`)], "",
      el("div", { class: "tools" }, STATIC ? null : [ask_for("job", "Job", sorted(known.jobs, "job")), ask_for("user", "Every user", sorted(known.users, "user")), ask_for("node", "Node", sorted(known.nodes, "node")), ask_for("kind", "Every kind", ACTION_KINDS)],
        el("input", { type: "search", placeholder: "words of a reason", "aria-label": "Search decisions", value: filter.text, "data-key": "search", oninput: (event) => { filter.text = event.target.value; redraw(); } }),
        asked ? el("button", { type: "button", class: "plain", "data-key": "all", onclick: () => { Object.assign(filter, { text: "", job: "", user: "", node: "", kind: "" }); reload(); } }, "Show all") : null),
      el("div", { class: "tools" }, STATIC ? null : segments("Show", [[true, "those that act"], [false, "all ticks"]], filter.acting, (acting) => { filter.acting = acting; reload(); }),
        segments("Fold", [["time", "by time"], ["reason", "by reason"]], filter.by, (by) => { filter.by = by; redraw(); }), rows.length ? exports_("decisions", () => flatDecisions(rows), () => rows) : null),
      rows.some((row) => instead(row)) ? el("p", { class: "soft" }, INSTEAD) : null,
      drawn.length ? drawn : empty(asked ? "No decision is about that." : filter.acting ? "No tick has done anything yet. Show all ticks to see that they run." : "No tick is done yet."),
      more ? el("p", {}, el("button", { type: "button", class: "plain", "data-key": "more", onclick: () => { filter.limit = Math.min(filter.limit * 3, 1000); reload(); } }, "Older ones")) : null)];
  },
};
