// How the regions of a page that are marked `data-live` take over what differs from the page as the server makes it now:
// what stays is the element of before, so that nothing loses its focus, its selection or its place under the pointer.
"use strict";

function takeRegions(page) {
  const focused = document.activeElement;
  for (const region of document.querySelectorAll("[data-live]")) {
    const wanted = page.getElementById(region.id);
    if (!wanted) continue;
    if (isUsed(region)) takeSteadily(region, wanted); else takeWhole(region, wanted);
  }
  if (!focused.isConnected) main.focus({ preventScroll: true });
}

// By our own functions: htmx's take longer on the map of thousands of machines than an update may.
function takeAttributes(from, to) {
  const names = to.getAttributeNames(); // strings: a walk over the attributes makes an object of each
  for (const name of names) {
    const value = to.getAttribute(name);
    if (from.getAttribute(name) === value) continue;
    from.setAttribute(name, value);
    if (name.startsWith("hx-")) htmx.process(from);
  }
  if (from.attributes.length === names.length) return; // there is nothing beside them
  for (const name of from.getAttributeNames()) {
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
// follows, new rows wait behind a button, and rows that are gone stay, paler. So it is while rows are selected, and where
// nothing points, as on a phone, while the beginning of the list is scrolled out of view, or it is in view and somebody
// touched the page or came to it a moment ago: on a screen that nobody touches, all follows.
const TOUCHED_MS = 60000;
let touchedAt = performance.now();
const pointsNowhere = matchMedia("(hover: none)");
function isRead(region) {
  if (!pointsNowhere.matches || !region.querySelector("tr[id]")) return false;
  const { top } = region.getBoundingClientRect();
  return top < 0 || (top < innerHeight && performance.now() - touchedAt < TOUCHED_MS);
}
const isUsed = (region) => region.dataset.steady !== undefined
  && (region.matches(":hover") || region.contains(document.activeElement) || region.querySelector("tr :checked") !== null || isRead(region));
const waiting = new Map();
const changesWait = document.getElementById("changes-wait");

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
    button.textContent = document.body.dataset.saidNew;
    button.addEventListener("click", () => {
      const isByKeyboard = button.matches(":focus-visible");
      settle(region);
      if (isByKeyboard) (region.querySelector("a, button, input") || main).focus(); // the button hides
    });
    region.before(button);
  }
  button.hidden = !waiting.has(region);
  const said = waiting.size ? button.textContent : "";
  if (changesWait.textContent !== said) changesWait.textContent = said; // for those who hear the page; once
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

// What its user has just done shows.
function settleAll() { for (const region of [...waiting.keys()]) settle(region); }

function settleUnused() { for (const region of [...waiting.keys()]) if (!isUsed(region)) settle(region); }

for (const region of document.querySelectorAll("[data-steady]")) {
  for (const left of ["pointerleave", "focusout"]) region.addEventListener(left, () => setTimeout(settleUnused));
}
for (const touch of ["touchstart", "scroll"]) addEventListener(touch, () => { touchedAt = performance.now(); }, { passive: true });
addEventListener("scroll", settleUnused, { passive: true });
setInterval(settleUnused, 5000);

// Nor does the row in use move where what stands above it grows, be it another row: then the page is scrolled by as much.
function placeOfRows() {
  const list = [...document.querySelectorAll("[data-steady]")].find(isUsed);
  const used = list && (list.querySelector("tr[id]:hover, tr[id]:focus-within") || list);
  return used && { used, top: used.getBoundingClientRect().top };
}

function keepPlace(before) {
  if (before?.used.isConnected) scrollBy({ top: before.used.getBoundingClientRect().top - before.top, behavior: "instant" });
}
