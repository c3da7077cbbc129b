// Plan: sliders for budget, prices, load and start; the curve and the widths; what prices and quotas are behind it.

const set = { budget: null, price: 1, load: 1, minutes: 0 };

function slider(name, text, value, { min, max, step }, change) {
  return el("label", { class: "slider" }, el("span", {}, name), el("output", {}, text), el("input", { type: "range", min, max, step, value, "data-key": name, "aria-label": name, "aria-valuetext": text, oninput: (event) => { change(Number(event.target.value)); redraw(); } }));
}

// Phase by phase where they are few; the range where a job changes its width often.
function widthsText(widths) {
  if (widths.length <= 4) return widths.join(", then ");
  const ends = [...widths].sort((a, b) => parseFloat(a) - parseFloat(b));
  return `from ${ends[0]} to ${ends.at(-1)}, in ${widths.length} steps`;
}

// What the money above the knee buys, and what the next dollars would: on the same curve.
function lastDollars(doc, points, budget) {
  const unit = (value) => amount(value, doc.unit), at = (spend) => hoursAt(points, Math.min(Math.max(spend, points[0][0]), points.at(-1)[0]));
  if (budget < points[0][0]) return null;
  const here = at(budget), spent = Math.min(budget, doc.largest_useful), rows = [];
  const step = (from, to, name) => { if (to - from > 1e-9) rows.push({ name, from, to, more: to - from, saved: at(from) - at(to) }); };
  step(points[0][0], Math.min(doc.knee.budget, spent), "up to the knee");
  if (spent > 1.02 * doc.knee.budget) step(doc.knee.budget, spent, "from the knee to your budget");
  for (const part of [0.1, 0.25]) step(spent, Math.min(spent * (1 + part), doc.largest_useful), `the next ${number(100 * part)} %`);
  const unused = Math.max(budget - doc.largest_useful, 0);
  return card(["What the last dollars buy ", el("small", {}, `at ${unit(budget)}, ${span(here * 3600)} a job`)], "",
    rows.length ? table([["part of the money", (row) => row.name, "id"], ["from", (row) => unit(row.from), "n"], ["to", (row) => unit(row.to), "n"], ["shortens a job by", (row) => span(row.saved * 3600), "n full"], [doc.unit === "gpus" ? "a GPU saves" : "$1/h saves", (row) => span((row.saved / row.more) * 3600), "n"]], rows, "What the last dollars buy") : null,
    unused > 0.005 ? el("p", { class: "why warn" }, `${unit(unused)} of the budget buys nothing: every job has its fastest width at ${unit(doc.largest_useful)}.`) : null);
}

const dated = (row, at) => (row.age_seconds !== null ? `${span(row.age_seconds)} ago` : row.as_of ? `${row.as_of}${row.is_stale ? `, ${number((at - Date.parse(row.as_of) / 1000) / 86400)} days old` : ""}` : "no date");

function pricesCard(market) {
  const rows = market.prices, asked = rows.some((row) => row.lowest_offer_usd_per_hour !== null);
  return card(["Prices of the plan ", el("small", {}, "dollars per hour")], "", el("div", { class: "corner" }, exports_("prices", () => rows)),
    table([["machine", (row) => row.instance_type, "id"], ["market", (row) => row.market], ["a node", (row) => usd(row.usd_per_hour), "n"], ["a GPU", (row) => usd(row.usd_per_hour / row.gpus), "n"],
      ...(asked ? [["asked now", (row) => (row.lowest_offer_usd_per_hour === null ? "" : row.lowest_offer_usd_per_hour === row.highest_offer_usd_per_hour ? usd(row.lowest_offer_usd_per_hour) : `${usd(row.lowest_offer_usd_per_hour)} to ${usd(row.highest_offer_usd_per_hour)}`), "n"]] : []),
      ["as of", (row) => el("span", { class: row.is_stale ? "warn" : "" }, dated(row, market.as_of)), "n full"], ["from", (row) => row.source, "wide"]], rows, "Prices"),
    rows.some((row) => row.is_stale) ? el("p", { class: "why warn" }, "Prices older than 30 days: ", code("boa prices --refresh FILE"), ", then ", code("[cloud] prices"), ".") : null);
}

function roomText(row, limit) {
  const said = row.closed.map((one) => `${one.said}${one.zones.length ? ` (${one.zones.join(", ")})` : ""}${one.until ? `, asked again ${clock(one.until)}` : ""}`);
  if (row.nodes_left === 0 && !said.length) said.push("the quota is used up: ask for more");
  if (limit.max_instances !== null && limit.nodes >= limit.max_instances) said.push(`max_instances = ${limit.max_instances} is reached`);
  else if (row.needed_nodes !== null && row.quota_nodes !== null && row.needed_nodes > row.quota_nodes) said.push(`the plan needs ${number(row.needed_nodes - row.quota_nodes)} more than the quota: ask for them`);
  else if (row.needed_nodes !== null && limit.max_instances !== null && row.needed_nodes > limit.max_instances) said.push(`max_instances = ${limit.max_instances} is below what the plan needs`);
  return said;
}

function roomCard(market) {
  const { room: rows, limit } = market;
  if (!rows.length) return null;
  const strip = (row) => {
    const whole = Math.max(row.quota_nodes ?? limit.max_instances ?? row.nodes, row.needed_nodes ?? 0, 1), px = (value) => (200 * value) / whole;
    return svg("svg", { class: "strip thinstrip", viewBox: "0 0 200 10", preserveAspectRatio: "none", role: "img", "aria-label": `${row.instance_type}: ${row.nodes} in use${row.quota_nodes === null ? "" : ` of ${row.quota_nodes}`}${row.needed_nodes === null ? "" : `, the plan needs ${row.needed_nodes}`}` },
      svg("rect", { class: "bar-ground", width: 200, height: 10 }), svg("rect", { class: "f0", width: px(row.nodes), height: 10 }), row.needed_nodes === null ? null : svg("rect", { class: "needed", x: Math.max(px(row.needed_nodes) - 2, 0), width: 2, height: 10 }));
  };
  return card(["Quotas and room ", el("small", {}, `nodes; ${number(limit.nodes)}${limit.max_instances === null ? "" : ` of at most ${number(limit.max_instances)}`} in all`)], "",
    table([["machine", (row) => row.instance_type, "id"], ["market", (row) => row.market], ["in use", (row) => number(row.nodes), "n"], ["", strip, "barcell"], ["quota", (row) => (row.quota_nodes === null ? "not known" : number(row.quota_nodes)), "n"], ["left", (row) => (row.nodes_left === null ? "" : number(row.nodes_left)), "n"], ["the plan needs", (row) => (row.needed_nodes === null ? "" : number(row.needed_nodes)), "n"],
      ["what forbids more", (row) => { const said = roomText(row, limit); return said.length ? el("span", { class: "warn" }, said.join("; ")) : "nothing"; }, "wide"]], rows, "Quotas and room"),
    el("p", { class: "soft" }, `The plan needs: nodes that suffice ${number(100 * market.quota_share)} % of the time at the budget, by the load that it is planned for.`));
}

const plan = {
  title: "Plan", every: 60000,
  load: async () => {
    const [curve, market] = await Promise.all([ask("page/frontier"), STATIC ? null : part(ask("page/market"))]);
    return { curve, market };
  },
  draw({ curve: doc, market }) {
    const stretch = doc.unit === "gpus" ? 1 : set.price;
    const settings = { minutes: set.minutes, price: stretch, load: set.load };
    const points = curvePoints(doc, settings), before = curvePoints(doc);
    const others = stretch !== 1 || set.load !== 1 || set.minutes !== 0 ? [before] : [];
    const low = before[0][0], high = Math.max(doc.knee.flat_budget * 2, (doc.budget ?? 0) * 1.5);
    // Evenly in the logarithm: a cent matters where money is short.
    const toBudget = (at) => low * 0.8 * ((high / (low * 0.8)) ** (at / 1000)), toSlider = (value) => (1000 * Math.log(value / (low * 0.8))) / Math.log(high / (low * 0.8));
    if (set.budget === null) set.budget = doc.budget ?? doc.knee.budget;
    const answer = solve(doc, set.budget, settings), isMoved = doc.budget !== null && Math.abs(set.budget - doc.budget) > 1e-6 * doc.budget;
    const marks = answer.isFeasible ? [{ x: set.budget, y: answer.hours, kind: "mine", name: `${span(answer.hours * 3600)} a job` }] : [];
    if (!others.length) marks.unshift({ x: doc.knee.budget, y: doc.knee.hours, kind: "knee", name: "knee" });
    if (isMoved && !others.length && doc.budget >= low) marks.unshift({ x: doc.budget, y: hoursAt(points, doc.budget), kind: "", name: "your budget" });
    if (doc.measured) marks.push(hereMark(doc.measured));
    const unit = doc.unit === "gpus" ? "GPUs" : "dollars";
    const starts = doc.starts.map((one) => one.minutes);
    const shown = answer.isFeasible ? answer.classes.map((one) => ({ class: one.name, jobs_per_hour: one.arrivals_per_hour * set.load, widths: widthsText(one.widths), hours_a_job: one.hours, spend_a_job: one.spend, spend_an_hour: one.spend * one.arrivals_per_hour * set.load })) : [];
    return [el("h1", { class: "verdict" }, answer.isFeasible ? [el("span", { class: "good" }, `${amount(set.budget, doc.unit)}`), el("span", {}, `runs every job in ${span(answer.hours * 3600)} on average${doc.is_weighted ? ", weighted" : ""}`)] : [el("span", { class: "bad" }, `${amount(set.budget, doc.unit)} is too little`), el("span", {}, `${amount(answer.least, doc.unit)} is the least that runs every job`)]), el("div", { class: "grid" },
      card("What if", "w4",
        slider("Budget", amount(set.budget, doc.unit), toSlider(set.budget), { min: 0, max: 1000, step: 1 }, (at) => { set.budget = toBudget(at); }),
        doc.unit === "gpus" ? null : slider("Prices", `${number(100 * set.price)} %`, set.price, { min: 0.3, max: 2, step: 0.01 }, (value) => { set.price = value; }),
        slider("Load", `${number(100 * set.load)} %`, set.load, { min: 0.25, max: 4, step: 0.05 }, (value) => { set.load = value; }),
        starts.length > 1 ? slider("Start of every job", set.minutes ? `+ ${number(set.minutes)} min` : "as stated", starts.indexOf(set.minutes), { min: 0, max: starts.length - 1, step: 1 }, (value) => { set.minutes = starts[value]; }) : null,
        el("button", { type: "button", class: "plain", "data-key": "reset", onclick: () => { Object.assign(set, { budget: null, price: 1, load: 1, minutes: 0 }); redraw(); } }, "As it is")),
      card("Waiting against money", "w8", moneyChart({ points, others, unit: doc.unit, marks, until: Math.max(high, set.budget), most: 1.3 * Math.max(before[0][1], 1e-9), height: 300, part: 8, label: "The curve under these settings" }),
        el("p", { class: "why" }, doc.budget === null ? "" : `${aboutBudget(doc, before)}`, others.length ? " Dashed: the curve as it is." : "", doc.measured ? " You are here: as measured in 7 days, under their load." : "")),
      card(["The plan ", el("small", {}, "what boa plan answers")], "", shown.length ? [el("div", { class: "corner" }, exports_("plan", () => shown)), table([
        ["class", (one) => one.class, "id"], ["jobs per hour", (one) => number(one.jobs_per_hour, 2), "n"], ["widths", (one) => one.widths, "wide"],
        ["time a job", (one) => span(one.hours_a_job * 3600), "n"], [doc.unit === "gpus" ? "GPU-hours a job" : "cost a job", (one) => (doc.unit === "gpus" ? number(one.spend_a_job, 2) : usd(one.spend_a_job)), "n"],
        [doc.unit === "gpus" ? "GPUs" : "cost an hour", (one) => (doc.unit === "gpus" ? number(one.spend_an_hour, 2) : usd(one.spend_an_hour)), "n"]], shown, `Plan in ${unit}`)] : empty("No plan runs every job for this money.")),
      answer.isFeasible && !others.length ? lastDollars(doc, points, set.budget) : null,
      market?.error ? card("Quotas, room and prices", "", empty(market.error)) : market ? [roomCard(market), pricesCard(market)] : null)];
  },
};
