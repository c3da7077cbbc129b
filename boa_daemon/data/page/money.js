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

const money = {
  title: "Money", every: 20000,
  load: async () => {
    const [curve, past, cost] = await Promise.all([
      ask("page/frontier").catch((error) => ({ error: error.message })),
      ask("page/history", { hours: chosen.hours }).catch(() => null),
      ask("page/cost", { by: ["class", "user", "team"].includes(chosen.kind) ? chosen.kind : "class", hours: chosen.hours }).catch(() => null)]);
    return { curve, past, cost };
  },
  draw({ curve, past, cost }) {
    const cards = [];
    cards.push(curve.error ? card("Waiting against money", "w7", empty(curve.error)) : frontierCard(curve, past ? "w7" : ""));
    if (past) {
      const states = partsOf(past, "state"), total = states.reduce((sum, one) => sum + one.total, 0);
      cards.push(card(["What the money was for ", el("small", {}, RANGES.find(([hours]) => hours === chosen.hours)[1])], "w5",
        total ? [bar(states.map((one) => ({ ...one, value: one.total })), "Parts of the spend"), el("dl", { class: "facts spaced" }, states.map((one) => [el("dt", {}, svg("svg", { class: "key", viewBox: "0 0 10 10", "aria-hidden": "true" }, svg("rect", { class: `f${one.colour}`, width: 10, height: 10, rx: 2 })), ` ${one.name}`), el("dd", {}, `${usd(one.total)}, ${Math.round((100 * one.total) / total)} %`)])),
          el("p", { class: "soft" }, "Boot: nodes that start. Idle: GPUs that no job holds. Restart: jobs that were started again and have made no step since.")] : empty("Nothing was spent in this time.")));
      const parts = partsOf(past, chosen.kind);
      cards.push(card(["Spend over time ", el("small", {}, "dollars per hour")], "",
        el("div", { class: "tools" }, segments("Range", RANGES, chosen.hours, (hours) => { chosen.hours = hours; reload(); }), segments("By", KINDS, chosen.kind, (kind) => { chosen.kind = kind; reload(); })),
        parts.length ? timeChart({ since: past.since, step: past.step_seconds, series: parts, stacked: true, height: 240, label: `Spend over time by ${chosen.kind}`, yName: "$/h", say: usd }) : empty("Nothing was spent in this time.")));
    }
    if (cost) cards.push(card(["Who spent what ", el("small", {}, `by ${cost.by}, ${RANGES.find(([hours]) => hours === chosen.hours)[1]}`)], "",
      cost.rows.length ? table([[cost.by, (row) => row.name], ["dollars", (row) => number(row.usd, 2), "n"], ["share", (row) => `${Math.round((100 * row.usd) / cost.usd)} %`, "n"], ["GPU-hours", (row) => number(row.gpu_hours, 1), "n"]], cost.rows, "Cost") : empty("Nothing was spent in this time.")));
    return [el("div", { class: "grid" }, cards)];
  },
};
