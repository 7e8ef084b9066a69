// The calendar of reservations, in the reader's time zone: drawn from the rows of the list, and anew when these change.
"use strict";

const calendar = document.getElementById("calendar"), list = document.getElementById("reservations");

function dayOf(text) { // a date without a time is midnight here, not in Greenwich
  const day = text ? new Date(`${text}T00:00`) : new Date();
  day.setHours(0, 0, 0, 0);
  return day;
}

function later(day, count) { const moved = new Date(day); moved.setDate(moved.getDate() + count); return moved; }

function piece(name, text = "") { const made = document.createElement("div"); made.className = name; made.textContent = text; return made; }

function draw() {
  const days = Number(calendar.dataset.days), first = dayOf(calendar.dataset.from);
  const edges = days === 1
    ? Array.from({ length: 9 }, (_, step) => new Date(first.getTime() + step * 3 * 3600e3))
    : Array.from({ length: days + 1 }, (_, step) => later(first, step));
  const begin = first.getTime(), whole = edges.at(-1).getTime() - begin;
  const at = (moment) => 100 * Math.min(Math.max((moment - begin) / whole, 0), 1);
  const isNarrow = matchMedia("(max-width: 40em)").matches;
  const named = new Intl.DateTimeFormat(locale, days === 1 ? { hour: "2-digit", minute: "2-digit" } : days === 7 && !isNarrow ? { weekday: "short", day: "numeric", month: "numeric" } : { day: "numeric" });
  const head = piece("days"), lanes = piece("lanes");
  const isNamed = (edge) => !isNarrow || days === 7 || (days === 1 ? edge.getHours() % 6 === 0 : edge.getDay() === 1);
  for (const edge of edges.slice(0, -1)) {
    const day = piece(edge.getDay() % 6 === 0 && days > 1 ? "day weekend" : "day", named.format(edge));
    day.style.left = `${at(edge)}%`;
    if (isNamed(edge)) head.append(day);
    const line = piece("line");
    line.style.left = `${at(edge)}%`;
    lanes.append(line);
  }
  const rows = [...list.querySelectorAll("tr[data-begin]")];
  const queues = [...new Set(rows.map((row) => row.dataset.queue))].sort();
  let drawn = 0;
  for (const row of rows) {
    const from = 1000 * Number(row.dataset.begin), until = 1000 * Number(row.dataset.until);
    if (until <= begin || from >= begin + whole) continue;
    const lane = piece("lane"), bar = document.createElement("a");
    bar.className = `span c-o${queues.indexOf(row.dataset.queue) % 8 + 1}`;
    bar.href = `#${row.id}`;
    bar.append(piece("label", `${row.dataset.name} · ${row.dataset.queue} · ${row.dataset.cards}`));
    bar.title = `${bar.textContent}\n${dates.format(from)} – ${dates.format(until)}`;
    bar.style.left = `${at(from)}%`;
    bar.style.width = `${Math.max(at(until) - at(from), 0.6)}%`;
    lane.append(bar);
    lanes.append(lane);
    drawn += 1;
  }
  if (!drawn) lanes.append(piece("empty", calendar.dataset.none));
  const now = Date.now();
  if (now > begin && now < begin + whole) { const line = piece("now"); line.style.left = `${at(now)}%`; lanes.append(line); }
  calendar.replaceChildren(head, lanes);
  for (const bar of lanes.querySelectorAll(".span")) { // what has no room within the bar stands beside it
    const room = lanes.clientWidth - bar.offsetLeft - bar.offsetWidth;
    if (bar.scrollWidth > bar.clientWidth) bar.classList.add(bar.offsetLeft > room ? "before" : "behind");
  }
}

draw();
new MutationObserver(draw).observe(list, { childList: true, subtree: true, attributes: true, attributeFilter: ["data-begin", "data-until", "data-cards"] });

// ---- making and changing one ----------------------------------------------------------------------------------------

const form = document.getElementById("reserve");
const exact = {}; // the instants of one that is changed, as an input has no seconds

function local(seconds) { // as an input of date and time has it
  const moment = new Date(1000 * seconds);
  return new Date(moment.getTime() - 60e3 * moment.getTimezoneOffset()).toISOString().slice(0, 16);
}

document.addEventListener("click", (click) => {
  const button = click.target.closest("button[data-edit]");
  if (!button || !form) return;
  const known = JSON.parse(button.dataset.edit);
  for (const name of ["name", "cards", "pool"]) form.elements[name].value = known[name];
  if (![...form.elements.queue.options].some((option) => option.value === known.queue)) form.elements.queue.add(new Option(known.queue));
  form.elements.queue.value = known.queue;
  form.elements.models.value = known.models.join(", ");
  for (const name of ["begin", "until"]) {
    form.elements[name].value = local(known[name]);
    exact[name] = { text: form.elements[name].value, seconds: known[name] };
  }
  for (const name of ["whole_nodes", "beyond_guarantee"]) if (form.elements[name]) form.elements[name].checked = known[name];
  form.elements.cards.focus();
});

function unusedName(queue) {
  const taken = new Set([...list.querySelectorAll("tr[data-name]")].map((row) => row.dataset.name));
  let number = 1;
  while (taken.has(`${queue}-${number}`)) number += 1;
  return `${queue}-${number}`;
}

form?.addEventListener("submit", async (submit) => {
  submit.preventDefault();
  const trouble = form.querySelector("[data-trouble]"), given = form.elements;
  const seconds = (name) => (exact[name]?.text === given[name].value ? exact[name].seconds : Math.round(new Date(given[name].value).getTime() / 1000));
  const body = {
    queue: given.queue.value, cards: Number(given.cards.value), until: seconds("until"), pool: given.pool.value || "default",
    models: given.models.value.split(",").map((model) => model.trim()).filter(Boolean), whole_nodes: given.whole_nodes.checked,
    beyond_guarantee: Boolean(given.beyond_guarantee?.checked),
  };
  if (given.begin.value) body.begin = seconds("begin");
  const release = hold(form.querySelector("button.main"));
  trouble.hidden = true;
  try {
    await send(`/api/v1/reservations/${encodeURIComponent(given.name.value.trim() || unusedName(body.queue))}`, JSON.stringify(body), "PUT");
    form.reset();
    await followChange();
    settleAll();
  } catch (error) { trouble.replaceChildren(...marked(error.message)); trouble.hidden = false; }
  finally { release(); }
});
