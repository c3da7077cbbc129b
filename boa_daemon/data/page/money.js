// Money: the month, what it was for, who spent it, what commitments and purses did, and the curve.

const RANGES = [[24, "24 h"], [168, "7 days"], [720, "30 days"], [2160, "90 days"]];
const KINDS = [["state", "use"], ["class", "class"], ["user", "user"], ["team", "team"], ["market", "market"]];
const COSTS_BY = [["team", "team"], ["user", "user"], ["class", "class"], ["job", "job"], ["kind", "kind"], ["market", "market"], ["machine", "machine"], ["day", "day"]];
const STATES = { work: "work", idle: "idle", boot: "boot", restart: "restart" };
const STATE_COLOURS = { work: 0, boot: 4, idle: 7, restart: 1 };
const chosen = { hours: 24, kind: "state", by: "user" };
const MOST_ROWS = 40;
const rangeName = () => RANGES.find(([hours]) => hours === chosen.hours)[1];

function frontierCard(doc, width = "w7") {
  const points = curvePoints(doc), marks = [];
  marks.push({ x: doc.knee.budget, y: doc.knee.hours, kind: "knee", name: "knee" });
  if (doc.budget !== null && doc.budget >= doc.cheapest) marks.push({ x: doc.budget, y: hoursAt(points, doc.budget), kind: "mine", name: "your budget" });
  if (doc.measured) marks.push(hereMark(doc.measured));
  const until = Math.min(doc.largest_useful, Math.max(doc.knee.flat_budget * 1.25, (doc.budget ?? 0) * 1.2));
  return card("Waiting against money", width, moneyChart({ points, unit: doc.unit, marks, until, part: width === "w7" ? 7 : 12, label: "Mean hours from arrival to end at each budget" }), el("p", { class: "why" }, aboutBudget(doc, points), doc.measured ? " You are here: as measured, under the load of these days; the curve is for the load that is planned by." : ""));
}

const hereMark = (measured) => ({ x: measured.usd_per_hour, y: measured.mean_jct_hours, kind: "here", name: `you are here (${counted(measured.jobs, "job")}, 7 days)` });

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

// Where this month ends at the pace of the last days, as the daemon forecasts it for every view; at first by the present rate.
function monthForecast(month) {
  const { past, books, budget, at, pace: likely } = month, [since, until] = monthOf(at);
  const ends = likely?.ends_usd ?? [books.forecast_usd, books.forecast_usd, books.forecast_usd], planned = budget ? (budget * (until - since)) / 3600 : null;
  return { since, until, burnt: past?.series?.usd_per_hour ?? [], hours: (past?.step_seconds ?? 3600) / 3600, ends, planned, words: paceWords(likely), isHeldByDays: likely?.is_held ?? false, over: planned ? ends[1] - planned : null };
}

// The month so far as a sum, the budget's straight line, the caps, and where the pace of the last days ends.
function monthCard(month) {
  const { past, books, at } = month, { since, until, burnt, hours, ends, planned, words, isHeldByDays } = monthForecast(month);
  // What the minutes do not know, such as commitments and the time before the first one, is spread evenly.
  const recorded = burnt.reduce((total, value) => total + (value ?? 0) * hours, 0), unseen = Math.max(books.spent_usd - recorded, 0) / Math.max(at - since, 1);
  let sum = 0;
  const points = [[since, 0], ...burnt.map((value, i) => [past.since + (i + 1) * past.step_seconds, (sum += (value ?? 0) * hours)]).filter(([when]) => when > since && when <= at).map(([when, seen_]) => [when, seen_ + unseen * (when - since)]), [at, books.spent_usd]];
  const most = Math.max(ends[2], planned ?? 0, books.cap_usd ?? 0) * 1.08 || 1;
  const f = frame({ x: [since, until], y: [0, most], height: 240, part: 12, label: `${usd(books.spent_usd)} spent this month, ${usd(ends[1])} by its end ${words}`, yName: "$", xTicks: 0 });
  for (const when of instants(since, until, Math.max(3, Math.floor(room(12) / 120)), true)) f.node.append(svg("text", { x: Math.min(Math.max(f.px(when), f.left + 16), f.right - 16), y: f.bottom + 16, "text-anchor": "middle" }, new Date(when * 1000).toLocaleDateString("en-GB", { day: "numeric", month: "short", timeZone: "UTC" })));
  const at_ = ([when, dollars]) => [f.px(when), f.py(dollars)];
  f.node.append(svg("path", { class: "band", d: `${path([[at, books.spent_usd], [until, ends[2]]].map(at_))}${path([[until, ends[0]], [at, books.spent_usd]].map(at_)).replace("M", "L")}Z` }));
  // The budget's words keep clear of the cap's line.
  const capAt = books.cap_usd === null || books.cap_usd === undefined ? null : f.py(books.cap_usd), under = planned ? f.py(planned) + 16 : 0;
  if (planned) f.node.append(svg("path", { class: "line thin dash softline", d: path([[since, 0], [until, planned]].map(at_)) }), svg("text", { class: "label", x: f.right - 4, y: under > f.bottom - 4 ? under - 22 : capAt !== null && capAt > under - 16 && capAt < under + 4 ? capAt + 16 : under, "text-anchor": "end" }, `budget ${usd(planned)}`));
  if (books.cap_usd !== null && books.cap_usd !== undefined) f.node.append(svg("line", { class: "mark-line", x1: f.left, x2: f.right, y1: f.py(books.cap_usd), y2: f.py(books.cap_usd) }), svg("text", { class: "label", x: f.left + 4, y: f.py(books.cap_usd) - 5 }, `cap ${usd(books.cap_usd)}`));
  const isNarrow = f.px(at) > (f.left + f.right) / 2;
  f.node.append(svg("path", { class: "line", d: path(points.map(at_)) }), svg("path", { class: "line dash thin", d: path([[at, books.spent_usd], [until, ends[1]]].map(at_)) }), svg("circle", { class: "dot mine", cx: f.px(at), cy: f.py(books.spent_usd), r: 5 }),
    svg("text", { class: "label", x: f.px(at) + (isNarrow ? -8 : 8), y: f.py(books.spent_usd) - 14, "text-anchor": isNarrow ? "end" : "start" }, `you are here: ${usd(books.spent_usd)}`));
  return card("This month", "", el("div", { class: "chart" }, f.node), el("p", { class: "why" }, `Dashed: ${usd(ends[1])}${ends[2] - ends[0] > 0.005 ? ` (${usd(ends[0])} to ${usd(ends[2])})` : ""} at the month's end ${words}${isHeldByDays ? ", as far as the cap of a day lets it" : ""}.`, books.cap_usd !== null && ends[1] > books.cap_usd ? el("span", { class: "bad" }, " The cap will hold jobs back.") : null), monthLinks(at));
}

function moneyVerdict(month) {
  if (!month) return el("h1", { class: "quiet" }, "Money");
  const { ends, planned, over, words } = monthForecast(month), cap = month.books.cap_usd, isHeld = cap !== null && ends[1] > cap;
  const kind = isHeld ? "bad" : over !== null && over > 0.1 * planned ? "warn" : "good";
  return el("h1", { class: "verdict" }, el("span", { class: kind }, `${usd(month.books.spent_usd)} this month`), el("span", {}, `${usd(ends[1])} by its end ${words}${planned ? `, ${usd(Math.abs(over))} ${over > 0 ? "above" : "below"} the budget` : ""}${isHeld ? `; the cap of ${usd(cap)} will hold jobs back` : ""}`));
}

// The reports of this month and the last two, as files to keep or to forward.
function monthLinks(at) {
  if (STATIC) return null;
  const names = [0, 1, 2].map((back) => { const when = new Date(at * 1000); return new Date(Date.UTC(when.getUTCFullYear(), when.getUTCMonth() - back, 1)).toISOString().slice(0, 7); });
  return el("p", { class: "soft" }, "Reports to keep or to forward: ", names.flatMap((name, i) => [i ? ", " : "", el("a", { href: `v1/months/${name}/page`, download: `boa-${name}.html` }, name)]));
}

// From bills, so the parts add up to the dollar; only work and restarts are told apart by the minute.
function usesOf(doc) {
  const { uses, restart_fraction: again } = doc, restart = (again ?? 0) * uses.jobs_usd;
  return [
    { name: "work", value: uses.jobs_usd - restart, colour: 0, said: "GPUs that jobs hold" },
    { name: "restart", value: restart, colour: 1, said: "started again, and no new step yet" },
    { name: "boot", value: uses.boots_usd, colour: 4, said: "nodes before their first job" },
    { name: "idle", value: uses.idle_usd, colour: 7, said: "no job used it" },
    { name: "standing", value: uses.standing_usd, colour: 5, said: "gateway, images, reservations" },
    { name: "commitments", value: uses.fixed_usd, colour: 3, said: "and blocks, used or not" },
  ].filter((one) => one.value >= 0.005);
}

function usesCard(doc, width) {
  const parts = usesOf(doc), { uses } = doc, total = uses.usd;
  if (!(total >= 0.005)) return card("What the money was for", width, empty("Nothing was spent in this time."));
  const idle = [["for free GPUs beside a job", uses.free_usd], ["for whole nodes between jobs, until they are released", uses.between_usd], ["for nodes that ran no job, or none yet", uses.never_usd]].filter(([, value]) => value >= 0.005);
  return card(["What the money was for ", el("small", {}, rangeName())], width,
    bar(parts, `${usd(total)}: ${parts.map((one) => `${one.name} ${usd(one.value)}`).join(", ")}`),
    el("dl", { class: "facts spaced" }, parts.map((one) => [el("dt", {}, key_(`f${one.colour}`), ` ${one.name}`), el("dd", {}, `${usd(one.value)}, ${Math.round((100 * one.value) / total)} % `, el("small", { class: "soft" }, one.said))]), el("dt", {}, "in all"), el("dd", {}, el("strong", {}, usd(total)))),
    idle.length ? el("p", { class: "soft" }, `Idle: ${idle.map(([name, value]) => `${usd(value)} ${name}`).join("; ")}. The tables by job, user, team and class show the same figure: there the first job on a node pays for its boot. In the other tables each row includes its own idle time.`) : null);
}

function costCard(cost) {
  // What belongs to nobody is never among the others.
  const isNobodys = (row) => /^\((idle|gateway|commitments)/.test(row.name), owned = cost.rows.filter((row) => !isNobodys(row));
  const total = cost.usd, rows = owned.slice(0, MOST_ROWS), rest = owned.slice(MOST_ROWS), most = Math.max(...cost.rows.map((row) => row.usd), 1e-9);
  const hours = cost.rows.some((row) => row.gpu_hours);
  if (rest.length) rows.push({ name: `${number(rest.length)} others`, usd: rest.reduce((sum, row) => sum + row.usd, 0), boot_usd: rest.reduce((sum, row) => sum + (row.boot_usd ?? 0), 0), gpu_hours: rest.reduce((sum, row) => sum + (row.gpu_hours ?? 0), 0) });
  rows.push(...cost.rows.filter(isNobodys));
  rows.push({ name: "in all", usd: total, isSum: true, boot_usd: cost.rows.reduce((sum, row) => sum + (row.boot_usd ?? 0), 0), gpu_hours: cost.rows.reduce((sum, row) => sum + (row.gpu_hours ?? 0), 0) });
  const name_ = (row) => (cost.by === "job" && /^[A-Za-z0-9-]+$/.test(row.name) ? el("a", { href: `#job/${encodeURIComponent(row.name)}` }, row.name) : row.name);
  const flat = () => cost.rows.map(({ kinds, ...row }) => ({ ...row, ...Object.fromEntries(Object.entries(kinds ?? {}).map(([kind, value]) => [`${kind}_usd`, value])) }));
  return card(["Who spent what ", el("small", {}, `since ${clock(cost.since, true)}`)], "",
    el("div", { class: "tools" }, segments("Cost by", COSTS_BY, chosen.by, (by) => { chosen.by = by; reload(); }), cost.rows.length ? exports_(`cost-by-${cost.by}`, flat, () => cost) : null),
    cost.rows.length ? table([[cost.by, name_, "id"], ["cost", (row) => usd(row.usd), "n"], ["share", (row) => (total ? `${number((100 * row.usd) / total, 1)} %` : ""), "n"], ["", (row) => (row.isSum ? "" : svg("svg", { class: "strip thinstrip", viewBox: "0 0 200 10", preserveAspectRatio: "none", "aria-hidden": "true" }, svg("rect", { class: isNobodys(row) ? "f7" : "f0", width: Math.max(0, 200 * (row.usd / most)), height: 10 }))), "barcell"], ...(hours ? [["for boots", (row) => (row.boot_usd ? usd(row.boot_usd) : ""), "n"], ["GPU-hours", (row) => (row.gpu_hours ? number(row.gpu_hours, 1) : ""), "n"], ["a GPU-hour", (row) => (row.gpu_hours ? usd(row.usd / row.gpu_hours) : ""), "n"]] : [])], rows, "Cost") : empty("Nothing was spent in this time."));
}

// How long a purse lasts, and when there is room again.
function purseRoom(purse, now_) {
  const left = purse.cap_usd - purse.spent_usd - purse.reserved_usd, again = purse.refills_at ? clockUtc(purse.refills_at) : "";
  if (left <= 0.005) return ["bad", again ? `none until ${again}` : "none"];
  const lasts = purse.usd_per_hour > 0 ? (left / purse.usd_per_hour) * 3600 : Infinity;
  if (purse.refills_at && now_ + lasts < purse.refills_at) return ["warn", `${again}; used up in ${span(lasts)}`];
  return ["", again];
}

function pursesCard(doc) {
  const { purses, shares, as_of: at } = doc;
  if (!purses.length && !shares.length) return null;
  const strip = (purse) => {
    const whole = Math.max(purse.cap_usd, purse.spent_usd + purse.reserved_usd, 1e-9), px = (value) => (200 * value) / whole;
    return svg("svg", { class: "strip thinstrip", viewBox: "0 0 200 10", preserveAspectRatio: "none", role: "img", "aria-label": `${purse.kind} ${purse.name}: ${usd(purse.spent_usd)} spent and ${usd(purse.reserved_usd)} reserved of ${usd(purse.cap_usd)}` },
      svg("rect", { class: "bar-ground", width: 200, height: 10 }), svg("rect", { class: "f0", width: px(purse.spent_usd), height: 10 }), svg("rect", { class: "f4", x: px(purse.spent_usd), width: px(purse.reserved_usd), height: 10 }));
  };
  const fullest = (purse) => (purse.spent_usd + purse.reserved_usd) / Math.max(purse.cap_usd, 1e-9), sorted = purses.length > 40 ? [...purses].sort((a, b) => fullest(b) - fullest(a)) : purses;
  const rows = sorted.map((purse) => ({ ...purse, left_usd: Math.max(purse.cap_usd - purse.spent_usd - purse.reserved_usd, 0), room: purseRoom(purse, at) }));
  const share = (one) => `${one.team} is ${Math.abs(one.ahead_usd) < 0.005 ? "even with" : `${usd(Math.abs(one.ahead_usd))} ${one.ahead_usd > 0 ? "ahead of" : "behind"}`} its share (${usd(one.spent_month_usd)} this month)`;
  const furthest = shares.length > 10 ? [...shares].sort((a, b) => Math.abs(b.ahead_usd) - Math.abs(a.ahead_usd)) : shares;
  return card(["Purses ", el("small", {}, "of teams and users; days and months in UTC")], "",
    rows.length ? [el("div", { class: "corner" }, exports_("purses", () => rows.map(({ room: room_, ...row }) => row))),
      longTable([["whose", (row) => `${row.kind} ${row.name}`, "id"], ["for a", (row) => row.window.split(" ")[0]], ["", strip, "barcell"], ["spent", (row) => usd(row.spent_usd), "n"], ["reserved", (row) => usd(row.reserved_usd), "n"], ["left", (row) => usd(row.left_usd), "n"], ["of", (row) => usd(row.cap_usd), "n"], ["filled again", (row) => el("span", { class: row.room[0] }, row.room[1]), "full"]], rows, "Purses"),
      el("ul", { class: "legend" }, el("li", {}, key_("f0"), " spent"), el("li", {}, key_("f4"), " reserved: what running jobs may cost until they can be stopped"))] : null,
    teamLinks(purses, at),
    shares.length ? el("p", { class: "soft" }, `Shares of the budget, with a half-life of ${span(shares[0].half_life_hours * 3600)}: ${furthest.slice(0, 10).map(share).join("; ")}${shares.length > 10 ? `; ${number(shares.length - 10)} others are closer to theirs` : ""}.`) : null);
}

function teamLinks(purses, at) {
  const teams = [...new Set(purses.filter((purse) => purse.kind === "team").map((purse) => purse.name))];
  if (STATIC || !teams.length) return null;
  const links = () => teams.flatMap((team, i) => [i ? ", " : "", el("a", { href: `v1/months/${month}/page?team=${encodeURIComponent(team)}`, download: `boa-${month}-${team}.html` }, el("bdi", {}, team))]);
  const month = new Date(at * 1000).toISOString().slice(0, 7);
  return teams.length > 40 ? folded_("team reports", `This month's reports of ${number(teams.length)} teams`, () => [el("p", { class: "soft" }, links())]) : el("p", { class: "soft" }, "This month's reports of teams: ", links());
}

function commitmentsCard(doc) {
  const rows = doc.commitments;
  if (!rows.length) return null;
  const saved = rows.reduce((sum, row) => sum + row.saved_usd, 0);
  return card(["Commitments and blocks ", el("small", {}, rangeName())], "",
    el("p", { class: "whole answer" }, el("span", { class: saved >= 0 ? "good" : "bad" }, `${usd(Math.abs(saved))} ${saved >= 0 ? "saved" : "lost"}`), `: ${usd(rows.reduce((sum, row) => sum + row.used_usd, 0))} of use at on-demand prices for ${usd(rows.reduce((sum, row) => sum + row.paid_usd, 0))}.`),
    el("div", { class: "corner" }, exports_("commitments", () => rows)),
    table([["name", (row) => row.name, "id"], ["what", (row) => `${row.kind}: ${row.instance_types.join(", ")}`, "wide"], ["an hour", (row) => usd(row.usd_per_hour), "n"], ["ends", (row) => (row.ends_at ? clock(row.ends_at, true) : "open"), "n"], ["paid", (row) => usd(row.paid_usd), "n"], ["use, on demand", (row) => usd(row.used_usd), "n full"], ["saved", (row) => el("span", { class: row.saved_usd >= 0 ? "good" : "bad" }, `${row.saved_usd < 0 ? "−" : ""}${usd(Math.abs(row.saved_usd))}`), "n"]], rows, "Commitments and blocks"));
}

const money = {
  title: "Money", every: 20000,
  load: async () => {
    const found = await part(ask("page/month")), at = found?.as_of ?? null;
    const month = found?.error ? found : found?.books?.month && at ? { books: found.books.month, budget: found.budget_usd_per_hour, pace: found.month_pace, at, past: await part(ask("page/history", { hours: Math.max((at - monthOf(at)[0]) / 3600, 1) })) } : null;
    const [curve, past, cost, uses] = await Promise.all([
      part(ask("page/frontier")),
      part(ask("page/history", { hours: chosen.hours })),
      part(ask("page/cost", { by: chosen.by, hours: chosen.hours })),
      part(ask("page/uses", { hours: chosen.hours }))]);
    return { curve, past, cost, uses, month };
  },
  draw({ curve, past, cost, uses, month }) {
    const missing = (title, width, found) => card(title, width, empty(found.error));
    const cards = month?.error || month?.past?.error ? [missing("This month", "", month.error ? month : month.past)] : month?.past ? [monthCard(month)] : [];
    if (!STATIC) cards.push(el("div", { class: "tools across" }, el("span", { class: "soft" }, "Below:"), segments("Range", RANGES, chosen.hours, (hours) => { chosen.hours = hours; reload(); })));
    if (uses) cards.push(uses.error ? missing("What the money was for", past ? "w5" : "", uses) : usesCard(uses, past ? "w5" : ""));
    if (past?.error) cards.push(missing("Spend over time", uses ? "w7" : "", past));
    else if (past) {
      const parts = partsOf(past, chosen.kind), flat = () => past.minutes.map((_, i) => ({ at_seconds: past.since + i * past.step_seconds, ...Object.fromEntries(parts.map((one) => [`${one.name}_usd_per_hour`, one.values[i]])) }));
      cards.push(card(["Spend over time ", el("small", {}, "dollars per hour for nodes, as seen each minute")], uses ? "w7" : "",
        el("div", { class: "tools" }, segments("By", KINDS, chosen.kind, (kind) => { chosen.kind = kind; redraw(); }), parts.length ? exports_(`spend-by-${chosen.kind}`, flat) : null),
        parts.length ? timeChart({ since: past.since, step: past.step_seconds, series: parts, stacked: true, height: 240, part: uses ? 7 : 12, label: `Spend over time by ${chosen.kind}`, yName: "$/h", say: usd }) : empty("Nothing was spent in this time.")));
    }
    if (cost) cards.push(cost.error ? missing("Who spent what", "", cost) : costCard(cost));
    if (uses && !uses.error) cards.push(commitmentsCard(uses), pursesCard(uses));
    cards.push(curve.error ? card("Waiting against money", "", empty(curve.error)) : frontierCard(curve, ""));
    return [moneyVerdict(month?.books ? month : null), el("div", { class: "grid" }, cards.filter(Boolean))];
  },
};
