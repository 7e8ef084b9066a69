// The portal in the browser: pages that follow the server, and buttons that ask the API. htmx makes the requests and
// reads the stream of changes; what is here is how the portal wants that done.
//
// Nothing is asked for in vain: the stream says when something has changed; only then is the page read anew, and its
// live regions take over what differs (live_regions.js).
"use strict";

const said = document.body.dataset;
const csrf = document.querySelector("meta[name=csrf-token]").content;
const notice = document.getElementById("notice"), main = document.getElementById("main"), live = document.getElementById("live");
let isLoggedOut = false, isUnread = false; // the page could not be read anew, and that is what was said last
const wait = (ms) => new Promise((done) => setTimeout(done, ms));

async function ask(path, options = {}) {
  const headers = { "X-CSRF-Token": csrf, "Accept-Language": document.documentElement.lang, ...options.headers };
  try { return await fetch(path, { ...options, credentials: "same-origin", headers }); }
  catch (error) { throw error.name === "AbortError" ? error : away(); }
}

// There was no answer, where a browser has but words of its own.
const away = () => Object.assign(new Error(said.saidAway), { isAway: true });

// Commands and fields stand between backticks in what the server says. What a page does in place of a command, it is a
// link to (command_pages.py).
const commands = JSON.parse(said.commands).map(([command, ...page]) => [RegExp(`^(?:${command})$`), ...page]);

function codeOf(text) {
  for (const [command, address, title] of commands) {
    const found = command.exec(text), named = found?.[1] ?? "";
    if (found) return Object.assign(document.createElement("a"), { href: address + encodeURIComponent(named), title: text, textContent: `${title} ${named}`.trim() });
  }
  return Object.assign(document.createElement("code"), { textContent: text });
}

function localInstant(text) {
  const at = new Date(text.replace(" ", "T").replace(/ UTC$/, "Z").replace(" UTC", ""));
  return isNaN(at) ? text : dates.format(at);
}

const marked = (text) => text.split(/`([^`]+)`|(\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)? UTC(?:[+-]\d\d:\d\d)?)/)
  .map((part, number) => part && [String, codeOf, localInstant][number % 3](part)).filter(Boolean);

// To one whose login has ended, with the way to log in again: through this page, which leads there and is led back to.
function tell(text) {
  isUnread = false;
  notice.replaceChildren(...marked(text));
  if (isLoggedOut) {
    const a = document.createElement("a");
    a.href = location.pathname + location.search;
    a.dataset.again = "";
    a.textContent = said.saidLogin;
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
  if (answer.status === 401 && live) {
    logOut();
    return said.saidOut;
  }
  try {
    const error = JSON.parse(text).error;
    const details = (error.details || []).map((each) => `${each.loc} ${each.message}`);
    return [error.cause, ...details, error.remedy].filter(Boolean).join(" – ");
  } catch { return `${answer.status} ${answer.statusText}`; }
}

const troubleIn = async (answer) => troubleOf(answer, await answer.text());

// ---- the page as it is now -------------------------------------------------------------------------------------------

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
addEventListener("pageshow", ({ persisted }) => { if (persisted) location.reload(); }); // as it was when it was left
document.addEventListener("visibilitychange", () => { if (isStale) followChange(); });

// ---- the stream of changes -----------------------------------------------------------------------------------------

let shown = said.version; // the number of the last change that the page shows
let isLost = false, tries = 0, stream, silence;
const SILENCE_MS = 50000; // the server says something every 20 s; of a connection that is cut off a browser hears nothing

// The point beside the user's name, by its colour and in words.
function mark(state, words) {
  live.dataset.state = state;
  live.title = words;
  live.setAttribute("aria-label", words);
}

function lose() {
  mark("lost", said.saidLost);
  tries += 1;
  if (tries < 2 || isLoggedOut) return;
  isLost = true;
  tell(said.saidLost);
}

function find() {
  mark("live", said.saidLive);
  tries = 0;
  if (isLost) tell("");
  isLost = false;
}

function logOut() {
  if (live) mark("lost", said.saidOut);
  if (isLoggedOut && !notice.hidden) return; // said already: another link in its place would lose a click on it
  isLoggedOut = true;
  tell(said.saidOut);
}

function hear() {
  clearTimeout(silence);
  silence = setTimeout(() => { if (!document.hidden) { lose(); stream.reader?.cancel(); } }, SILENCE_MS);
}

const isRefused = (answer) => answer.status === 401 || answer.status === 403 || answer.redirected;

// A stream that has begun is begun again by htmx; one that could not begin, here.
function beginAgain() {
  lose();
  setTimeout(() => htmx.trigger(live, "again"), Math.min(250 * 2 ** tries, 15000) * (0.5 + Math.random()));
}

if (live) {
  for (const word of ["hello", "changed", "alive"]) live.addEventListener(word, hear);
  for (const change of ["hello", "changed"]) {
    live.addEventListener(change, ({ detail }) => {
      if (detail.data === shown) return;
      shown = detail.data;
      followChange();
    });
  }
  live.addEventListener("htmx:sse:after:connection", ({ detail }) => { stream = detail.connection; find(); hear(); });
  live.addEventListener("htmx:sse:before:connection", ({ detail }) => { detail.connection.cancelled = isLoggedOut; });
  live.addEventListener("htmx:sse:error", ({ detail }) => { if (isRefused(detail)) logOut(); else lose(); });
}

// ---- buttons and forms ----------------------------------------------------------------------------------------------

// Of a request that makes something: sent twice, it makes one. Who gets no answer presses the button again: as long as the
// same is asked for, under the same key.
function newKey() { return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join(""); }

const unanswered = new WeakMap();
function keyOf(button, asked = "") {
  if (unanswered.get(button)?.asked !== asked) unanswered.set(button, { asked, key: newKey() });
  return unanswered.get(button).key;
}

async function send(path, body, method = "POST", key = "") {
  const options = { method, headers: key ? { "Idempotency-Key": key } : {} };
  if (body) { options.body = body; options.headers["Content-Type"] = "application/json"; }
  const answer = await ask(path, options);
  if (!answer.ok) throw new Error(await troubleIn(answer));
  return answer;
}

// While it is answered, a control cannot be pressed again, and what was said of the one before is over. Browsers take the
// focus from what is disabled: whoever came by the keyboard has it back, or where the control is gone, on the content.
function hold(...controls) {
  if (!isLost && !isLoggedOut) tell("");
  const focused = controls.find((each) => each.matches(":focus-visible"));
  for (const each of controls) each.disabled = true;
  return () => {
    for (const each of controls) each.disabled = false;
    if (!focused || document.activeElement !== document.body) return;
    (focused.isConnected ? focused : main).focus({ preventScroll: true });
  };
}

// How htmx does it here. Requests of buttons and lists go to the API: JSON there and back. What a button leads to is in
// data-then (an address) or data-lead (the beginning of one, which the id of what it made completes); else the page is
// read anew. Whoever wants the answer itself listens to `answered`.
function prepare(element, request) {
  if (element === live) request.headers.Accept = "text/event-stream";
  else if (request.method !== "GET") request.headers.Accept = "application/json";
  if (element.dataset.lead) request.headers["Idempotency-Key"] = keyOf(element);
  delete request.headers["HX-Current-URL"]; // as long as the address itself, and nobody reads it
}

function begin(element, ctx) {
  const { vals, request } = ctx;
  if (request.method === "GET") return;
  const body = vals ?? (element.matches("select") ? { [element.name]: element.value } : null);
  request.body = body && JSON.stringify(body);
  if (body) request.headers["Content-Type"] = "application/json";
  ctx.release = hold(element);
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

// Parts of a page are shown as they come, also those that say what is wrong; of all else it is said in their place.
function isPart(element, raw, text) {
  if (raw.redirected) logOut();
  else if (raw.headers.get("Content-Type")?.startsWith("text/html")) return true;
  element.textContent = raw.redirected ? said.saidOut : troubleOf(raw, text);
  return false;
}

// Whether the answer is shown where the request says.
function isTaken(element, { request, response: { raw }, text }) {
  if (request.method !== "GET") {
    if (raw.ok) end(element, text); else fail(element, troubleOf(raw, text));
    return false;
  }
  if (element !== main && element !== live) return isPart(element, raw, text);
  if (isRefused(raw)) logOut();
  else if (element === live) beginAgain();
  else if (raw.ok) {
    if (isUnread) tell("");
    return !isLeaving;
  } else {
    tell(troubleOf(raw, text));
    isUnread = true;
  }
  return false;
}

function miss(element, { request }, error) {
  if (request.method !== "GET") fail(element, (error instanceof TypeError ? away() : error).message);
  else if (element === live) beginAgain();
  else if (element === main) shown = ""; // read when the stream is there again
  else element.textContent = said.saidLost;
}

htmx.registerExtension("portal", {
  htmx_config_request: (element, { ctx }) => prepare(element, ctx.request),
  htmx_before_request: (element, { ctx }) => begin(element, ctx),
  htmx_after_request: (element, { ctx }) => isTaken(element, ctx),
  htmx_finally_request: (_, { ctx }) => { if (!isLeaving) ctx.release?.(); },
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
    const trouble = form.querySelector("[data-trouble]"), release = hold(form.querySelector("button"));
    try {
      await send("/api/v1/login", JSON.stringify({ ...Object.fromEntries(new FormData(form)), session: true }));
      location.assign(form.dataset.then);
    } catch (error) { trouble.replaceChildren(...marked(error.message)); trouble.hidden = false; }
    finally { release(); }
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

// What scrolls sideways can be reached with the keyboard, and only that.
function makeReachable() {
  for (const each of document.querySelectorAll(".scroll")) {
    if (each.scrollWidth > each.clientWidth) each.tabIndex = 0; else each.removeAttribute("tabindex");
  }
}
addEventListener("resize", makeReachable);
makeReachable();
