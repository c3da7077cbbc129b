// Charts as SVG: lines and stacked areas over time, the curve of waiting against money.

const M = { left: 52, right: 14, top: 22, bottom: 26 };

// How wide a chart is on the screen: its text then has the size that it says. `part` of twelve columns.
function room(part = 12) {
  const wide = document.documentElement.clientWidth, inner = Math.min(wide, 1240) - (wide < 800 ? 22 : 40);
  return Math.max(280, Math.floor(wide < 800 ? inner - 28 : (inner + 16) * (part / 12) - 16 - 34));
}

function ticksOf(low, high, count) {
  if (!(high > low)) return [low];
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= raw * 0.999);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-6; at += step) found.push(Math.abs(at) < step * 1e-9 ? 0 : at);
  return found;
}

const scaled = (value, by, sign) => `${(value / by).toLocaleString("en-US", { maximumFractionDigits: 1 })}${sign}`;
const short = (value) => (Math.abs(value) >= 1e9 ? scaled(value, 1e9, "B") : Math.abs(value) >= 1e6 ? scaled(value, 1e6, "M") : Math.abs(value) >= 10000 ? scaled(value, 1000, "k") : number(value, value % 1 === 0 ? 0 : Math.abs(value) < 0.1 ? 3 : Math.abs(value) < 1 ? 2 : 1));

function frame({ x, y, height = 240, part = 12, xText = short, yText = short, xName = "", yName = "", label, xTicks = 6 }) {
  const width = room(part), right = width - M.right, bottom = height - M.bottom;
  const px = (value) => M.left + ((value - x[0]) / (x[1] - x[0] || 1)) * (right - M.left);
  const py = (value) => bottom - ((value - y[0]) / (y[1] - y[0] || 1)) * (bottom - M.top);
  const node = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  for (const at of ticksOf(y[0], y[1], 4)) {
    node.append(svg("line", { class: "tick", x1: M.left, x2: right, y1: py(at), y2: py(at) }), svg("text", { x: M.left - 7, y: py(at) + 4, "text-anchor": "end" }, yText(at)));
  }
  for (const at of ticksOf(x[0], x[1], xTicks)) node.append(svg("text", { x: px(at), y: bottom + 16, "text-anchor": "middle" }, xText(at)));
  node.append(svg("line", { class: "axis", x1: M.left, x2: right, y1: bottom, y2: bottom }));
  if (yName) node.append(svg("text", { x: 2, y: 9 }, yName));
  if (xName) node.append(svg("text", { x: right, y: bottom - 6, "text-anchor": "end" }, xName));
  return { node, px, py, right, bottom, top: M.top, left: M.left };
}

// Round times, local ones or of UTC, at most so many.
function instants(since, until, most, isUtc = false) {
  const steps = [60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 14400, 21600, 43200, 86400, 172800, 345600, 604800, 1209600];
  const step = steps.find((one) => (until - since) / one <= most) ?? 2592000;
  const shift = isUtc ? 0 : new Date(since * 1000).getTimezoneOffset() * 60, found = [];
  for (let at = Math.ceil((since - shift) / step) * step + shift; at <= until; at += step) found.push(at);
  return found;
}

const path = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

// Time series. series: [{name, values, kind: line|area, colour}], stacked if `stacked`. Null values are gaps.
function timeChart({ since, step, series, height = 220, stacked = false, part = 12, label, yName = "", say = (v) => number(v, 2), marks = [], events = [], top = 0 }) {
  const count = series[0]?.values.length ?? 0;
  const has = (i) => series.some((one) => one.values[i] !== null && one.values[i] !== undefined);
  const totals = Array.from({ length: count }, (_, i) => stacked ? series.reduce((sum, one) => sum + (one.values[i] ?? 0), 0) : Math.max(...series.map((one) => one.values[i] ?? 0)));
  const most = Math.max(...totals, ...marks.map((mark) => mark.value), top, 1e-9) * 1.06;
  const until = since + step * count, days = until - since > 36 * 3600;
  const width = room(part);
  const f = frame({ x: [since, until], y: [0, most], height, part, label, yName, xTicks: 0, xText: () => "" });
  for (const at of instants(since, until, Math.max(2, Math.floor(width / (days ? 120 : 75))))) {
    f.node.append(svg("text", { x: Math.min(Math.max(f.px(at), f.left + 16), f.right - 16), y: f.bottom + 16, "text-anchor": "middle" }, days && new Date(at * 1000).getHours() === 0 ? new Date(at * 1000).toLocaleDateString("en-GB", { day: "numeric", month: "short" }) : clock(at, days)));
  }
  const mid = (i) => f.px(since + (i + 0.5) * step);
  const runs = [];
  for (let i = 0; i < count; i++) if (has(i)) (runs.length && runs.at(-1).at(-1) === i - 1 ? runs.at(-1) : (runs.push([]), runs.at(-1))).push(i);
  let below = new Array(count).fill(0);
  series.forEach((one, n) => {
    const above = one.values.map((value, i) => (stacked ? below[i] : 0) + (value ?? 0));
    for (const run of runs) {
      const top = run.map((i) => [mid(i), f.py(above[i])]);
      if (run.length === 1) top.push([top[0][0] + 1, top[0][1]]);
      if (stacked) {
        const floor = run.map((i) => [mid(i), f.py(below[i])]);
        if (run.length === 1) floor.push([floor[0][0] + 1, floor[0][1]]);
        f.node.append(svg("path", { class: `f${(one.colour ?? n) % 8}`, d: `${path(top)}${path(floor.reverse()).replace("M", "L")}Z` }));
      } else f.node.append(svg("path", { class: `line s${(one.colour ?? n) % 8}`, d: path(top) }));
    }
    if (stacked) below = above;
  });
  for (const mark of marks) f.node.append(svg("line", { class: "mark-line", x1: f.left, x2: f.right, y1: f.py(mark.value), y2: f.py(mark.value) }), svg("text", { class: "label", x: f.right, y: f.py(mark.value) - 4, "text-anchor": "end" }, mark.name));
  for (const event of events) f.node.append(svg("line", { class: "event", x1: f.px(event.at), x2: f.px(event.at), y1: f.top, y2: f.bottom }, svg("title", {}, event.name)));
  const readout = el("p", { class: "readout" });
  const cursor = svg("line", { class: "hover", y1: f.top, y2: f.bottom, visibility: "hidden" });
  const look = (i) => {
    if (!has(i)) return;
    cursor.setAttribute("x1", mid(i)); cursor.setAttribute("x2", mid(i)); cursor.setAttribute("visibility", "visible");
    readout.textContent = `${clock(since + (i + 0.5) * step, days)}: ${series.map((one) => `${one.name} ${say(one.values[i] ?? 0)}`).join(", ")}`;
  };
  f.node.append(cursor);
  f.node.addEventListener("pointermove", (event) => {
    const box = f.node.getBoundingClientRect(), at = ((event.clientX - box.left) / box.width) * width;
    look(Math.max(0, Math.min(count - 1, Math.floor(((at - f.left) / (f.right - f.left)) * count))));
  });
  return el("div", { class: "chart" }, f.node, readout, series.length > 1 ? legend(series.map((one, n) => [one.name, (one.colour ?? n) % 8])) : null);
}

function legend(names) {
  return el("ul", { class: "legend" }, names.map(([name, colour]) =>
    el("li", {}, svg("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, svg("rect", { class: `f${colour}`, width: 10, height: 10, rx: 2 })), name)));
}

// A curve of hours against money. points: [[spend, hours]]; marks: [{x, y, name, kind}].
function moneyChart({ points, unit, marks = [], others = [], height = 300, part = 12, label, until, most: tallest }) {
  const low = points[0][0], end = Math.max(until ?? 0, ...marks.map((mark) => mark.x * 1.05), low * 1.05);
  const first = Math.min(low, ...marks.map((mark) => mark.x)), x = [Math.max(0, first - (end - first) * 0.06), end];
  const hours = [...points.filter(([at]) => at <= end).map(([, h]) => h), ...marks.map((mark) => mark.y)];
  const most = Math.min(Math.max(...hours), tallest ?? Infinity) * 1.06;
  const inMinutes = most < 2, per = inMinutes ? 60 : 1;
  const f = frame({ x, y: [0, most * per], height, part, label, yName: `mean ${inMinutes ? "minutes" : "hours"} from arrival to end, by ${unit === "gpus" ? "GPUs" : "dollars per hour"}`, xTicks: room(part) < 400 ? 4 : 7 });
  const line = [...points.filter(([at]) => at <= end), [end, points.filter(([at]) => at <= end).at(-1)[1]]];
  for (const other of others) f.node.append(svg("path", { class: "line thin dash softline", d: path(other.filter(([at]) => at <= end && at >= x[0]).map(([a, h]) => [f.px(a), f.py(Math.min(h, most) * per)])) }));
  f.node.append(svg("path", { class: "line", d: path(line.map(([a, h]) => [f.px(a), f.py(Math.min(h, most) * per)])) }));
  const taken = [];
  for (const mark of marks) {
    const cx = f.px(mark.x), cy = f.py(Math.min(mark.y, most) * per), wide = 7 * mark.name.length;
    const isLeft = cx > (f.left + f.right) * 0.58 || (cx + wide > f.right && cx - wide > 0);
    let ty = mark.kind === "here" ? cy + 20 : cy - 10;
    while (taken.some(([a, b]) => Math.abs(a - cx) < 150 && Math.abs(b - ty) < 14)) ty -= 15;
    taken.push([cx, ty]);
    f.node.append(svg("circle", { class: `dot ${mark.kind}`, cx, cy, r: 6 }, svg("title", {}, mark.name)), svg("text", { class: "label", x: isLeft ? cx - 4 : Math.max(2, Math.min(cx + 4, f.right + M.right - wide)), y: ty, "text-anchor": isLeft ? "end" : "start" }, mark.name));
  }
  return el("div", { class: "chart" }, f.node);
}

function bar(parts, label) {
  const total = parts.reduce((sum, part) => sum + part.value, 0) || 1;
  const node = svg("svg", { viewBox: "0 0 720 22", class: "strip", preserveAspectRatio: "none", role: "img", "aria-label": label });
  let at = 0;
  for (const part of parts) {
    const width = (part.value / total) * 720;
    node.append(svg("rect", { class: `f${part.colour}`, x: at, y: 0, width: Math.max(width - 1.5, 0), height: 22 }, svg("title", {}, `${part.name}: ${Math.round((100 * part.value) / total)} %`)));
    at += width;
  }
  return node;
}
