// Which view is open, when it asks again, and how it says that something is wrong.

const VIEWS = { now, money, decisions, jobs, job, plan, compare };
const shown = STATIC ? ["compare", "plan", "money", "now", "decisions"].filter((name) => NEEDS()[name]?.every((path_) => path_ in STATIC.answers)) : ["now", "money", "decisions", "jobs", "plan"];
const main = document.getElementById("main"), fresh = document.getElementById("freshness"), banner = document.getElementById("banner");
let open = { name: "", of: "" }, data = null, text = "", timer = 0, turn = 0;
// What the daemon last said of itself, since when it has not answered and what was said instead, and a fault of the page's own.
let standing = null, failed = null, pageFault = "", version = null;

function NEEDS() {
  return { compare: ["page/compare"], plan: ["page/frontier"], money: ["page/month"], now: ["page/now"], decisions: ["decisions"] };
}

function route() {
  const [name, of = ""] = location.hash.slice(1).split("/");
  const found = Object.hasOwn(VIEWS, name) && (shown.includes(name) || (name === "job" && of)) ? name : shown[0];
  // A link that was cut off in the middle of a character names nothing.
  try { return { name: found, of: decodeURIComponent(of) }; } catch { return { name: shown[0], of: "" }; }
}

function nav() {
  const here = VIEWS[open.name].parent ?? open.name;
  document.getElementById("nav").replaceChildren(...shown.map((name) => el("a", { href: `#${name}`, "aria-current": name === here ? "page" : null }, VIEWS[name].title)));
  document.title = `${open.of || VIEWS[open.name].title} · BOA`;
}

function redraw() {
  if (data === null) return;
  const focus = document.activeElement?.closest?.("[data-key]")?.dataset.key, caret = document.activeElement?.selectionStart;
  const isOpen = new Set([...main.querySelectorAll("details[open][data-key]")].map((node) => node.dataset.key));
  const scrolled = main.querySelector("[data-scroll]"), follows = !scrolled || scrolled.scrollTop + scrolled.clientHeight >= scrolled.scrollHeight - 8, at = scrolled?.scrollTop;
  let nodes;
  try {
    nodes = VIEWS[open.name].draw(data, open.of).flat(Infinity);
  } catch (error) {
    console.error(error);
    nodes = [empty(`This view cannot be drawn: ${error.message}`)];
  }
  main.replaceChildren(...nodes);
  performance.mark("boa-drawn");
  for (const node of main.querySelectorAll("details[data-key]")) if (isOpen.has(node.dataset.key)) node.open = true;
  // What scrolls sideways can be reached by keyboard.
  for (const node of main.querySelectorAll(".scroll")) if (node.scrollWidth > node.clientWidth + 1) fill(node, { tabindex: "0", role: "group", "aria-label": node.querySelector("table")?.getAttribute("aria-label") ?? "table" }, []);
  const end = main.querySelector("[data-scroll]");
  if (end) end.scrollTop = follows ? end.scrollHeight : at;
  const again = focus && main.querySelector(`[data-key="${CSS.escape(focus)}"]`);
  if (again) {
    again.focus({ preventScroll: true });
    if (caret !== undefined && caret !== null && again.type === "search") again.setSelectionRange(caret, caret);
  }
}

// After ten seconds it says that it is late.
const loading = () => el("div", {}, el("p", { class: "loading" }, "Loading…"), el("p", { class: "empty late" }, "The daemon has not answered yet. It is asked for up to 20 seconds at a time."));

// An instant with its zone; with its day where that is not the daemon's present one.
function stamp(seconds) {
  const at = new Date(seconds * 1000), isToday = at.toDateString() === new Date(daemonNow() * 1000).toDateString();
  return `${isToday ? "" : `${at.toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" })}, `}${at.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short" })}`;
}

function say() {
  const asOf = standing?.as_of, every = standing?.tick_every_seconds ?? 30;
  const isLate = asOf && standing.now - asOf > 3 * every + 60;
  // A request may hang, or this computer may have slept.
  const unanswered = standing && !STATIC ? daemonNow() - standing.now : 0, isSilent = unanswered > (VIEWS[open.name].every ?? 0) / 1000 + PATIENCE_SECONDS + 5;
  const isOld = Boolean(data !== null && (failed || isSilent || isLate));
  fresh.className = STATIC ? "file" : failed || isSilent ? "error" : isLate ? "stale" : "live";
  fresh.textContent = STATIC ? STATIC.title : asOf ? `as of ${stamp(asOf)}${failed || isSilent ? ", not live" : ""}` : "";
  document.body.classList.toggle("old", isOld);
  const notes = [];
  if (data !== null && failed) notes.push(["", `${failed.isRefused ? "The daemon has refused to answer" : "The daemon has not answered"} since ${stamp(failed.at)}: ${failed.said}${/[.!?]$/.test(failed.said) ? "" : "."} What you see is as it was then. It is asked again every few seconds.`]);
  else if (data !== null && isSilent) notes.push(["", `The daemon has not answered for ${span(unanswered)}. What you see is as it was then.`]);
  else if (isLate) notes.push(["", `No tick was done for ${span(standing.now - asOf)}: what you see is as of then. See the daemon's log.`]);
  if (pageFault) notes.push(["", `This page has met an error (${pageFault}). What you see may be wrong: reload it.`]);
  if (standing?.version && version && standing.version !== version) notes.push(["note", `The daemon is now version ${standing.version}: reload this page, which is of ${version}.`]);
  if (standing?.fault) notes.push(["", `The daemon is in trouble: ${standing.fault}`]);
  if (standing?.is_down) notes.push(["note", "boa down was ordered: nothing is started until boa down --resume."]);
  for (const note of standing?.notes ?? []) if (!isLate || !note.startsWith("no tick was done")) notes.push(["note", note]);
  // What a screen reader is told again and again is what has changed.
  const words = notes.map((note) => note.join()).join("\n");
  if (banner.dataset.said !== words) banner.replaceChildren(...notes.map(([kind, said]) => el("p", { class: kind }, said)));
  banner.dataset.said = words;
}

function signIn(message = standing ? "Your session has ended: sign in again." : "") {
  // Figures of the session that has ended do not come back when the window changes its size.
  [data, text, standing, failed] = [null, "", null, null];
  say();
  const input = el("input", { type: "password", autocomplete: "off", required: true, "aria-label": "Token" });
  main.replaceChildren(el("form", { class: "sign card", onsubmit: async (event) => {
    event.preventDefault();
    const answer = await fetch("v1/session", { method: "POST", credentials: "same-origin", headers: { "content-type": "application/json" }, body: JSON.stringify({ token: input.value }), signal: AbortSignal.timeout(PATIENCE_SECONDS * 1000) }).catch((error) => silence(error));
    if (answer.ok) { main.replaceChildren(loading()); return refresh(); }
    signIn(typeof answer === "string" ? answer : answer.status === 401 ? "That is nobody's token." : (await answer.json().catch(() => ({}))).message || `It was refused with status ${answer.status}.`);
  } }, el("h1", {}, "Sign in"), el("p", { class: "soft" }, "A token of the daemon's tokens file. The page only reads, and the session ends after twelve hours."), input, el("button", { type: "submit", class: "plain" }, "Sign in"), message ? el("p", { class: "bad", role: "alert" }, message) : null));
  input.focus();
}

async function refresh() {
  clearTimeout(timer);
  const view = VIEWS[open.name], mine = ++turn;
  try {
    // The first view has in it what the others ask for beside their own: of when the figures are, and what is wrong.
    const [found, own] = await Promise.all([view.load(open.of), STATIC || view === now ? null : ask("page/standing")]);
    if (mine !== turn) return;
    failed = null;
    if (!STATIC) {
      standing = own ?? found.doc;
      daemon.shift = (standing.now ?? Date.now() / 1000) - Date.now() / 1000;
      version ??= standing.version ?? null;
    }
    const fetched = JSON.stringify(found);
    data = found;
    if (fetched !== text) { text = fetched; redraw(); }
    say();
  } catch (error) {
    if (mine !== turn) return;
    if (error.status === 401) return signIn();
    // A job that is not there any more is no old figure.
    if (error.status === 404) data = null;
    failed ??= { at: standing?.now ?? daemonNow() };
    Object.assign(failed, { said: error.message, isRefused: error.status > 0 && error.status < 500 });
    if (data === null) main.replaceChildren(el("h1", { class: "quiet" }, view.title), empty(error.message, /[.!?]$/.test(error.message) ? " " : ". ", error.status === 404 ? el("a", { href: "#jobs" }, "See the list of jobs.") : "It is asked again every few seconds."));
    if (!(error instanceof Refused)) console.error(error);
    say();
  }
  if (!STATIC && view.every) timer = setTimeout(() => (document.hidden ? 0 : refresh()), failed ? 5000 : view.every);
}

// What was chosen changes the picture even where the answer is the same.
function reload() {
  text = "";
  refresh();
}

function go() {
  open = route();
  data = null;
  failed = null;
  text = "";
  nav();
  main.replaceChildren(loading());
  refresh();
}

window.addEventListener("hashchange", () => { go(); main.focus({ preventScroll: true }); window.scrollTo(0, 0); });
window.addEventListener("resize", () => redraw());
document.addEventListener("visibilitychange", () => (document.hidden ? 0 : refresh()));
for (const kind of ["error", "unhandledrejection"]) window.addEventListener(kind, (event) => { pageFault = String(event.message ?? event.reason?.message ?? kind); say(); });
if (!STATIC) setInterval(() => (document.hidden ? 0 : say()), 5000);
window.boa = { solve, curvePoints, csvOf };
go();
