// Several jobs of a list at once: chosen by their boxes, or all that the filters match. The API says of each what came
// of it; what was refused is listed with the reason.
"use strict";

const bulk = document.getElementById("bulk"), jobs = document.getElementById("jobs");
const TOGETHER = 500, REFUSED_SHOWN = 20;
let matching = null; // ids of all that the filters match, where these are chosen

const boxes = () => [...jobs.querySelectorAll("td.pick input")];
const chosen = () => matching || boxes().filter((each) => each.checked).map((each) => each.value);
const filled = (text, values) => text.replace(/\{(\w+)\}/g, (_, name) => values[name]);

function showChosen() {
  const count = chosen().length, result = document.getElementById("bulk-result");
  bulk.hidden = !count && !result.hasChildNodes();
  document.getElementById("bulk-count").textContent = filled(bulk.dataset.saidChosen, { n: count.toLocaleString(language) });
  for (const button of bulk.querySelectorAll("[data-act]")) button.disabled = !count;
  const page = document.getElementById("pick-page"), all = boxes();
  if (page) {
    page.checked = all.length > 0 && all.every((each) => each.checked);
    page.indeterminate = !page.checked && all.some((each) => each.checked);
  }
}

function choose(isChosen) {
  for (const each of boxes()) each.checked = isChosen;
  matching = null;
  showChosen();
}

async function chooseMatching() {
  const answer = await ask(bulk.dataset.matching);
  if (!answer.ok) { tell(await troubleIn(answer)); return; }
  const found = (await answer.json()).jobs.filter((job) => !job.ended_at).map((job) => job.id);
  choose(true);
  matching = found;
  showChosen();
}

function item(job, text) {
  const row = document.createElement("li"), link = document.createElement("a");
  link.href = `/portal/jobs/${encodeURIComponent(job)}`;
  link.textContent = job;
  row.append(link, `: ${text}`);
  return row;
}

function showResult(acted) {
  const refused = acted.filter((each) => each.error), result = document.getElementById("bulk-result");
  const parts = [filled(bulk.dataset.saidDone, { n: acted.length - refused.length })];
  if (refused.length) parts.push(filled(bulk.dataset.saidRefused, { n: refused.length }));
  const list = document.createElement("ul");
  for (const each of refused.slice(0, REFUSED_SHOWN)) list.append(item(each.job, [each.error.cause, each.error.remedy].filter(Boolean).join(" – ")));
  if (refused.length > REFUSED_SHOWN) list.append("…");
  result.replaceChildren(parts.join(", "), ...(refused.length ? [list] : []));
}

async function act(button) {
  const ids = chosen(), what = button.dataset.act, acted = [];
  if (!ids.length || !confirm(filled(bulk.dataset.saidSure, { act: button.textContent, n: ids.length }))) return;
  const buttons = bulk.querySelectorAll("button");
  for (const each of buttons) each.disabled = true;
  try {
    for (let begin = 0; begin < ids.length; begin += TOGETHER) {
      document.getElementById("bulk-result").textContent = filled(bulk.dataset.saidWorks, { done: begin, n: ids.length });
      const body = { act: what, jobs: ids.slice(begin, begin + TOGETHER), swap: what === "suspend" };
      acted.push(...(await (await send("/api/v1/jobs/act", JSON.stringify(body))).json()).jobs);
    }
    choose(false);
  } catch (error) { tell(error.message); }
  finally {
    for (const each of buttons) each.disabled = false;
    showResult(acted);
    showChosen();
    followChange();
  }
}

jobs.addEventListener("change", (change) => {
  if (change.target.id === "pick-page") { choose(change.target.checked); return; }
  if (!change.target.matches("td.pick input")) return;
  matching = null;
  document.getElementById("bulk-result").replaceChildren();
  showChosen();
});
bulk.addEventListener("click", (click) => { const button = click.target.closest("[data-act]"); if (button) act(button); });
document.getElementById("bulk-none").addEventListener("click", () => { document.getElementById("bulk-result").replaceChildren(); choose(false); });
document.getElementById("bulk-all").addEventListener("click", chooseMatching);
new MutationObserver(showChosen).observe(jobs, { childList: true, subtree: true });
showChosen();
