// Now: burn, caps, fleet, queue, alerts.

function capBar(name, books, when = `this ${name}`) {
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
    el("p", { class: `soft ${over ? "warn" : ""}` }, el("span", {}, `At this rate ${usd(forecast)} at its end${over ? `: the cap will hold it back` : ""}.`)));
}

// Cells of GPUs: one block of squares per node, one path per kind, so thousands of GPUs stay three elements.
function fleetGroup(title, nodes) {
  const gpus = Math.max(...nodes.map((node) => node.gpus));
  const many = nodes.length * gpus > 1500;
  const side = many ? 4 : 11, gap = many ? 1 : 2, tall = Math.min(gpus, many ? 8 : 4), wide = Math.ceil(gpus / tall);
  const nodeWidth = wide * (side + gap) + gap * 2, nodeHeight = tall * (side + gap) + gap * 3;
  const perRow = Math.max(1, Math.floor(Math.min(many ? 1100 : 420, room()) / nodeWidth));
  const paths = { used: "", free: "", boot: "", ending: "" };
  nodes.forEach((node, n) => {
    const x0 = (n % perRow) * nodeWidth, y0 = Math.floor(n / perRow) * nodeHeight;
    for (let g = 0; g < node.gpus; g++) {
      const kind = node.phase === "booting" ? "boot" : node.phase !== "ready" ? "ending" : g < node.used ? "used" : "free";
      const inset = kind === "free" ? 0.5 : 0;
      paths[kind] += `M${x0 + Math.floor(g / tall) * (side + gap) + inset} ${y0 + (g % tall) * (side + gap) + inset}h${side - 2 * inset}v${side - 2 * inset}h${-(side - 2 * inset)}z`;
    }
  });
  const used = nodes.reduce((sum, node) => sum + (node.phase === "ready" ? node.used : 0), 0), all = nodes.reduce((sum, node) => sum + node.gpus, 0);
  const booting = nodes.filter((node) => node.phase === "booting").length;
  const width = Math.min(nodes.length, perRow) * nodeWidth, height = Math.ceil(nodes.length / perRow) * nodeHeight;
  const said = `${counted(nodes.length, "node")}, ${used} of ${all} GPUs used${booting ? `, ${booting} booting` : ""}`;
  const view = svg("svg", { class: "natural", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `${title}: ${said}` },
    Object.entries(paths).map(([kind, d]) => (d ? svg("path", { class: kind, d }) : null)));
  return el("div", {}, el("h3", {}, el("strong", {}, title), el("br"), el("span", { class: "soft" }, said)), view);
}

function fleet(doc) {
  const nodes = doc.fleet.rows.map((row) => Object.fromEntries(doc.fleet.columns.map((name, i) => [name, row[i]])));
  if (!nodes.length) return card("Fleet", "", empty("Nothing is rented. Nodes are rented when a job needs them."));
  const groups = new Map();
  for (const node of nodes) {
    const name = [node.type, node.zone, node.market === "on-demand" ? "" : node.market].filter(Boolean).join(" · ");
    groups.set(name, [...(groups.get(name) ?? []), node]);
  }
  const list = nodes.slice(0, 300);
  return card(["Fleet ", el("small", {}, `${counted(nodes.length, "node")}, ${usd(nodes.reduce((sum, node) => sum + node.usd_per_hour, 0))}/h`)], "",
    el("div", { class: "fleet" }, [...groups].sort().map(([name, members]) => fleetGroup(name, members))),
    el("ul", { class: "legend" }, [["used", "held by a job"], ["free", "free"], ["boot", "booting"], ["ending", "ending"]].map(([kind, said]) =>
      el("li", {}, svg("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, svg("rect", { class: kind, x: 1, y: 1, width: 8, height: 8 })), said))),
    el("details", { "data-key": "nodes" }, el("summary", {}, "As a table"), table([
      ["node", (node) => node.id, "id"], ["type", (node) => node.type], ["zone", (node) => node.zone], ["market", (node) => node.market], ["phase", (node) => node.phase],
      ["GPUs used", (node) => `${node.used} of ${node.gpus}`, "n"], ["$/h", (node) => number(node.usd_per_hour, 2), "n"]], list, "Nodes"),
      nodes.length > list.length ? el("p", { class: "soft" }, `The first ${list.length} of ${number(nodes.length)}: `, code("boa instances"), " lists all.") : null));
}

function queueTable(rows) {
  return table([
    ["job", (job) => el("a", { href: `#job/${encodeURIComponent(job.id)}` }, job.id), "id"],
    ["user", (job) => job.user],
    ["state", (job) => el("span", { class: `chip ${job.status}` }, job.stalled_since ? "stalled" : job.status)],
    ["GPUs", (job) => (job.gpus ? String(job.gpus) : ""), "n"],
    ["why", (job) => job.why, "wide"],
    ["ends", (job) => (job.seconds_left === null ? "not known" : job.status === "waiting" ? `${span(job.seconds_left)} after its start` : `${clock(Date.now() / 1000 + job.seconds_left, job.seconds_left > 43200)} (${span(job.seconds_left)})`), "n"],
  ], rows, "Jobs");
}

const now = {
  title: "Now", every: 4000,
  load: async () => ({ doc: await ask("page/now"), past: await ask("page/history", { hours: 24 }).catch(() => null) }),
  draw({ doc, past }) {
    const burn = doc.usd_per_hour ?? 0, budget = doc.budget_usd_per_hour;
    const free = (doc.gpus ?? 0) - (doc.gpus_used ?? 0);
    const burnt = past?.series.usd_per_hour;
    return [el("div", { class: "grid" },
      tile("Burn", usd(burn), "per hour", budget ? `budget ${usd(budget)}/h on average` : "no budget is set"),
      tile("GPUs", number(doc.gpus_used ?? 0), `of ${number(doc.gpus ?? 0)} in use`, `${counted(doc.nodes ?? 0, "node")}${doc.max_instances ? ` of at most ${doc.max_instances}` : ""}${free ? `, ${counted(free, "GPU")} idle or booting` : ""}`),
      tile("Jobs", number(doc.running ?? 0), "running", `${number(doc.waiting ?? 0)} waiting`),
      tile("Daemon", el("span", { class: doc.fault ? "bad" : doc.is_down ? "warn" : "good" }, doc.fault ? "in trouble" : doc.is_down ? "down" : doc.is_observing ? "observing" : "well"), "", doc.leader ? `leader: ${doc.leader.host}, process ${doc.leader.pid}` : `${doc.provider} cloud, no other daemon`),
      doc.books ? card("Caps", "w5", ...Object.entries(doc.books).map(([name, books]) => capBar(name, books)), ...(doc.purses || []).map((purse) => capBar(`${purse.kind} ${purse.name}`, purse, `by ${purse.kind} ${purse.name} this ${purse.window.split(" ")[0]}`))) : null,
      card(["Burn, last 24 hours"], doc.books ? "w7" : "", burnt ? timeChart({ since: past.since, step: past.step_seconds, height: 190, part: doc.books ? 7 : 12, series: [{ name: "dollars per hour", values: burnt, kind: "line" }], label: "Burn rate of the last 24 hours", yName: "$/h", say: usd, marks: budget ? [{ name: "budget", value: budget }] : [] }) : empty("Nothing was written down yet. A minute after the first tick it begins.")),
      fleet(doc),
      card(["Queue ", el("small", {}, `${counted((doc.running ?? 0) + (doc.waiting ?? 0), "job")}${doc.queue.length >= 200 ? ", the first 200" : ""}`)], "",
        doc.why.length ? el("p", { class: "soft" }, doc.why.map((why) => `${counted(why.jobs, "job")}: ${why.said}`).join(". ") + ".") : null,
        doc.queue.length ? queueTable(doc.queue) : empty("No jobs. Submit one: ", code("boa submit job.yaml"))),
      card("Alerts", "", doc.alerts.length ? el("ul", { class: "plainlist" }, doc.alerts.map((alert) => el("li", {}, el("span", { class: "soft" }, `${clock(alert.at, true)} `), alert.sentence))) : empty("Nothing to report.")))];
  },
};
