// Elements, numbers as people say them, and questions to the daemon.

const SVG = "http://www.w3.org/2000/svg";

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  return fill(node, attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  // Text only: nothing that a job is called ever becomes markup.
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

const number = (value, digits = 0) =>
  value === null || value === undefined ? "–" : value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
// Whole dollars from a thousand on, else cents; two significant digits below ten cents, as a start of seconds costs.
const usdDigits = (size) => (size >= 1000 ? 0 : size >= 0.1 || size < 5e-7 ? 2 : Math.max(2, 1 - Math.floor(Math.log10(size))));
const usd = (value) => (value === null || value === undefined ? "–" : `${value < 0 ? "−" : ""}$${Math.abs(value).toLocaleString("en-US", { minimumFractionDigits: Math.abs(value) < 1000 ? 2 : 0, maximumFractionDigits: usdDigits(Math.abs(value)) })}`);
const amount = (value, unit) => (unit === "gpus" ? `${number(value, 1)} GPUs` : `${usd(value)}/h`);
const counted = (value, noun) => `${number(value)} ${noun}${value === 1 ? "" : "s"}`;

function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 99) return `${Math.round(seconds)} s`;
  if (seconds < 5940) return `${Math.round(seconds / 60)} min`;
  const tenths = (value) => value.toLocaleString("en-US", { maximumFractionDigits: 1 });
  if (seconds < 48 * 3600) return `${tenths(seconds / 3600)} h`;
  return seconds < 730 * 86400 ? `${tenths(seconds / 86400)} days` : `${number(seconds / (365 * 86400))} years`;
}

const two = (value) => String(value).padStart(2, "0");
function clock(seconds, withDay = false) {
  const at = new Date(seconds * 1000);
  const time = `${two(at.getHours())}:${two(at.getMinutes())}`;
  return withDay ? `${at.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${time}` : time;
}

// Days and months of budgets and caps begin at midnight UTC, wherever the reader is.
const clockUtc = (seconds) => `${new Date(seconds * 1000).toLocaleString("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", timeZone: "UTC" }).replace(",", "")} UTC`;

// The first and the last second of an instant's month in UTC, by which budgets and caps count.
function monthOf(seconds) {
  const at = new Date(seconds * 1000), begin = (more) => Date.UTC(at.getUTCFullYear(), at.getUTCMonth() + more, 1) / 1000;
  return [begin(0), begin(1)];
}

const STATIC = (() => {
  const data = document.getElementById("answers");
  return data ? JSON.parse(data.textContent) : null;
})();

class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function ask(path, query = {}) {
  if (STATIC) {
    if (path in STATIC.answers) return STATIC.answers[path];
    throw new Refused(404, "This file holds no such answer.");
  }
  const words = new URLSearchParams(query).toString();
  let answer;
  try {
    answer = await fetch(`v1/${path}${words ? `?${words}` : ""}`, { credentials: "same-origin", cache: "no-store", signal: AbortSignal.timeout(PATIENCE_SECONDS * 1000) });
  } catch (error) {
    throw new Refused(0, silence(error));
  }
  const isOurs = (answer.headers.get("content-type") ?? "").includes("json");
  const document_ = await answer.json().catch((error) => (answer.ok && isOurs ? new Refused(0, silence(error, "The answer was cut off.")) : {}));
  if (document_ instanceof Refused) throw document_;
  if (!answer.ok) throw new Refused(answer.status, document_.message || answer.statusText || `Status ${answer.status}.`);
  // The sign-in page of a proxy, for one, comes with status 200.
  if (!isOurs) throw new Refused(0, "Something else answers in the daemon's place, such as a proxy: reload this page.");
  return document_;
}

const PATIENCE_SECONDS = 20;
function silence(error, otherwise = "The daemon does not answer.") {
  if (error.name === "TimeoutError") return `The daemon has not answered within ${PATIENCE_SECONDS} s.`;
  return navigator.onLine === false ? "This browser is offline." : otherwise;
}

// A part of a view that is refused leaves the other parts; a daemon that is silent, or does not know who asks, leaves none.
const part = (asking) => asking.catch((error) => {
  if (STATIC) return null;
  if (error.status === 0 || error.status === 401 || error.status === undefined) throw error;
  return { error: error.message };
});

// The daemon's clock by its last answer: a browser's clock may be wrong.
const daemon = { shift: 0 };
const daemonNow = () => Date.now() / 1000 + daemon.shift;

function card(title, width, ...children) {
  return el("section", { class: `card ${width}` }, title === null ? null : el("h2", {}, title), ...children);
}

function tile(title, value, unit, ...below) {
  return el("section", { class: "card tile w3" }, el("h2", {}, title), el("div", { class: "value" }, value, unit.startsWith("/") ? "" : " ", el("small", {}, unit)), ...below.map((one) => el("p", { class: "soft" }, one)));
}

// A name in its own direction; a long one is broken over lines, a short one never.
function named(said) {
  const node = el("bdi", {}, said);
  if (node.textContent.length > 24) node.className = "name";
  return node;
}

// Whatever people have named stands apart from the words around it: "id", and texts in columns without a class.
const shown_ = (value, kind) => (kind === "id" || (kind === undefined && typeof value === "string") ? named(value) : value);

// Columns: [heading, cell of a row, class]; on a narrow screen rows become blocks.
function table(columns, rows, caption) {
  const head = el("tr", {}, columns.map(([name, , kind]) => el("th", { scope: "col", class: kind }, name)));
  const body = rows.map((row) =>
    el("tr", { class: row.isMine ? "me" : row.isSum ? "sum" : null }, columns.map(([name, cell, kind]) => el("td", { class: kind, "data-head": name }, shown_(cell(row), kind)))));
  return el("div", { class: "scroll" }, el("table", { class: "stack", "aria-label": caption }, el("thead", {}, head), el("tbody", {}, body)));
}

// What is folded is made when it is opened: thousands of cells that nobody sees cost every update.
function folded_(key, title, make) {
  const node = el("details", { "data-key": key, ontoggle: () => (node.open && node.childElementCount === 1 ? fill(node, {}, make()) : 0) }, el("summary", {}, title));
  return node;
}

// The first rows, and the others on demand: of thousands of teams people look for the few that are short.
function longTable(columns, rows, caption, most = 40) {
  const rest = rows.slice(most);
  return [table(columns, rows.slice(0, most), caption), rest.length ? folded_(caption, `${number(rest.length)} more`, () => [table(columns, rest, caption)]) : null];
}

function segments(label, options, chosen, choose) {
  return el("div", { class: "seg", role: "group", "aria-label": label }, options.map(([value, text]) =>
    el("button", { type: "button", "aria-pressed": String(value === chosen), "data-key": `${label}:${value}`, onclick: () => choose(value) }, text)));
}

const empty = (...said) => el("p", { class: "empty" }, ...said);
const code = (text) => el("code", {}, text);

// Files of what is shown, made here: they hold what the view holds, and a saved page can make them too.
function csvOf(rows) {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const cell = (value) => {
    if (value === null || value === undefined) return "";
    // A spreadsheet would run a text that begins like a formula; numbers may begin with a minus.
    const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : Array.isArray(value) ? value.join(" ") : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [names.join(","), ...rows.map((row) => names.map((name) => cell(row[name])).join(","))].join("\r\n") + "\r\n";
}

function saveFile(name, type, text_) {
  const url = URL.createObjectURL(new Blob([text_], { type })), link = el("a", { href: url, download: name, hidden: true });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// `what` is the file's name without its ending; `rows` returns flat objects with units in their names.
function exports_(what, rows, whole = null) {
  const button = (kind, make) => el("button", { type: "button", class: "plain small", "data-key": `export:${what}:${kind}`, "aria-label": `${kind} of ${what}`, onclick: make }, kind);
  return el("span", { class: "exports" }, button("CSV", () => saveFile(`boa-${what}.csv`, "text/csv", csvOf(rows()))), button("JSON", () => saveFile(`boa-${what}.json`, "application/json", JSON.stringify(whole ? whole() : rows(), null, 1))));
}

// A key and its words, for a list of parts.
const key_ = (kind) => svg("svg", { class: "key", viewBox: "0 0 10 10", "aria-hidden": "true" }, svg("rect", { class: kind, width: 10, height: 10, rx: 2 }));
