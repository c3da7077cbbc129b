// Now: burn, caps, fleet, queue, alerts.

// In which words a forecast of the month stands, wherever it stands.
const paceWords = (likely) => (likely ? `at the pace of the last ${span(likely.seconds_seen)}` : "at the present rate");

function capBar(name, books, when, words = "at the present rate") {
  const { spent_usd: spent, cap_usd: cap, forecast_usd: forecast } = books;
  const end = Math.max(spent, forecast, cap ?? 0) * 1.02 || 1, px = (value) => (value / end) * 720;
  const over = cap !== null && forecast > cap;
  const node = svg("svg", { class: "capbar", viewBox: "0 0 720 26", preserveAspectRatio: "none", role: "img", "aria-label": `${name}: ${usd(spent)} spent, forecast ${usd(forecast)}${cap === null ? ", no cap" : `, cap ${usd(cap)}`}` },
    svg("rect", { class: "bar-ground", x: 0, y: 4, width: 720, height: 18, rx: 3 }),
    svg("rect", { class: "bar-forecast", x: 0, y: 4, width: px(over ? cap : forecast), height: 18 }),
    over ? svg("rect", { class: "bar-over", x: px(cap), y: 4, width: px(forecast) - px(cap), height: 18 }) : null,
    svg("rect", { class: "bar-sure", x: 0, y: 4, width: px(spent), height: 18 }),
    cap === null ? null : svg("line", { class: "bar-cap", x1: px(cap), x2: px(cap), y1: 0, y2: 26 }));
  return el("div", { class: "cap" },
    el("p", {}, el("span", {}, el("strong", {}, usd(spent)), ` spent ${when}`), el("span", { class: "soft" }, cap === null ? "no cap" : `cap ${usd(cap)}`)),
    node,
    el("p", { class: `soft ${over ? "warn" : ""}` }, el("span", {}, `${usd(forecast)} at its end ${words}${over ? ": the cap will hold it back" : ""}.`)));
}

// Whose GPUs: a colour for each job, user or class; the eighth is for all others.
// Until somebody chooses: the finest kind whose colours, one of them for all others, say whose half of the GPUs are.
const fleetView = { by: null };
const FLEET_BY = [["job", "job"], ["user", "user"], ["class", "class"], ["state", "use"]];

function fleetColours(nodes, by) {
  const key = by === "job" ? "id" : by, gpus = new Map();
  for (const node of nodes) for (const holder of node.holders) if (holder) gpus.set(holder[key], (gpus.get(holder[key]) ?? 0) + 1);
  const names = [...gpus].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).map(([name]) => name);
  return { key, names, gpus, of: new Map(names.map((name, n) => [name, names.length > 8 && n > 6 ? 7 : n])) };
}

function fleetBy(nodes) {
  const found = ["job", "user", "class"].find((by) => {
    const { names, gpus } = fleetColours(nodes, by), of = (few) => few.reduce((sum, name) => sum + gpus.get(name), 0);
    return of(names.slice(0, names.length > 8 ? 7 : 8)) >= 0.5 * of(names);
  });
  return fleetView.by ?? found ?? "state";
}

const FLEET_WORDS = { used: "held by a job", free: "free", boot: "booting", ending: "ending" };

// One block of squares per node and one path per colour, so thousands of GPUs stay a dozen elements.
function fleetGroup(title, nodes, colours, say, part) {
  const gpus = Math.max(...nodes.map((node) => node.gpus));
  const many = nodes.length * gpus > 1500, few = nodes.length * gpus <= 200;
  const side = many ? 4 : few ? 20 : 11, gap = many ? 1 : 2, tall = Math.min(gpus, many ? 8 : 4), wide = Math.ceil(gpus / tall);
  const nodeWidth = wide * (side + gap) + gap * (few ? 4 : 2), nodeHeight = tall * (side + gap) + gap * (few ? 5 : 3);
  const perRow = Math.max(1, Math.floor(Math.min(many || few ? 1100 : 420, room(part)) / nodeWidth));
  const paths = new Map();
  const kindOf = (node, g) => (node.phase === "booting" ? "boot" : node.phase !== "ready" ? "ending" : node.holders[g] ? "used" : "free");
  nodes.forEach((node, n) => {
    const x0 = (n % perRow) * nodeWidth, y0 = Math.floor(n / perRow) * nodeHeight;
    for (let g = 0; g < node.gpus; g++) {
      const kind = kindOf(node, g), colour = kind === "used" && colours ? `f${colours.of.get(node.holders[g][colours.key])}` : kind;
      const inset = kind === "free" || kind === "boot" ? 0.5 : 0, long = side - 2 * inset;
      paths.set(colour, `${paths.get(colour) ?? ""}M${x0 + Math.floor(g / tall) * (side + gap) + inset} ${y0 + (g % tall) * (side + gap) + inset}h${long}v${long}h${-long}z`);
    }
  });
  const used = nodes.reduce((sum, node) => sum + (node.phase === "ready" ? node.used : 0), 0), all = nodes.reduce((sum, node) => sum + node.gpus, 0);
  const booting = nodes.filter((node) => node.phase === "booting").length;
  const width = Math.min(nodes.length, perRow) * nodeWidth, height = Math.ceil(nodes.length / perRow) * nodeHeight;
  const said = `${counted(nodes.length, "node")}, ${number(used)} of ${number(all)} GPUs used${booting ? `, ${number(booting)} booting` : ""}`;
  const view = svg("svg", { class: "natural", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `${title}: ${said}` },
    [...paths].map(([kind, d]) => svg("path", { class: kind, d })));
  const at = (event) => {
    const box = view.getBoundingClientRect(), x = ((event.clientX - box.left) / box.width) * width, y = ((event.clientY - box.top) / box.height) * height;
    const node = nodes[Math.floor(y / nodeHeight) * perRow + Math.floor(x / nodeWidth)];
    const g = Math.floor((x % nodeWidth) / (side + gap)) * tall + Math.floor((y % nodeHeight) / (side + gap));
    return node && g < node.gpus && (y % nodeHeight) < tall * (side + gap) ? [node, g] : [null, 0];
  };
  view.addEventListener("pointermove", (event) => {
    const [node, g] = at(event), holder = node?.holders[g];
    view.classList.toggle("points", Boolean(holder));
    if (node) say(`${node.id}: ${[node.zone, node.market].filter(Boolean).join(", ")}, ${usd(node.usd_per_hour)}/h; GPU ${g}: ${holder ? `job ${holder.id} of ${holder.user}, class ${holder.class}` : FLEET_WORDS[kindOf(node, g)]}`);
  });
  view.addEventListener("click", (event) => {
    const [node, g] = at(event);
    if (node?.holders[g] && !STATIC) location.hash = `#job/${encodeURIComponent(node.holders[g].id)}`;
  });
  return el("div", {}, el("h3", {}, el("strong", {}, title), el("br"), el("span", { class: "soft" }, said)), view);
}

// What nobody works with, in dollars per hour: free GPUs' share of their nodes, and nodes that boot or end.
const idleUsd = (nodes) => nodes.reduce((sum, node) => sum + node.usd_per_hour * (node.phase === "ready" ? 1 - node.used / node.gpus : 1), 0);

function fleetNodes(doc) {
  const named = (columns, row) => Object.fromEntries(columns.map((name, i) => [name, row[i]]));
  const jobs_ = doc.fleet.jobs.map((row) => named(doc.fleet.job_columns, row));
  return doc.fleet.rows.map((row) => {
    const node = named(doc.fleet.columns, row);
    return { ...node, holders: node.jobs.map((place) => jobs_[place] ?? null) };
  });
}

// A small fleet leaves room for the alerts beside it.
const fleetPart = (nodes) => (nodes.reduce((sum, node) => sum + node.gpus, 0) <= 100 ? 7 : 12);
const wide = (part) => (part === 12 ? "" : `w${part}`);

function fleet(doc, nodes) {
  const part = fleetPart(nodes);
  if (!nodes.length) return card("Fleet", wide(part), empty(doc.waiting ? `Nothing is rented, and ${counted(doc.waiting, "job")} ${doc.waiting === 1 ? "waits" : "wait"}: the queue says why.` : "Nothing is rented. Nodes are rented when a job needs them."));
  const groups = new Map();
  for (const node of nodes) {
    const name = [node.type, node.zone, node.market === "on-demand" ? "" : node.market].filter(Boolean).join(" · ");
    groups.set(name, [...(groups.get(name) ?? []), node]);
  }
  const list = nodes.slice(0, 300), by = fleetBy(nodes), colours = by === "state" ? null : fleetColours(nodes, by), idle = idleUsd(nodes);
  const readout = el("p", { class: "readout" }, "Point at a GPU to see whose it is.");
  const jobLink = (name) => el("a", { href: `#job/${encodeURIComponent(name)}` }, el("bdi", {}, name));
  const held = colours ? colours.names.slice(0, colours.names.length > 8 ? 7 : 8).map((name) => [`f${colours.of.get(name)}`, by === "job" && !STATIC ? [jobLink(name), ` (${number(colours.gpus.get(name))})`] : [el("bdi", {}, name), ` (${number(colours.gpus.get(name))})`]]) : [["used", "held by a job"]];
  if (colours && colours.names.length > 8) held.push(["f7", `${number(colours.names.length - 7)} others`]);
  const kinds = new Set(nodes.map((node) => (node.phase === "booting" ? "boot" : node.phase !== "ready" ? "ending" : node.used < node.gpus ? "free" : "")));
  return card(["Fleet ", el("small", {}, `${counted(nodes.length, "node")}, ${usd(nodes.reduce((sum, node) => sum + node.usd_per_hour, 0))}/h${idle >= 0.005 ? `, of which ${usd(idle)}/h is idle or booting` : ""}`)], wide(part),
    el("div", { class: "tools" }, el("span", { class: "soft" }, "Colour by"), segments("Colour by", FLEET_BY, by, (chosen_) => { fleetView.by = chosen_; redraw(); })),
    el("div", { class: "fleet" }, [...groups].sort().map(([name, members]) => fleetGroup(name, members, colours, (words) => { readout.textContent = words; }, part))),
    readout,
    el("ul", { class: "legend" }, [...held, ...["free", "boot", "ending"].filter((kind) => kinds.has(kind)).map((kind) => [kind, FLEET_WORDS[kind]])].map(([kind, said]) =>
      el("li", {}, svg("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, svg("rect", { class: kind, x: 1, y: 1, width: 8, height: 8 })), said))),
    folded_("nodes", "As a table", () => [table([
      ["node", (node) => node.id, "id"], ["type", (node) => node.type], ["zone", (node) => node.zone], ["market", (node) => node.market], ["phase", (node) => node.phase],
      ["GPUs used", (node) => `${node.used} of ${node.gpus}`, "n"], ["jobs", (node) => [...new Set(node.holders.filter(Boolean).map((holder) => holder.id))].flatMap((name, i) => [i ? ", " : "", jobLink(name)])], ["$/h", (node) => usd(node.usd_per_hour), "n"]], list, "Nodes"),
      nodes.length > list.length ? el("p", { class: "soft" }, `The first ${list.length} of ${number(nodes.length)}: `, code("boa instances"), " lists all.") : null]));
}

// Against the plan: the budget's dollars for the whole day or month, and where the forecast ends.
function pace(books, budget, hours) {
  if (!books || !budget) return null;
  const planned = budget * hours, share = books.forecast_usd / planned - 1;
  const kind = books.cap_usd !== null && books.forecast_usd > books.cap_usd ? "bad" : share > 0.1 ? "warn" : "good";
  return { planned, left: planned - books.spent_usd, kind, words: `${share >= 0 ? "+" : "−"}${number(Math.abs(100 * share))} %` };
}

function moneyTile(name, books, at, until, words, ...below) {
  if (!books) return null;
  return tile(name, usd(books.spent_usd), "spent",
    [el("span", { class: at?.kind }, `${usd(books.forecast_usd)} ${until}`), ` ${words}${at ? `; the budget is ${usd(at.planned)} ` : ""}`, at ? el("span", { class: "nowrap" }, `(${at.words})`) : null], ...below.filter(Boolean));
}

// How long money lasts at a rate; `ends` is when its month ends, after which there is new money.
function lasts(left, rate, at, ends) {
  if (!(rate > 0 && left > 0)) return "";
  const seconds = (3600 * left) / rate;
  return `: ${span(seconds)} at the present rate${at + seconds > ends ? ", past the month's end" : ""}`;
}

// What keeps jobs waiting though nothing runs out by itself: people have to look at it, or to wait for a new day.
const HOLDS = { bad: ["denied", "bad-request", "no-price", "loop"], warn: ["cap-day", "cap-month", "cap-hour", "quota", "out-of-stock", "throttled", "budget"] };  // The first one is said.

function verdict(doc) {
  if (doc.fault) return ["bad", "In trouble", doc.fault];
  if (doc.is_down) return ["warn", "Down", "nothing is started until boa down --resume"];
  if (doc.tick === undefined) return ["warn", "Starting", "the first tick is not done yet"];
  const running = doc.running ?? 0, waiting = doc.waiting ?? 0;
  const jobs_ = running + waiting === 0 ? "no jobs" : `${running ? counted(running, "job") : "no job"} ${running > 1 ? "run" : "runs"}${waiting ? `, ${number(waiting)} ${waiting === 1 ? "waits" : "wait"}` : ""}`;
  if (doc.is_observing) return ["warn", "Observing", `${jobs_}; nothing is changed`];
  for (const kind of ["bad", "warn"]) {
    const holds = HOLDS[kind].map((code_) => doc.why.find((why) => why.code === code_)).find(Boolean);
    if (holds) return [kind, "Held back", `${jobs_}: ${holds.said}`];
  }
  return ["good", "Well", jobs_];
}

const week = { at: 0, words: "" };
async function weekBefore() {
  // Two weeks of history need not be asked for every four seconds.
  if (Date.now() - week.at < 300000) return week.words;
  const past = await part(ask("page/history", { hours: 336 })), burnt = past?.series?.usd_per_hour ?? [];
  week.at = Date.now();
  // A week of which the daemon saw little is nothing to compare with.
  const half = Math.floor(burnt.length / 2), isWhole = past?.minutes?.slice(0, half).reduce((sum, minutes) => sum + minutes, 0) > 0.9 * 7 * 24 * 60, spent = (part) => part.reduce((sum, value) => sum + ((value ?? 0) * past.step_seconds) / 3600, 0);
  const before = spent(burnt.slice(0, half)), since = spent(burnt.slice(half));
  week.words = isWhole && before > 0 ? `${usd(since)} for nodes in the last 7 days, ${since >= before ? "+" : "−"}${number(Math.abs(100 * (since / before - 1)))} % against the 7 before` : since > 0 ? `${usd(since)} for nodes in the last 7 days` : "";
  return week.words;
}

function queueTable(rows) {
  return table([
    ["job", (job) => el("a", { href: `#job/${encodeURIComponent(job.id)}` }, job.id), "id"],
    ["user", (job) => job.user],
    ["state", (job) => el("span", { class: `chip ${job.status}` }, job.stalled_since ? "stalled" : job.status)],
    ["GPUs", (job) => (job.gpus ? String(job.gpus) : ""), "n"],
    ["why", (job) => job.why, "wide"],
    ["ends, or starts", (job) => (job.status === "waiting" && job.starts_at ? `starts about ${clock(job.starts_at, job.starts_at - daemonNow() > 43200)}${job.seconds_left === null ? "" : `, runs ${span(job.seconds_left)}`}` : job.seconds_left === null ? "not known" : job.status === "waiting" ? `${span(job.seconds_left)} after its start` : `${clock(daemonNow() + job.seconds_left, job.seconds_left > 43200)} (${span(job.seconds_left)})`), "n full"],
  ], rows, "Jobs");
}

// The next to end and the next to start; the others on demand, so that what follows is seen.
const QUEUE_HEAD = 20;
function queueHead(rows) {
  const waits = rows.filter((job) => job.status === "waiting"), runs = rows.filter((job) => job.status !== "waiting");
  const shown = [...runs.slice(0, Math.max(QUEUE_HEAD, 2 * QUEUE_HEAD - waits.length)), ...waits.slice(0, Math.max(QUEUE_HEAD, 2 * QUEUE_HEAD - runs.length))], rest = rows.filter((job) => !shown.includes(job));
  return [queueTable(shown), rest.length ? folded_("queue", `${number(rest.length)} more`, () => [queueTable(rest)]) : null];
}

// Purses that are nearly used up, or will be; the Money view has all of them.
function tightPurses(doc) {
  const purses = doc.purses ?? [], tight = purses.filter((purse) => purse.spent_usd + purse.reserved_usd >= 0.8 * purse.cap_usd || purse.forecast_usd > purse.cap_usd);
  const more = purses.length - tight.length;
  return [...tight.slice(0, 4).map((purse) => capBar(`${purse.kind} ${purse.name}`, purse, `by ${purse.kind} ${purse.name} this ${purse.window.split(" ")[0]}`)),
    purses.length ? el("p", { class: "soft" }, el("a", { href: "#money" }, `${counted(purses.length, "purse")} of teams and users`), more === purses.length ? ": all have room" : `: ${number(tight.length)} ${tight.length === 1 ? "is" : "are"} nearly used up, or will be`) : null];
}

function alertsCard(alerts, width) {
  const lines = (few) => el("ul", { class: "plainlist" }, few.map((alert) => el("li", {}, el("span", { class: "soft" }, `${clock(alert.at, true)} `), alert.sentence)));
  if (!alerts.length) return card("Alerts", width, empty("Nothing to report."));
  return card("Alerts", width, lines(alerts.slice(0, 3)), alerts.length > 3 ? folded_("alerts", `${number(alerts.length - 3)} before them`, () => [lines(alerts.slice(3))]) : null);
}

const now = {
  title: "Now", every: 4000,
  load: async () => {
    const [doc, past, lastWeek, caps] = await Promise.all([ask("page/now"), part(ask("page/history", { hours: 24 })), weekBefore(), whoAmI().then((may) => (may && me.is_admin ? part(ask("caps")) : null))]);
    return { doc, past, week: lastWeek, caps };
  },
  draw({ doc, past, week: lastWeek, caps }) {
    // Bills and the forecast have what the site costs without nodes, and so has the rate that they are compared with.
    const burn = doc.usd_per_hour ?? 0, rate = burn + (doc.beside_usd_per_hour ?? 0), budget = doc.budget_usd_per_hour, nodes = fleetNodes(doc);
    const burnt = past?.series?.usd_per_hour, [kind, state, words] = verdict(doc), idle = idleUsd(nodes);
    const at = doc.as_of ?? doc.now ?? 0, [begins, ends] = monthOf(at), likely = doc.month_pace, words_ = paceWords(likely);
    const day = doc.books?.day, month = doc.books ? { ...doc.books.month, forecast_usd: likely?.ends_usd[1] ?? doc.books.month.forecast_usd } : null, ofMonth = pace(month, budget, (ends - begins) / 3600);
    const beside = doc.beside_usd_per_hour >= 0.005 ? [`${usd(rate)}/h with the ${usd(doc.beside_usd_per_hour)}/h that is paid without nodes (commitments, gateway, images)`] : [];
    return [el("h1", { class: "verdict" }, el("span", { class: kind }, state), el("span", {}, words), el("small", {}, doc.leader ? `leader: ${doc.leader.host}, process ${doc.leader.pid}` : `${doc.provider} cloud, no other daemon`)),
      el("div", { class: "grid" },
      tile("Now", usd(burn), "/h", ...beside, budget ? `budget ${usd(budget)}/h on average${rate > budget ? "; hours above it are paid by hours below" : ""}` : "no budget is set"),
      moneyTile("Today", day, pace(day, budget, 24), "by midnight UTC", "at the present rate"),
      moneyTile("This month", month, ofMonth, "by its end", words_, ofMonth ? `${usd(Math.max(ofMonth.left, 0))} left${lasts(ofMonth.left, rate, at, ends)}` : null, lastWeek),
      tile("GPUs", number(doc.gpus_used ?? 0), `of ${number(doc.gpus ?? 0)} in use`, `${counted(doc.nodes ?? 0, "node")}${doc.max_instances ? ` of at most ${number(doc.max_instances)}` : ""}${idle >= 0.005 ? `; ${usd(idle)}/h idle or booting` : ""}`),
      doc.books ? card("Caps", "w5", capBar("day", day, "today"), capBar("month", month, "this month", words_), ...tightPurses(doc)) : null,
      card(["Dollars per hour for nodes, last 24 hours"], doc.books ? "w7" : "", burnt ? timeChart({ since: past.since, step: past.step_seconds, height: 190, part: doc.books ? 7 : 12, series: [{ name: "dollars per hour", values: burnt, kind: "line" }], label: "Dollars per hour in the last 24 hours", yName: "$/h", say: usd, marks: budget ? [{ name: "budget", value: budget }] : [] }) : empty(past?.error ?? (past?.minutes.some(Boolean) ? "Nothing was rented in the last 24 hours." : "Nothing was written down yet. A minute after the first tick it begins."))),
      capOrders(caps?.caps),
      fleet(doc, nodes),
      alertsCard(doc.alerts, fleetPart(nodes) === 12 ? "" : "w5"),
      card(["Queue ", el("small", {}, `${counted((doc.running ?? 0) + (doc.waiting ?? 0), "job")}${doc.queue.length >= 200 ? ", the first 200" : ""}`)], "",
        doc.why.length ? el("p", { class: "soft" }, doc.why.map((why) => `${counted(why.jobs, "job")}: ${why.said}`).join(". ") + ".") : null,
        doc.queue.length ? queueHead(doc.queue) : empty("No jobs. Submit one: ", code("boa submit job.yaml"))))];
  },
};
