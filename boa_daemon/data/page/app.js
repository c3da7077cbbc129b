// Which view is open, when it asks again, and how it says that something is wrong.

const VIEWS = { now, money, decisions, jobs, job, plan, compare };
const shown = STATIC ? ["compare", "money", "plan", "now", "decisions"].filter((name) => NEEDS()[name]?.every((path_) => path_ in STATIC.answers)) : ["now", "money", "decisions", "jobs", "plan"];
const main = document.getElementById("main"), fresh = document.getElementById("freshness"), banner = document.getElementById("banner");
let open = { name: "", of: "" }, data = null, text = "", timer = 0, turn = 0, failedSince = null;

function NEEDS() {
  return { compare: ["page/compare"], plan: ["page/frontier"], money: ["page/frontier"], now: ["page/now"], decisions: ["decisions"] };
}

function route() {
  const [name, of = ""] = location.hash.slice(1).split("/");
  const found = name in VIEWS && (shown.includes(name) || (name === "job" && of)) ? name : shown[0];
  return { name: found, of: decodeURIComponent(of) };
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

function say() {
  const doc = data?.doc ?? data?.curve ?? data, asOf = doc?.as_of, isOld = !STATIC && open.name === "now" && doc?.now - asOf > 3 * (doc?.tick_every_seconds ?? 30) + 60;
  fresh.className = STATIC ? "file" : failedSince ? "error" : isOld ? "stale" : "live";
  fresh.textContent = STATIC ? STATIC.title : asOf ? `as of ${new Date(asOf * 1000).toLocaleTimeString("en-GB", { timeZoneName: "short" })}${failedSince ? ", not live" : ""}` : "";
  const notes = [];
  if (failedSince) notes.push(["", `The daemon has not answered since ${failedSince.at}: ${failedSince.said} What you see is as it was then. It is asked again every few seconds.`]);
  else if (isOld) notes.push(["", `No tick was done for ${span(doc.now - asOf)}: what you see is as of then. See the daemon's log.`]);
  if (doc?.fault) notes.push(["", `The daemon is in trouble: ${doc.fault}`]);
  if (doc?.is_down) notes.push(["note", "boa down was ordered: nothing is started until boa down --resume."]);
  for (const note of doc?.notes ?? []) notes.push(["note", note]);
  banner.replaceChildren(...notes.map(([kind, words]) => el("p", { class: kind }, words)));
}

function signIn(message = "") {
  const input = el("input", { type: "password", autocomplete: "off", required: true, "aria-label": "Token" });
  main.replaceChildren(el("form", { class: "sign card", onsubmit: async (event) => {
    event.preventDefault();
    const answer = await fetch("v1/session", { method: "POST", credentials: "same-origin", headers: { "content-type": "application/json" }, body: JSON.stringify({ token: input.value }) }).catch(() => null);
    if (answer?.ok) { main.replaceChildren(el("p", { class: "loading" }, "Loading…")); refresh(); } else signIn(answer ? "That is nobody's token." : "The daemon does not answer.");
  } }, el("h1", {}, "Sign in"), el("p", { class: "soft" }, "A token of the daemon's tokens file. The page only reads, and the session ends after twelve hours."), input, el("button", { type: "submit", class: "plain" }, "Sign in"), message ? el("p", { class: "bad", role: "alert" }, message) : null));
  input.focus();
}

async function refresh() {
  clearTimeout(timer);
  const view = VIEWS[open.name], mine = ++turn;
  try {
    const found = await view.load(open.of);
    if (mine !== turn) return;
    failedSince = null;
    const fetched = JSON.stringify(found);
    data = found;
    if (fetched !== text) { text = fetched; redraw(); }
    say();
  } catch (error) {
    if (mine !== turn) return;
    if (error.status === 401) return signIn();
    if (error.status === 0 || error.status >= 500) failedSince ??= { at: new Date().toLocaleTimeString("en-GB"), said: error.message };
    if (data === null || error.status === 404) main.replaceChildren(empty(error.message, " ", error.status === 404 ? el("a", { href: "#jobs" }, "See the list of jobs.") : "It is asked again every few seconds."));
    if (!(error instanceof Refused)) console.error(error);
    say();
  }
  if (!STATIC && view.every) timer = setTimeout(() => (document.hidden ? 0 : refresh()), failedSince ? 5000 : view.every);
}

// What was chosen changes the picture even where the answer is the same.
function reload() {
  text = "";
  refresh();
}

function go() {
  open = route();
  data = null;
  text = "";
  nav();
  main.replaceChildren(el("p", { class: "loading" }, "Loading…"));
  refresh();
}

window.addEventListener("hashchange", () => { go(); main.focus({ preventScroll: true }); window.scrollTo(0, 0); });
window.addEventListener("resize", () => redraw());
document.addEventListener("visibilitychange", () => (document.hidden ? 0 : refresh()));
window.boa = { solve, curvePoints, csvOf };
go();
