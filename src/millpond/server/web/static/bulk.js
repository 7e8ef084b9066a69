// Several jobs of a list at once: chosen by their boxes, or all that the filters match. The API says of each what came
// of it; what was refused is listed with the reason.
"use strict";

const bulk = document.getElementById("bulk"), jobs = document.getElementById("jobs");
const TOGETHER = 500, RESULTS_SHOWN = 20;
let matching = null; // ids of all that the filters match, where these are chosen

const boxes = () => [...jobs.querySelectorAll("td.pick input")];
const chosen = () => matching || boxes().filter((each) => each.checked).map((each) => each.value);
const filled = (text, values) => text.replace(/\{(\w+)\}/g, (_, name) => values[name]);

function showChosen() {
  const count = chosen().length, result = document.getElementById("bulk-result");
  bulk.hidden = !count && !result.hasChildNodes();
  document.getElementById("bulk-count").textContent = filled(bulk.dataset.saidChosen, { n: count.toLocaleString(language) });
  for (const button of bulk.querySelectorAll("[data-act]")) button.disabled = !count;
  const curves = document.getElementById("bulk-curves");
  curves.disabled = !count || count > curves.dataset.most;
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

async function chooseMatching(button) {
  const release = hold(button);
  try {
    const answer = await ask(bulk.dataset.matching);
    if (!answer.ok) throw new Error(await troubleIn(answer));
    matching = await answer.json();
    const found = new Set(matching);
    for (const each of boxes()) each.checked = found.has(each.value);
    showChosen();
  } catch (error) { tell(error.message); }
  finally { release(); }
}

function linkTo(job) {
  const link = document.createElement("a");
  link.href = `/portal/jobs/${encodeURIComponent(job)}`;
  link.textContent = job;
  return link;
}

function item(job, text, ...others) {
  const row = document.createElement("li");
  row.append(linkTo(job), ": ", ...marked(text), ...others.map(linkTo));
  return row;
}

function showResult(acted) {
  const refused = acted.filter((each) => each.error), again = acted.filter((each) => each.successor), result = document.getElementById("bulk-result");
  const parts = [filled(bulk.dataset.saidDone, { n: acted.length - refused.length })];
  if (refused.length) parts.push(filled(bulk.dataset.saidRefused, { n: refused.length }));
  const list = document.createElement("ul");
  for (const each of again.slice(0, RESULTS_SHOWN)) list.append(item(each.job, `${bulk.dataset.saidAgain} `, each.successor));
  for (const each of refused.slice(0, RESULTS_SHOWN)) list.append(item(each.job, [each.error.cause, each.error.remedy].filter(Boolean).join(" – ")));
  if (refused.length > RESULTS_SHOWN) list.append("…");
  result.replaceChildren(parts.join(", "), ...(list.hasChildNodes() ? [list] : []));
}

const warn = (leaving) => leaving.preventDefault(); // thousands take seconds, and those behind would be left out

async function act(control, priority) {
  const ids = chosen(), what = control.dataset.act, acted = [];
  const question = `said${priority ? "Priority" : "Sure"}${ids.length === 1 ? "One" : ""}`;
  const sure = filled(bulk.dataset[question], { act: control.textContent, priority: priority?.textContent, n: ids.length });
  if (!ids.length || !confirm(sure)) return;
  const isByKeyboard = control.matches(":focus-visible"), release = hold(...bulk.querySelectorAll("button, select")), key = keyOf(control, `${what} ${priority?.value} ${ids}`);
  addEventListener("beforeunload", warn);
  try {
    for (let begin = 0; begin < ids.length; begin += TOGETHER) {
      document.getElementById("bulk-result").textContent = filled(bulk.dataset.saidWorks, { done: begin, n: ids.length });
      const body = { act: what, jobs: ids.slice(begin, begin + TOGETHER), swap: what === "suspend" };
      if (priority) body.priority = priority.value;
      acted.push(...(await (await send("/api/v1/jobs/act", JSON.stringify(body), "POST", key)).json()).jobs);
    }
    unanswered.delete(control);
    choose(false);
  } catch (error) { tell(error.message); }
  finally {
    removeEventListener("beforeunload", warn);
    release();
    showResult(acted);
    showChosen();
    if (isByKeyboard && control.disabled) document.getElementById("bulk-result").focus(); // nothing is selected any more
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
bulk.addEventListener("click", (click) => { const button = click.target.closest("button[data-act]"); if (button) act(button); });
bulk.addEventListener("change", async (change) => {
  const list = change.target.closest("select[data-act]"), option = list && list.selectedOptions[0];
  if (!option || !option.value) return;
  await act(list, option);
  list.value = "";
});
document.getElementById("bulk-none").addEventListener("click", ({ target }) => {
  if (target.matches(":focus-visible")) (document.getElementById("pick-page") || main).focus(); // the button hides
  document.getElementById("bulk-result").replaceChildren();
  choose(false);
});
document.getElementById("bulk-curves").addEventListener("click", () => {
  location.assign(`/portal/curves?${new URLSearchParams(chosen().map((job) => ["job", job]))}`);
});
document.getElementById("bulk-all").addEventListener("click", ({ target }) => chooseMatching(target));
new MutationObserver(showChosen).observe(jobs, { childList: true, subtree: true });
showChosen();
