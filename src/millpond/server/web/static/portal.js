// The portal in the browser: pages that follow the server, and buttons that ask the API. htmx makes the requests, reads
// the stream of changes and takes over what differs; what is here is how the portal wants that done.
//
// Nothing is asked for in vain: the stream says when something has changed; only then is the page read anew, and the
// regions marked `data-live` take over what differs.
"use strict";

const said = document.body.dataset;
const csrf = document.querySelector("meta[name=csrf-token]").content;
const notice = document.getElementById("notice"), main = document.getElementById("main"), live = document.getElementById("live");
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
const shownLocally = (element) => element.nodeName === "TIME";

function ask(path, options = {}) {
  const headers = { "X-CSRF-Token": csrf, "Accept-Language": document.documentElement.lang, ...options.headers };
  return fetch(path, { ...options, credentials: "same-origin", headers });
}

// Commands and fields stand between backticks in what the server says.
function marked(text) {
  return text.split(/`([^`]+)`/).map((part, number) => {
    if (number % 2 === 0) return part;
    const code = document.createElement("code");
    code.textContent = part;
    return code;
  });
}

function tell(text, link) {
  notice.replaceChildren(...marked(text));
  if (link) {
    const a = document.createElement("a");
    a.href = `/portal/login?next=${encodeURIComponent(location.pathname + location.search)}`;
    a.textContent = link;
    notice.append(" ", a);
  }
  notice.classList.remove("good");
  notice.hidden = !text;
}

function inform(text) {
  tell(text);
  notice.classList.add("good");
}

function troubleOf(answer, text) {
  try {
    const error = JSON.parse(text).error;
    const details = (error.details || []).map((each) => `${each.loc} ${each.message}`);
    return [error.cause, ...details, error.remedy].filter(Boolean).join(" – ");
  } catch { return `${answer.status} ${answer.statusText}`; }
}

const troubleIn = async (answer) => troubleOf(answer, await answer.text());

// ---- instants, in the reader's time zone ---------------------------------------------------------------------------

const language = document.documentElement.lang;
// As the reader's browser writes it, where that speaks the language of the page: English is not always American.
const locale = navigator.languages.find((each) => each.split("-")[0] === language.split("-")[0]) ?? language;
const dates = new Intl.DateTimeFormat(locale, { dateStyle: "short", timeStyle: "medium" });
const distances = new Intl.RelativeTimeFormat(language, { numeric: "always", style: "short" });

function distance(seconds) {
  const size = Math.abs(seconds);
  if (size < 90) return distances.format(Math.round(seconds), "second");
  if (size < 5400) return distances.format(Math.round(seconds / 60), "minute");
  if (size < 129600) return distances.format(Math.round(seconds / 3600), "hour");
  return distances.format(Math.round(seconds / 86400), "day");
}

function showTimes(within) {
  for (const each of within.querySelectorAll("time")) {
    const at = new Date(each.dateTime);
    const whole = dates.format(at);
    const text = each.dataset.how === "ago" ? distance((at - Date.now()) / 1000) : whole;
    if (each.textContent !== text) each.textContent = text;
    if (each.title !== whole) each.title = whole;
  }
}

// ---- taking over what differs --------------------------------------------------------------------------------------

// By our own functions: htmx's take longer on the map of thousands of machines than an update may.
function takeAttributes(from, to) {
  for (const { name, value } of to.attributes) {
    if (from.getAttribute(name) === value) continue;
    from.setAttribute(name, value);
    if (name.startsWith("hx-")) htmx.process(from);
  }
  if (from.attributes.length === to.attributes.length) return; // there is nothing beside them
  for (const { name } of [...from.attributes]) {
    const keep = name === "open" || name === "data-htmx-powered" || (name === "title" && shownLocally(from));
    if (!keep && !to.hasAttribute(name)) from.removeAttribute(name);
  }
}

function take(from, to) {
  if (from.isEqualNode(to)) return; // compared by the browser itself, which is many times as fast as what follows
  if (from.nodeType === Node.TEXT_NODE) {
    if (from.nodeValue !== to.nodeValue) from.nodeValue = to.nodeValue;
    return;
  }
  if (from.nodeType !== Node.ELEMENT_NODE) return;
  const moved = shownLocally(from) && from.dateTime !== to.dateTime;
  takeAttributes(from, to);
  if (shownLocally(from)) {
    if (moved) from.textContent = to.textContent;
    return;
  }
  if (from.firstChild || to.firstChild) takeChildren(from, to);
}

const isSame = (one, other) => one && one.nodeType === other.nodeType && one.nodeName === other.nodeName && (one.id || "") === (other.id || "");

function takeChildren(from, to) {
  const known = new Map();
  for (const child of from.children) if (child.id) known.set(child.id, child);
  let place = from.firstChild;
  for (const wanted of [...to.childNodes]) {
    const mine = wanted.id ? known.get(wanted.id) : isSame(place, wanted) ? place : null;
    if (mine && mine.nodeName === wanted.nodeName) {
      if (mine !== place) from.insertBefore(mine, place);
      take(mine, wanted);
      place = mine.nextSibling;
    } else {
      from.insertBefore(wanted, place);
      if (wanted.nodeType === Node.ELEMENT_NODE) htmx.process(wanted);
    }
  }
  while (place) { const next = place.nextSibling; place.remove(); place = next; }
}

// While somebody points at a list, or has gone into it with the keyboard, its rows stay where they are: what is in them
// follows, new rows wait behind a button, and rows that are gone stay, paler. So it is while rows are selected.
const isUsed = (region) => region.dataset.steady !== undefined
  && (region.matches(":hover") || region.contains(document.activeElement) || region.querySelector("tr :checked") !== null);
const waiting = new Map();

function takeSteadily(region, fresh) {
  const rows = new Map([...fresh.querySelectorAll("tr[id]")].map((row) => [row.id, row]));
  let differs = false;
  for (const row of region.querySelectorAll("tr[id]")) {
    const wanted = rows.get(row.id);
    row.classList.toggle("gone", !wanted);
    if (wanted) { take(row, wanted.cloneNode(true)); rows.delete(row.id); } else differs = true;
  }
  differs = differs || rows.size > 0 || !region.querySelector("tr[id]");
  if (differs) waiting.set(region, fresh); else waiting.delete(region);
  showWaiting(region);
}

function showWaiting(region) {
  let button = region.previousElementSibling;
  if (!button || !button.classList.contains("waiting")) {
    button = document.createElement("button");
    button.type = "button";
    button.className = "waiting";
    button.textContent = said.saidNew;
    button.addEventListener("click", () => settle(region));
    region.before(button);
  }
  button.hidden = !waiting.has(region);
}

function settle(region) {
  const fresh = waiting.get(region);
  if (!fresh) return;
  takeWhole(region, fresh);
  showTimes(region);
}

function takeWhole(region, fresh) {
  waiting.delete(region);
  takeChildren(region, fresh);
  if (region.dataset.steady !== undefined) showWaiting(region);
}

for (const region of document.querySelectorAll("[data-steady]")) {
  region.addEventListener("pointerleave", () => { if (!isUsed(region)) settle(region); });
  region.addEventListener("focusout", () => setTimeout(() => { if (!isUsed(region)) settle(region); }));
}

// What scrolls sideways can be reached with the keyboard, and only that.
function makeReachable() {
  for (const each of document.querySelectorAll(".scroll")) {
    if (each.scrollWidth > each.clientWidth) each.tabIndex = 0; else each.removeAttribute("tabindex");
  }
}
addEventListener("resize", makeReachable);

// Nor do rows move where what stands above them grows: then the page is scrolled by as much.
function placeOfRows() {
  const used = [...document.querySelectorAll("[data-steady]")].find(isUsed);
  return used && { used, top: used.getBoundingClientRect().top };
}

function keepPlace(before) {
  if (before) scrollBy({ top: before.used.getBoundingClientRect().top - before.top, behavior: "instant" });
}

// Until a button has led elsewhere, the page is not read anew: what it is about may be gone before the answer comes.
let isLeaving = false, isStale = false;
function leave(is) {
  isLeaving = is;
  if (is) htmx.trigger(main, "htmx:abort"); else followChange();
}

// Read the page anew; one that is not seen, when it is. On a form nothing follows the server.
async function followChange() {
  isStale = document.hidden;
  if (!isStale && !isLeaving && document.querySelector("[data-live]")) await htmx.ajax("GET", location.pathname + location.search, { source: main });
}
document.addEventListener("visibilitychange", () => { if (isStale) followChange(); });

// ---- the stream of changes -----------------------------------------------------------------------------------------

let shown = said.version; // the number of the last change that the page shows
let isLost = false, isLoggedOut = false, tries = 0;

function lose() {
  live.dataset.state = "lost";
  tries += 1;
  if (tries < 2 || isLoggedOut) return;
  isLost = true;
  tell(said.saidLost);
}

function find() {
  live.dataset.state = "live";
  tries = 0;
  if (isLost) tell("");
  isLost = false;
}

function logOut() {
  if (live) live.dataset.state = "lost";
  isLoggedOut = true;
  tell(said.saidOut, said.saidLogin);
}

const isRefused = (answer) => answer.status === 401 || answer.status === 403 || answer.redirected;

// A stream that has begun is begun again by htmx; one that could not begin, here.
function beginAgain() {
  lose();
  setTimeout(() => htmx.trigger(live, "again"), Math.min(250 * 2 ** tries, 15000) * (0.5 + Math.random()));
}

if (live) {
  for (const change of ["hello", "changed"]) {
    live.addEventListener(change, ({ detail }) => {
      if (detail.data === shown) return;
      shown = detail.data;
      followChange();
    });
  }
  live.addEventListener("htmx:sse:after:connection", find);
  live.addEventListener("htmx:sse:before:connection", ({ detail }) => { detail.connection.cancelled = isLoggedOut; });
  live.addEventListener("htmx:sse:error", ({ detail }) => { if (isRefused(detail)) logOut(); else lose(); });
}

// ---- buttons and forms ----------------------------------------------------------------------------------------------

// Of a request that makes something: sent twice, it makes one.
function newKey() { return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join(""); }

async function send(path, body, method = "POST", key = "") {
  const options = { method, headers: key ? { "Idempotency-Key": key } : {} };
  if (body) { options.body = body; options.headers["Content-Type"] = "application/json"; }
  const answer = await ask(path, options);
  if (!answer.ok) throw new Error(await troubleIn(answer));
  return answer;
}

// How htmx does it here. Requests of buttons and lists go to the API: JSON there and back. What a button leads to is in
// data-then (an address) or data-lead (the beginning of one, which the id of what it made completes); else the page is
// read anew. Whoever wants the answer itself listens to `answered`.
function prepare(element, request) {
  if (element === live) request.headers.Accept = "text/event-stream";
  else if (request.method !== "GET") request.headers.Accept = "application/json";
  if (element.dataset.lead) request.headers["Idempotency-Key"] = newKey();
  delete request.headers["HX-Current-URL"]; // as long as the address itself, and nobody reads it
}

function begin(element, { vals, request }) {
  if (request.method === "GET") return;
  const body = vals ?? (element.matches("select") ? { [element.name]: element.value } : null);
  request.body = body && JSON.stringify(body);
  if (body) request.headers["Content-Type"] = "application/json";
  element.disabled = true;
  if (element.dataset.lead || element.dataset.then) leave(true);
}

function end(element, text) {
  const made = text ? JSON.parse(text) : {};
  if (element.dataset.lead) location.assign(element.dataset.lead + encodeURIComponent(made.id));
  else if (element.dataset.then) location.assign(element.dataset.then);
  else { htmx.trigger(element, "answered", made); followChange(); }
}

function fail(element, trouble) {
  if (element.matches("select")) element.value = [...element.options].find((each) => each.defaultSelected)?.value;
  tell(trouble);
  if (isLeaving) leave(false);
}

// Whether the answer is shown where the request says.
function isTaken(element, { request, response: { raw }, text }) {
  if (request.method !== "GET") {
    if (raw.ok) end(element, text); else fail(element, troubleOf(raw, text));
    return false;
  }
  if (element !== main && element !== live) return true;
  if (isRefused(raw)) logOut();
  else if (element === live) beginAgain();
  else if (raw.ok) return !isLeaving;
  else tell(troubleOf(raw, text));
  return false;
}

function miss(element, { request }, error) {
  if (request.method !== "GET") fail(element, error.message);
  else if (element === live) beginAgain();
  else if (element === main) shown = ""; // read when the stream is there again
  else element.textContent = said.saidLost;
}

function takeRegions(page) {
  for (const region of document.querySelectorAll("[data-live]")) {
    const wanted = page.getElementById(region.id);
    if (!wanted) continue;
    if (isUsed(region)) takeSteadily(region, wanted); else takeWhole(region, wanted);
  }
}

htmx.registerExtension("portal", {
  htmx_config_request: (element, { ctx }) => prepare(element, ctx.request),
  htmx_before_request: (element, { ctx }) => begin(element, ctx),
  htmx_after_request: (element, { ctx }) => isTaken(element, ctx),
  htmx_finally_request: (element, { ctx }) => { if (ctx.request.method !== "GET") element.disabled = false; },
  htmx_error: (element, { ctx, error }) => { if (ctx) miss(element, ctx, error); },
  handle_swap: (style, _, page) => {
    if (style !== "live") return false;
    takeRegions(page);
    return [];
  },
});

// Asked here, as htmx would run a question that begins with `js:`.
document.addEventListener("htmx:confirm", (event) => {
  event.preventDefault();
  if (confirm(event.detail.ctx.confirm)) event.detail.issueRequest(); else event.detail.dropRequest();
});
let place = null;
document.addEventListener("htmx:before:swap", () => { place = placeOfRows(); });
document.addEventListener("htmx:after:swap", (event) => {
  showTimes(event.target);
  makeReachable();
  keepPlace(place);
});

for (const form of document.querySelectorAll("form.filters")) {
  form.addEventListener("submit", () => {
    for (const field of form.querySelectorAll("[data-drop-empty]")) field.disabled = !field.value;
    setTimeout(() => { for (const field of form.elements) field.disabled = false; });
  });
}

for (const form of document.querySelectorAll("form#login, form#invited")) {
  form.addEventListener("submit", async (submit) => {
    submit.preventDefault();
    const trouble = form.querySelector("[data-trouble]"), button = form.querySelector("button");
    button.disabled = true;
    try {
      await send("/api/v1/login", JSON.stringify({ ...Object.fromEntries(new FormData(form)), session: true }));
      location.assign(form.dataset.then);
    } catch (error) { trouble.replaceChildren(...marked(error.message)); trouble.hidden = false; }
    finally { button.disabled = false; }
  });
}

const forward = document.getElementById("forward");
if (forward) location.replace(forward.href);

document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  try { localStorage.setItem("millpond-theme", root.dataset.theme); } catch { /* it holds for this page */ }
});

showTimes(document);
makeReachable();
setInterval(() => showTimes(document), 10000);
