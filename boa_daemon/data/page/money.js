// Money: the curve with you-are-here and the knee, spend over time, who spent what.

const RANGES = [[24, "24 h"], [168, "7 days"], [720, "30 days"], [2160, "90 days"]];
const KINDS = [["state", "use"], ["class", "class"], ["user", "user"], ["team", "team"], ["market", "market"]];
const STATES = { work: "work", idle: "idle", boot: "boot", restart: "restart" };
const STATE_COLOURS = { work: 0, boot: 4, idle: 7, restart: 1 };
const chosen = { hours: 24, kind: "state" };

function frontierCard(doc, width = "w7") {
  const points = curvePoints(doc), marks = [];
  marks.push({ x: doc.knee.budget, y: doc.knee.hours, kind: "knee", name: "knee" });
  if (doc.budget !== null && doc.budget >= doc.cheapest) marks.push({ x: doc.budget, y: hoursAt(points, doc.budget), kind: "mine", name: "your budget" });
  if (doc.measured) marks.push({ x: doc.measured.usd_per_hour, y: doc.measured.mean_jct_hours, kind: "here", name: `you are here (${counted(doc.measured.jobs, "job")}, 7 days)` });
  const until = Math.min(doc.largest_useful, Math.max(doc.knee.flat_budget * 1.25, (doc.budget ?? 0) * 1.2));
  return card("Waiting against money", width, moneyChart({ points, unit: doc.unit, marks, until, part: width === "w7" ? 7 : 12, label: "Mean hours from arrival to end at each budget" }), el("p", { class: "why" }, aboutBudget(doc, points), doc.measured ? " You are here: as measured, under the load of these days; the curve is for the load that is planned by." : ""));
}

function aboutBudget(doc, points) {
  const knee = `the knee (${amount(doc.knee.budget, doc.unit)})`;
  if (doc.budget === null) return `A good place to begin is ${knee}.`;
  if (doc.budget < doc.cheapest) return `${amount(doc.budget, doc.unit)} is below the ${amount(doc.cheapest, doc.unit)} that all jobs together need: the queue grows.`;
  const saved = hoursAt(points, doc.budget) - hoursAt(points, doc.budget + 1);
  const one = doc.unit === "gpus" ? "GPU" : "dollar per hour";
  if (doc.budget >= doc.largest_useful) return `Your budget of ${amount(doc.budget, doc.unit)} gives every job its fastest width: above ${amount(doc.largest_useful, doc.unit)} more money buys nothing.`;
  const next = `One more ${one} would save ${span(saved * 3600)} a job.`;
  const where = doc.budget < 0.98 * doc.knee.budget ? `below ${knee}: more money pays well` : doc.budget > 1.02 * doc.knee.budget ? `above ${knee}: more money still helps, with falling returns` : `at ${knee}`;
  return `Your budget of ${amount(doc.budget, doc.unit)} is ${where}. ${next}`;
}

function partsOf(past, kind) {
  const names = Object.keys(past.series).filter((name) => name.startsWith(`${kind}:`));
  const hours = past.minutes.map((minutes) => (minutes ? past.step_seconds / 3600 : 0));
  const found = names.map((name) => ({ key: name.slice(kind.length + 1), values: past.series[name], total: past.series[name].reduce((sum, value, i) => sum + (value ?? 0) * hours[i], 0) }));
  found.sort((a, b) => b.total - a.total);
  const shown = found.slice(0, 7), rest = found.slice(7);
  if (rest.length) shown.push({ key: "others", values: past.minutes.map((_, i) => rest.reduce((sum, one) => sum + (one.values[i] ?? 0), 0)), total: rest.reduce((sum, one) => sum + one.total, 0) });
  return shown.map((one, n) => ({ name: kind === "state" ? STATES[one.key] ?? one.key : one.key, values: one.values, total: one.total, colour: kind === "state" ? STATE_COLOURS[one.key] ?? n : n }));
}

// The month so far as a sum, the budget's straight line, the caps, and where the pace of the last days ends.
function monthCard(month) {
  const { past, books, budget, at } = month, [since, until] = monthOf(at);
  const burnt = past.series.usd_per_hour ?? [], hours = past.step_seconds / 3600;
  // Minutes before the daemon's first one are not in the history, though the ledger may know of them.
  const recorded = burnt.reduce((total, value) => total + (value ?? 0) * hours, 0);
  let sum = Math.max(books.spent_usd - recorded, 0);
  const points = [[since, 0], ...burnt.map((value, i) => [past.since + (i + 1) * past.step_seconds, (sum += (value ?? 0) * hours)]).filter(([when]) => when > since && when <= at), [at, books.spent_usd]];
  const planned = budget ? (budget * (until - since)) / 3600 : null, left = (until - at) / 3600;
  const recent = burnt.slice(-Math.max(1, Math.round(72 / hours))).filter((value) => value !== null && value !== undefined);
  const mean = recent.length ? recent.reduce((total, value) => total + value, 0) / recent.length : 0;
  // Days differ: the band is twice the standard error of a day's mean; a single day has no band.
  const day = Math.max(1, Math.round(24 / hours)), days = Array.from({ length: Math.ceil(recent.length / day) }, (_, i) => recent.slice(i * day, (i + 1) * day)).map((part) => part.reduce((total, value) => total + value, 0) / part.length);
  const spread = days.length > 1 ? 2 * Math.sqrt(days.reduce((total, value) => total + (value - mean) ** 2, 0) / (days.length - 1) / days.length) : 0;
  const ends = [mean - spread, mean, mean + spread].map((rate) => books.spent_usd + Math.max(rate, 0) * left);
  const most = Math.max(ends[2], planned ?? 0, books.cap_usd ?? 0) * 1.08 || 1;
  const f = frame({ x: [since, until], y: [0, most], height: 240, part: 12, label: `${usd(books.spent_usd)} spent this month, ${usd(ends[1])} by its end at the pace of the last days`, yName: "$", xTicks: 0, yText: (value) => (value >= 10000 ? `${number(value / 1000)}k` : number(value)) });
  for (const when of instants(since, until, Math.max(3, Math.floor(room(12) / 120)))) f.node.append(svg("text", { x: Math.min(Math.max(f.px(when), f.left + 16), f.right - 16), y: f.bottom + 16, "text-anchor": "middle" }, new Date(when * 1000).toLocaleDateString("en-GB", { day: "numeric", month: "short", timeZone: "UTC" })));
  const at_ = ([when, dollars]) => [f.px(when), f.py(dollars)];
  f.node.append(svg("path", { class: "band", d: `${path([[at, books.spent_usd], [until, ends[2]]].map(at_))}${path([[until, ends[0]], [at, books.spent_usd]].map(at_)).replace("M", "L")}Z` }));
  if (planned) f.node.append(svg("path", { class: "line thin dash softline", d: path([[since, 0], [until, planned]].map(at_)) }), svg("text", { class: "label", x: f.right - 4, y: f.py(planned) + 16, "text-anchor": "end" }, `budget ${usd(planned)}`));
  if (books.cap_usd !== null && books.cap_usd !== undefined) f.node.append(svg("line", { class: "mark-line", x1: f.left, x2: f.right, y1: f.py(books.cap_usd), y2: f.py(books.cap_usd) }), svg("text", { class: "label", x: f.left + 4, y: f.py(books.cap_usd) - 5 }, `cap ${usd(books.cap_usd)}`));
  f.node.append(svg("path", { class: "line", d: path(points.map(at_)) }), svg("path", { class: "line dash thin", d: path([[at, books.spent_usd], [until, ends[1]]].map(at_)) }), svg("circle", { class: "dot mine", cx: f.px(at), cy: f.py(books.spent_usd), r: 5 }));
  const over = planned ? ends[1] - planned : null;
  const words = `${usd(books.spent_usd)} so far; at the pace of the last ${span(recent.length * past.step_seconds)} ${usd(ends[1])} by the month's end${spread ? ` (${usd(ends[0])} to ${usd(ends[2])})` : ""}${planned ? `, ${usd(Math.abs(over))} ${over > 0 ? "above" : "below"} the budget` : ""}.`;
  return card("This month", "", el("div", { class: "chart" }, f.node), el("p", { class: "why" }, words, books.cap_usd !== null && ends[1] > books.cap_usd ? el("span", { class: "bad" }, " The cap will hold jobs back.") : null), monthLinks(at));
}

// The reports of this month and the last two, as files to keep or to forward.
function monthLinks(at) {
  if (STATIC) return null;
  const names = [0, 1, 2].map((back) => { const when = new Date(at * 1000); return new Date(Date.UTC(when.getUTCFullYear(), when.getUTCMonth() - back, 1)).toISOString().slice(0, 7); });
  return el("p", { class: "soft" }, "Reports to keep or to forward: ", names.flatMap((name, i) => [i ? ", " : "", el("a", { href: `v1/months/${name}/page`, download: `boa-${name}.html` }, name)]));
}

const money = {
  title: "Money", every: 20000,
  load: async () => {
    const status = await ask("status").catch(() => null), at = status?.as_of ?? null;
    const month = status?.books?.month && at ? { books: status.books.month, budget: status.budget_usd_per_hour, at, past: await ask("page/history", { hours: Math.max((at - monthOf(at)[0]) / 3600, 1) }).catch(() => null) } : null;
    const [curve, past, cost] = await Promise.all([
      ask("page/frontier").catch((error) => ({ error: error.message })),
      ask("page/history", { hours: chosen.hours }).catch(() => null),
      ask("page/cost", { by: ["class", "user", "team"].includes(chosen.kind) ? chosen.kind : "class", hours: chosen.hours }).catch(() => null)]);
    return { curve, past, cost, month };
  },
  draw({ curve, past, cost, month }) {
    const cards = month?.past ? [monthCard(month)] : [];
    cards.push(curve.error ? card("Waiting against money", "w7", empty(curve.error)) : frontierCard(curve, past ? "w7" : ""));
    if (past) {
      const states = partsOf(past, "state"), total = states.reduce((sum, one) => sum + one.total, 0);
      cards.push(card(["What the money was for ", el("small", {}, RANGES.find(([hours]) => hours === chosen.hours)[1])], "w5",
        total ? [bar(states.map((one) => ({ ...one, value: one.total })), "Parts of the spend"), el("dl", { class: "facts spaced" }, states.map((one) => [el("dt", {}, svg("svg", { class: "key", viewBox: "0 0 10 10", "aria-hidden": "true" }, svg("rect", { class: `f${one.colour}`, width: 10, height: 10, rx: 2 })), ` ${one.name}`), el("dd", {}, `${usd(one.total)}, ${Math.round((100 * one.total) / total)} %`)])),
          el("p", { class: "soft" }, "Boot: nodes that start. Idle: GPUs that no job holds, as on the last node of a fleet that comes in whole nodes, or until a node is released. Restart: jobs that were started again and have made no step since. Boots are on the bill of the job that starts on the node first, so jobs below cost work, restarts and boots.")] : empty("Nothing was spent in this time.")));
      const parts = partsOf(past, chosen.kind);
      cards.push(card(["Spend over time ", el("small", {}, "dollars per hour")], "",
        el("div", { class: "tools" }, segments("Range", RANGES, chosen.hours, (hours) => { chosen.hours = hours; reload(); }), segments("By", KINDS, chosen.kind, (kind) => { chosen.kind = kind; reload(); })),
        parts.length ? timeChart({ since: past.since, step: past.step_seconds, series: parts, stacked: true, height: 240, label: `Spend over time by ${chosen.kind}`, yName: "$/h", say: usd }) : empty("Nothing was spent in this time.")));
    }
    if (cost) cards.push(card(["Who spent what ", el("small", {}, `by ${cost.by}, ${RANGES.find(([hours]) => hours === chosen.hours)[1]}`)], "",
      cost.rows.length ? table([[cost.by, (row) => row.name], ["cost", (row) => usd(row.usd), "n"], ["share", (row) => `${Math.round((100 * row.usd) / cost.usd)} %`, "n"], ["GPU-hours", (row) => number(row.gpu_hours, 1), "n"]], cost.rows, "Cost") : empty("Nothing was spent in this time.")));
    return [el("h1", { class: "quiet" }, "Money"), el("div", { class: "grid" }, cards)];
  },
};
