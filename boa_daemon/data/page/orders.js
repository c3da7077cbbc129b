// Orders: what the page may ask for, each after a question; the word makes it the page's own request.

const me = { at: 0, user: "", is_admin: false, may_order: false, word: "" };
const ordered = { said: "", isBad: false };

async function whoAmI() {
  // Who has not signed in yet is asked about again.
  if (!STATIC && Date.now() - me.at > 300000) Object.assign(me, await ask("page/me").then((doc) => ({ ...doc, at: Date.now() }), () => ({ may_order: false, at: 0 })));
  return me.may_order;
}

async function order(path_, body, done) {
  Object.assign(ordered, { said: "", isBad: false });
  try {
    const answer = await fetch(`v1/${path_}`, { method: "POST", credentials: "same-origin", headers: { "content-type": "application/json", "x-boa-word": me.word }, body: JSON.stringify(body ?? {}), signal: AbortSignal.timeout(20000) });
    const said = await answer.json().catch(() => ({}));
    if (answer.ok) ordered.said = said.changed === false ? "Nothing was to be changed." : done;
    else Object.assign(ordered, { said: said.message || answer.statusText, isBad: true });
    // A session that has ended or was begun anew has another word.
    if (answer.status === 401 || answer.status === 403) me.at = 0;
  } catch {
    Object.assign(ordered, { said: "The daemon does not answer: look whether the order has arrived before you repeat it.", isBad: true });
  }
  await whoAmI();
  reload();
}

// A question with what will happen, and a field where the order has a value; Escape and Cancel leave all as it is.
function question(title, said, button, send, field = null) {
  const input = field && el("input", { type: "number", step: "any", required: !field.optional, min: field.min, value: field.value, "aria-label": field.name, id: "order-value" });
  const box = el("dialog", { class: "card", "aria-labelledby": "order-title" }, el("form", { method: "dialog", onsubmit: (event) => {
    event.preventDefault();
    const value = input ? (input.value === "" ? null : Number(input.value)) : undefined;
    box.close();
    send(value);
  } }, el("h2", { id: "order-title" }, title), el("p", {}, said), input ? el("p", {}, el("label", { for: "order-value" }, `${field.name} `), input) : null,
  el("div", { class: "tools" }, el("button", { type: "submit", class: "plain strong" }, button), el("button", { type: "button", class: "plain", onclick: () => box.close() }, "Leave it as it is"))));
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
}

function orderButton(name, ask_) {
  return el("button", { type: "button", class: "plain", "data-key": `order:${name}`, onclick: ask_ }, name);
}

function orderedNote() {
  return el("p", { class: ordered.isBad ? "bad" : "good", role: "status" }, ordered.said);
}

// For one job: only its user and administrators see the buttons, and the daemon checks again.
function jobOrders(doc) {
  const isOver = !["queued", "running", "cancelling"].includes(doc.status);
  if (STATIC || !me.may_order || isOver || (me.user !== doc.user && !me.is_admin)) return null;
  const path_ = `jobs/${encodeURIComponent(doc.id)}`, isHeld = Boolean(doc.held_by);
  return card("Orders", "", el("div", { class: "tools" },
    orderButton("Resize", () => question(`Resize ${doc.id}`, "It saves a checkpoint and goes on at this width, as soon as budget and caps allow. Empty: the plan chooses.", "Resize", (gpus) => order(`${path_}/resize`, { gpus }, "Ordered. The next tick plans with it."), { name: "GPUs", value: doc.gpus || "", min: 1, optional: true })),
    isHeld ? orderButton("Release", () => question(`Release ${doc.id}`, "It may start again, in its turn.", "Release", () => order(`${path_}/hold`, { is_held: false }, "Released.")))
      : orderButton("Hold", () => question(`Hold ${doc.id}`, doc.gpus ? "It saves a checkpoint, gives its GPUs back and waits until it is released." : "It waits until it is released.", "Hold", () => order(`${path_}/hold`, { is_held: true }, "Ordered to wait."))),
    orderButton("Priority", () => question(`Weight of ${doc.id}`, "The worth of an hour of its time. Twice the weight goes before the others of your purse; the budget stays as it is.", "Set", (weight) => order(`${path_}/weight`, { weight }, "The next tick plans with it."), { name: "Weight", value: doc.weight ?? 1, min: 0 })),
    orderButton("Cancel the job", () => question(`Cancel ${doc.id}?`, "It ends for good. A running job may write a checkpoint first.", "Cancel the job", () => order(`${path_}/cancel`, {}, "Cancelled.")))),
  isHeld ? el("p", { class: "soft" }, `Held by ${doc.held_by}.`) : null, orderedNote());
}

function capOrders(caps) {
  if (STATIC || !me.may_order || !me.is_admin || !caps) return null;
  const row = ([window_, cap]) => orderButton(`Cap of the ${window_}`, () => question(`Cap of the ${window_}`, `In force: ${cap.usd === null ? "none" : usd(cap.usd)}. The settings say ${cap.usd_in_settings === null ? "none" : usd(cap.usd_in_settings)}; a higher cap is a matter of the settings and their consent. Empty: as the settings say.`, "Set", (dollars) => order(`caps/${window_}`, { usd: dollars }, "The next tick keeps it."), { name: "Dollars", value: cap.usd ?? "", min: 0, optional: true }));
  return card("Caps by order", "", el("div", { class: "tools" }, Object.entries(caps).map(row)), orderedNote());
}
