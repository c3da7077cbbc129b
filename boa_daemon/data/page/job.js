// Jobs: a list to search, and one job with its widths, progress, curve and log.

const find = { text: "", ended: false, limit: 500 };
const MOST_FOUND = 5000, mostDrawn = () => (document.documentElement.clientWidth < 700 ? 60 : 300);
const log = { job: "", node: 0, text: "", next: 0, nodes: 1, said: "" };

const STATUS_WAITS = { queued: "waiting" };

const jobs = {
  title: "Jobs", every: 6000,
  load: () => ask("jobs", { limit: find.limit, ended: find.ended }),
  draw(doc) {
    const words = find.text.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = doc.jobs.filter((job) => words.every((word) => `${job.id} ${job.user} ${job.class} ${job.status}`.toLowerCase().includes(word)));
    return [el("h1", { class: "quiet" }, "Jobs"), card(["Jobs ", el("small", {}, `${number(rows.length)}${doc.next === null || doc.next === undefined ? "" : ` of the newest ${number(doc.jobs.length)}`}${rows.length > mostDrawn() ? `; ${number(mostDrawn())} are listed, words above find the others` : ""}`)], "",
      el("div", { class: "tools" },
        el("input", { type: "search", placeholder: "id, user, class, state", "aria-label": "Search jobs", value: find.text, "data-key": "search", oninput: (event) => { find.text = event.target.value; redraw(); } }),
        segments("Which", [[false, "active"], [true, "also ended"]], find.ended, (ended) => { find.ended = ended; reload(); })),
      rows.length ? table([
        ["job", (job) => el("a", { href: `#job/${encodeURIComponent(job.id)}` }, job.id), "id"], ["user", (job) => job.user], ["class", (job) => job.class],
        ["state", (job) => el("span", { class: `chip ${STATUS_WAITS[job.status] ?? job.status}` }, STATUS_WAITS[job.status] ?? job.status)],
        ["GPUs", (job) => (job.gpus ? `${job.gpus} × ${job.gpu_type}` : ""), "n"], ["step", (job) => (job.step === null ? "" : number(job.step)), "n"],
        ...(rows.some((job) => job.waits_for) ? [["waits for", (job) => (job.waits_for ? `${WAIT_WORDS[job.waits_for] ?? job.waits_for}${job.place_in_queue ? `, number ${number(job.place_in_queue)}` : ""}${job.starts_at ? `, until about ${clock(job.starts_at, job.starts_at - daemonNow() > 43200)}` : ""}` : ""), "full words"]] : []),
        ["arrived", (job) => clock(job.arrived_at, daemonNow() - job.arrived_at > 43200), "n"], ["cost", (job) => usd(job.usd), "n"]], rows.slice(0, mostDrawn()), "Jobs")
        : empty(words.length ? ["No listed job is called that. ", words.length === 1 && /^[a-z0-9-]+-\d+$/i.test(words[0]) ? el("a", { href: `#job/${encodeURIComponent(find.text.trim())}` }, `Open job ${find.text.trim()}`) : null] : "No jobs. Submit one: ", words.length ? null : code("boa submit job.yaml")),
      doc.next !== null && doc.next !== undefined && find.limit < MOST_FOUND ? el("p", {}, el("button", { type: "button", class: "plain", "data-key": "more", onclick: () => { find.limit = Math.min(find.limit * 3, MOST_FOUND); reload(); } }, "Older ones")) : null)];
  },
};

// How a start ended: by whom or what, in a word and a colour.
function endOf(one) {
  if (one.ended_at === null) return ["runs", 2];
  if (!one.end) return ["moved", 0];
  return [one.end, /finish|done|complete/.test(one.end) ? 2 : /fail|lost|kill|fault|error|died|memory/.test(one.end) ? 6 : 0];
}

// The tries as bars on the axis of the charts: width by height, how each ended by colour.
function triesStrip(starts, since, until) {
  const wide = room(7), left = M.left, right = wide - M.right, px = (at) => left + ((at - since) / (until - since || 1)) * (right - left), most = Math.max(...starts.map((one) => one.gpus));
  const node = svg("svg", { viewBox: `0 0 ${wide} 80`, role: "img", "aria-label": `${counted(starts.length, "start")}: ${starts.slice(-12).map((one) => `${one.gpus} × ${one.gpu_type}, ${endOf(one)[0]}`).join("; ")}` }, svg("text", { x: 2, y: 9 }, "starts and moves"), svg("line", { class: "axis", x1: left, x2: right, y1: 76, y2: 76 }));
  for (const one of starts) {
    const x = px(one.started_at), width = Math.max(px(one.ended_at ?? until) - x - 1, 1.5), tall = 12 + 32 * (one.gpus / most), [said, colour] = endOf(one);
    node.append(svg("rect", { class: `f${colour} bar`, x, y: 76 - tall, width, height: tall, rx: 2 }, svg("title", {}, `start ${one.generation}: ${one.gpus} × ${one.gpu_type}, ${clock(one.started_at, true)}, ${span((one.ended_at ?? until) - one.started_at)}: ${said}`)));
    if (width > 24) node.append(svg("text", { class: "label", x: x + width / 2, y: 76 - tall - 4, "text-anchor": "middle" }, String(one.gpus)));
  }
  const shown = [...new Map(starts.map((one) => { const [said, colour] = endOf(one); return [colour, colour === 2 ? "runs or finished" : colour === 6 ? "failed" : said]; }))];
  return el("div", { class: "chart" }, node, legend(shown.map(([colour, said]) => [said, colour])));
}

// The life of a job on one axis: what it held, how fast it went and what it reported, with each new start.
function lifeCharts(doc, until) {
  const starts = doc.generations;
  if (!starts.length) return [empty("It was not started yet.")];
  const since = starts[0].started_at, count = 200, step = Math.max((until - since) / count, 1), n = Math.ceil((until - since) / step);
  const middle = (i) => since + (i + 0.5) * step, of = (read) => Array.from({ length: n }, (_, i) => read(middle(i), i));
  const events = starts.slice(1).map((one) => ({ at: one.started_at, name: `start ${one.generation}: ${one.gpus} × ${one.gpu_type}` }));
  const chart = (name, values, colour, more = {}) => timeChart({ since, step, series: [{ name, values, kind: "line", colour }], height: 120, part: 7, label: `${name} over time`, yName: name, events, ...more });
  const charts = [triesStrip(starts, since, since + n * step)];
  const trail = doc.trail;
  if (trail.length < 2) return [...charts, empty("No steps were reported in this daemon's lifetime. ", code("boa_daemon.job.report(step, loss=…)"), " reports.")];
  const lastBefore = (at) => { let low = 0, high = trail.length; while (low < high) { const mid = (low + high) >> 1; if (trail[mid][0] <= at) low = mid + 1; else high = mid; } return low - 1; };
  const point = (at) => { const i = lastBefore(at); return i < 0 || at > trail.at(-1)[0] + step ? null : trail[i]; };
  // A step below the last one is repeated work after a start, and no speed.
  const speed = of((at) => { const i = lastBefore(at + step / 2), j = Math.max(0, lastBefore(at - step / 2)), gone = i < 1 || at > trail.at(-1)[0] + step ? 0 : trail[i][0] - trail[j === i ? i - 1 : j][0]; return gone > 0 ? Math.max(0, trail[i][1] - trail[j === i ? i - 1 : j][1]) / gone * 60 : null; });
  charts.push(chart("steps per minute", speed, 2, { say: (value) => number(value, 1) }), chart("step", of((at) => point(at)?.[1] ?? null), 5, { say: (value) => number(value) }));
  if (trail.some((one) => one[2] !== null)) charts.push(chart("loss", of((at) => point(at)?.[2] ?? null), 1, { say: (value) => number(value, 4) }));
  if (trail.some((one) => (one[4] ?? null) !== null)) charts.push(chart("GPU use, %", of((at) => { const use = point(at)?.[4] ?? null; return use === null ? null : 100 * use; }), 3, { say: (value) => `${number(value)} %`, top: 100 }));
  return charts;
}

function tries(doc) {
  if (!doc.generations.length) return null;
  return folded_("tries", `Its starts (${doc.generations.length})`, () => [table([
    ["start", (one) => String(one.generation), "n"], ["width", (one) => `${one.gpus} × ${one.gpu_type}`], ["from", (one) => clock(one.started_at, true)],
    ["ran", (one) => span((one.ended_at ?? daemonNow()) - one.started_at), "n"], ["ended", (one) => endOf(one)[0], "wide"]], doc.generations, "Starts")]);
}

const files = { job: "", at: 0, list: null, said: "" };
async function artefacts(name) {
  if (files.job === name && Date.now() - files.at < 30000) return;
  const found = await ask(`jobs/${encodeURIComponent(name)}/artifacts`).then((doc) => ({ list: doc.files, said: "" }), (error) => ({ list: null, said: error.message }));
  Object.assign(files, { job: name, at: Date.now() }, found);
}

function filesCard(name) {
  if (files.job !== name || (!files.list?.length && !files.said)) return card("Files", "", empty("It has left no files yet."));
  return card(["Files ", el("small", {}, files.list ? counted(files.list.length, "file") : "")], "", files.said ? empty(files.said) : table([
    ["file", (one) => el("a", { href: `v1/jobs/${encodeURIComponent(name)}/artifacts/${one.name.split("/").map(encodeURIComponent).join("/")}`, download: one.name.split("/").at(-1) }, one.name), "wide"], ["bytes", (one) => number(one.bytes), "n"]], files.list.slice(0, 200), "Files"));
}

function speedupChart(rows, job) {
  const byType = new Map();
  for (const row of rows) byType.set(row.gpu_type, [...(byType.get(row.gpu_type) ?? []), row]);
  if (!byType.size) return empty("Nothing is known of its class.");
  return [...byType].map(([type, points]) => {
    const most = Math.max(...points.map((row) => Math.max(row.stated, row.high ?? 0, row.estimate ?? 0))) * 1.08, wide = Math.max(...points.map((row) => row.gpus));
    const f = frame({ x: [0, wide * 1.04], y: [0, most], height: 230, part: 5, label: `Speed-up on ${type}`, xName: "GPUs", yName: `speed-up, ${type}`, xTicks: 5 });
    const known = points.filter((row) => row.estimate !== null && row.low !== null);
    if (known.length > 1) f.node.append(svg("path", { class: "band", d: `${path(known.map((row) => [f.px(row.gpus), f.py(row.high)]))}${path(known.toReversed().map((row) => [f.px(row.gpus), f.py(row.low)])).replace("M", "L")}Z` }));
    f.node.append(svg("path", { class: "line thin dash softline", d: path(points.map((row) => [f.px(row.gpus), f.py(row.stated)])) }));
    if (known.length) f.node.append(svg("path", { class: "line", d: path(known.map((row) => [f.px(row.gpus), f.py(row.estimate)])) }));
    for (const row of points) if (row.gpus === job.gpus && type === job.gpu_type) f.node.append(svg("circle", { class: "dot here", cx: f.px(row.gpus), cy: f.py(row.estimate ?? row.stated), r: 6 }, svg("title", {}, "its width now")));
    return f.node;
  });
}

async function tail(name) {
  if (log.job !== name) Object.assign(log, { job: name, node: 0, text: "", next: 0, nodes: 1, said: "" });
  try {
    const chunk = await ask(`jobs/${encodeURIComponent(name)}/logs`, { since: log.next, node: log.node });
    log.text = (log.text + chunk.text).slice(-60000);
    Object.assign(log, { next: chunk.next_offset, nodes: chunk.nodes, said: "" });
  } catch (error) {
    log.said = error.message;
  }
}

// The first sentence answers; the end and the cost stand beside it; everything else can be folded.
function whyCard(doc) {
  const sentences = doc.text.split(/(?<=[.!?]) (?=[A-Z0-9`])/), end = sentences.findIndex((one) => /^It should end in/.test(one));
  // A running job at its planned width has no reason beside the plan's; its row in the queue names the width alone.
  const answer = doc.why && (doc.why.includes(":") || !doc.gpus) ? `${doc.why[0].toUpperCase()}${doc.why.slice(1)}.` : sentences[0];
  const rest = sentences.filter((one, i) => i !== end && one !== answer);
  return card("Why", "w7", el("p", { class: "whole answer" }, answer),
    end > 0 ? el("p", { class: "whole" }, sentences[end]) : null,
    rest.length ? el("details", { "data-key": "why" }, el("summary", {}, `The reasons, with figures (${rest.length})`), el("ul", { class: "reasons" }, rest.map((one) => el("li", {}, one)))) : null,
    STATIC ? null : el("p", { class: "soft" }, el("a", { href: `#decisions/job=${encodeURIComponent(doc.id)}` }, "The decisions about it")));
}

const job = {
  title: "Job", every: 3000, parent: "jobs",
  load: async (name) => {
    const doc = await ask(`page/jobs/${encodeURIComponent(name)}`);
    // Who may not read them is not refused every three seconds.
    await Promise.all([doc.is_readable ? tail(name) : Object.assign(log, { job: name, text: "", said: "Only its user and administrators read its log and files." }), doc.has_files && doc.is_readable ? artefacts(name) : null, whoAmI()]);
    return { doc, log: `${log.next}/${log.node}/${log.said}/${files.at}` };
  },
  draw({ doc }, name) {
    const until = doc.ended_at ?? daemonNow(), status = STATUS_WAITS[doc.status] ?? doc.status;
    const facts = [["state", el("span", { class: `chip ${status}` }, status)], ["user", doc.user], ["class", doc.class], ["holds", doc.gpus ? `${doc.gpus} × ${doc.gpu_type} on ${counted(doc.nodes.length, "node")}` : "nothing"], ["step", number(doc.step)], ["cost so far", usd(doc.usd)],
      ["arrived", clock(doc.arrived_at, true)], ["ran", span(doc.ran_seconds)], ["starts, failures", `${doc.generation}, ${doc.failures}`], doc.lost_gpu_hours >= 0.001 ? ["lost", `${number(doc.lost_gpu_hours, 3)} GPU-hours`] : null].filter(Boolean);
    return [el("h1", {}, name), el("div", { class: "grid" },
      whyCard(doc),
      card("Facts", "w5", el("dl", { class: "facts" }, facts.map(([key, value]) => [el("dt", {}, key), el("dd", {}, value)]))),
      jobOrders(doc),
      card(["Its life ", el("small", {}, "on one axis; dotted: a new start")], "w7", lifeCharts(doc, until), tries(doc)),
      el("div", { class: "w5 column" }, card(["Speed-up of its class ", el("small", {}, "dashed: stated; line with band: measured, 95 %")], "", speedupChart(doc.speedups, doc)),
        doc.has_files && doc.is_readable ? filesCard(name) : null),
      card(["Log ", el("small", {}, "the end of it, live")], "",
        log.nodes > 1 ? el("div", { class: "tools" }, segments("Node", Array.from({ length: Math.min(log.nodes, 16) }, (_, i) => [i, `node ${i}`]), log.node, (node) => { Object.assign(log, { node, text: "", next: 0 }); reload(); })) : null,
        log.said ? empty(log.said) : log.text ? el("pre", { class: "log", tabindex: "0", "data-scroll": "end" }, log.text) : empty("It has printed nothing yet.")))];
  },
};
