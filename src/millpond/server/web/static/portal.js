// The portal in the browser: pages that follow the server, and buttons that ask the API.
//
// Nothing is asked for in vain: one stream says when something has changed; only then is the page read anew, and the
// regions marked `data-live` take over what differs. The stream is read by fetch and not by an EventSource, as requests
// with a cookie must show a header too, which an EventSource cannot send.
"use strict";

const said = document.body.dataset;
const csrf = document.querySelector("meta[name=csrf-token]").content;
const notice = document.getElementById("notice");
const wait = (ms) => new Promise((done) => setTimeout(done, ms));

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

async function troubleIn(answer) {
  try {
    const error = (await answer.json()).error;
    const details = (error.details || []).map((each) => `${each.loc} ${each.message}`);
    return [error.cause, ...details, error.remedy].filter(Boolean).join(" – ");
  } catch { return `${answer.status} ${answer.statusText}`; }
}

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

const shownLocally = (node) => node.nodeName === "TIME";

function takeAttributes(from, to) {
  for (const { name, value } of to.attributes) if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  if (from.attributes.length === to.attributes.length) return; // there is nothing beside them
  for (const { name } of [...from.attributes]) {
    const keep = name === "open" || (name === "title" && shownLocally(from));
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
    } else from.insertBefore(wanted, place);
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
  waiting.delete(region);
  takeChildren(region, fresh);
  showTimes(region);
  showWaiting(region);
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

function takeRegion(region, wanted) {
  if (isUsed(region)) takeSteadily(region, wanted);
  else { waiting.delete(region); takeChildren(region, wanted); if (region.dataset.steady !== undefined) showWaiting(region); }
  showTimes(region);
}

// Nor do rows move where what stands above them grows: then the page is scrolled by as much.
function keepPlace(change) {
  const used = [...document.querySelectorAll("[data-steady]")].find(isUsed);
  const top = used?.getBoundingClientRect().top;
  change();
  if (used) scrollBy({ top: used.getBoundingClientRect().top - top, behavior: "instant" });
}

async function refresh() {
  if (!document.querySelector("[data-live]")) return; // a form: nothing on it follows the server
  reading = new AbortController();
  const answer = await ask(location.pathname + location.search, { headers: { Accept: "text/html" }, signal: reading.signal });
  if (answer.status === 401 || answer.status === 403 || answer.redirected) { tell(said.saidOut, said.saidLogin); return; }
  if (!answer.ok) { tell(await troubleIn(answer)); return; }
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  keepPlace(() => {
    for (const region of document.querySelectorAll("[data-live]")) {
      const wanted = fresh.getElementById(region.id);
      if (wanted) takeRegion(region, wanted);
    }
  });
  makeReachable();
}

let isStale = false, isRefreshing = false, isLeaving = false, reading = null;
async function followChange() {
  isStale = true;
  if (document.hidden || isRefreshing || isLeaving) return;
  isRefreshing = true;
  try { while (isStale && !document.hidden && !isLeaving) { isStale = false; await refresh(); } }
  catch { isStale = true; }
  finally { isRefreshing = false; }
}
document.addEventListener("visibilitychange", () => { if (!document.hidden && isStale) followChange(); });

// Until a button has led elsewhere, the page is not read anew: what it is about may be gone before the answer comes.
function leave(is) {
  isLeaving = is;
  if (is) reading?.abort();
  else if (isStale) followChange();
}

function dot(state) { const live = document.getElementById("live"); if (live) live.dataset.state = state; }

async function followServer() {
  let pause = 500, isFirst = true;
  for (;;) {
    try {
      const answer = await ask("/portal/stream");
      if (answer.status === 401 || answer.status === 403 || answer.redirected) { dot("lost"); tell(said.saidOut, said.saidLogin); return; }
      if (!answer.ok) throw new Error(answer.statusText);
      dot("live");
      tell("");
      pause = 500;
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        // What has changed since the page was made, or since the stream was lost, was not said.
        const isMissed = value.includes("event: hello") && !(isFirst && value.includes(`data: ${said.version}\n`));
        if (isMissed || value.includes("event: changed")) followChange();
        isFirst = false;
      }
    } catch { /* said below */ }
    dot("lost");
    if (pause > 500) tell(said.saidLost);
    await wait(pause + Math.random() * pause);
    pause = Math.min(pause * 2, 15000);
  }
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

document.addEventListener("click", async (click) => {
  const button = click.target.closest("button[data-post]");
  if (!button || (button.dataset.ask && !confirm(button.dataset.ask))) return;
  button.disabled = true;
  if (button.dataset.lead || button.dataset.then) leave(true);
  try {
    const answer = await send(button.dataset.post, button.dataset.body, button.dataset.method, button.dataset.lead && newKey());
    if (button.dataset.lead) location.assign(button.dataset.lead + encodeURIComponent((await answer.json()).id));
    else if (button.dataset.then) location.assign(button.dataset.then);
    else await followChange();
  } catch (error) { tell(error.message); leave(false); }
  finally { button.disabled = false; }
});

document.addEventListener("change", async (change) => {
  const list = change.target.closest("select[data-change]");
  if (!list) return;
  try { await send(list.dataset.change, JSON.stringify({ [list.dataset.field]: list.value })); await followChange(); }
  catch (error) {
    list.value = [...list.options].find((each) => each.defaultSelected)?.value;
    tell(error.message);
  }
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
if (document.getElementById("live")) followServer();
