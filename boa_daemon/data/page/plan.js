// Plan: sliders for budget, prices, load and start; the curve moves, and the widths with it.

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

const plan = {
  title: "Plan", every: 60000,
  load: () => ask("page/frontier"),
  draw(doc) {
    const stretch = doc.unit === "gpus" ? 1 : set.price;
    const settings = { minutes: set.minutes, price: stretch, load: set.load };
    const points = curvePoints(doc, settings), before = curvePoints(doc);
    const others = stretch !== 1 || set.load !== 1 || set.minutes !== 0 ? [before] : [];
    const low = before[0][0], high = Math.max(doc.knee.flat_budget * 2, (doc.budget ?? 0) * 1.5);
    // Evenly in the logarithm: a cent matters where money is short.
    const toBudget = (at) => low * 0.8 * ((high / (low * 0.8)) ** (at / 1000)), toSlider = (value) => (1000 * Math.log(value / (low * 0.8))) / Math.log(high / (low * 0.8));
    if (set.budget === null) set.budget = doc.budget ?? doc.knee.budget;
    const answer = solve(doc, set.budget, settings);
    const marks = answer.isFeasible ? [{ x: set.budget, y: answer.hours, kind: "mine", name: `${span(answer.hours * 3600)} a job` }] : [];
    const unit = doc.unit === "gpus" ? "GPUs" : "dollars";
    const starts = doc.starts.map((one) => one.minutes);
    return [el("h1", { class: "quiet" }, "Plan"), el("div", { class: "grid" },
      card("What if", "w4",
        slider("Budget", amount(set.budget, doc.unit), toSlider(set.budget), { min: 0, max: 1000, step: 1 }, (at) => { set.budget = toBudget(at); }),
        doc.unit === "gpus" ? null : slider("Prices", `${number(100 * set.price)} %`, set.price, { min: 0.3, max: 2, step: 0.01 }, (value) => { set.price = value; }),
        slider("Load", `${number(100 * set.load)} %`, set.load, { min: 0.25, max: 4, step: 0.05 }, (value) => { set.load = value; }),
        starts.length > 1 ? slider("Start of every job", set.minutes ? `+ ${number(set.minutes)} min` : "as stated", starts.indexOf(set.minutes), { min: 0, max: starts.length - 1, step: 1 }, (value) => { set.minutes = starts[value]; }) : null,
        el("button", { type: "button", class: "plain", "data-key": "reset", onclick: () => { Object.assign(set, { budget: null, price: 1, load: 1, minutes: 0 }); redraw(); } }, "As it is")),
      card("Waiting against money", "w8", moneyChart({ points, others, unit: doc.unit, marks, until: Math.max(high, set.budget), most: 1.3 * Math.max(before[0][1], 1e-9), height: 280, part: 8, label: "The curve under these settings" }),
        el("p", { class: "why" }, answer.isFeasible ? `${amount(set.budget, doc.unit)} runs every job in ${span(answer.hours * 3600)} on average${doc.is_weighted ? ", weighted" : ""}.${others.length ? " Dashed: the curve as it is." : ""}` : `Too little: ${amount(answer.least, doc.unit)} is the least that runs every job.`)),
      card(["The plan ", el("small", {}, "what boa plan answers")], "", answer.isFeasible ? table([
        ["class", (one) => one.name, "id"], ["jobs per hour", (one) => number(one.arrivals_per_hour * set.load, 2), "n"], ["widths", (one) => widthsText(one.widths), "wide"],
        ["time a job", (one) => span(one.hours * 3600), "n"], [doc.unit === "gpus" ? "GPU-hours a job" : "cost a job", (one) => (doc.unit === "gpus" ? number(one.spend, 2) : usd(one.spend)), "n"],
        [doc.unit === "gpus" ? "GPUs" : "cost an hour", (one) => (doc.unit === "gpus" ? number(one.spend * one.arrivals_per_hour * set.load, 2) : usd(one.spend * one.arrivals_per_hour * set.load)), "n"]], answer.classes, `Plan in ${unit}`) : empty("No plan runs every job for this money.")))];
  },
};
