// Forms that change something over the API. A form names the path (data-send) and the method; the value of
// each of its fields goes into the body under the field's name, turned into what the API takes by data-kind. An answer
// with a secret is shown once, in [data-once]; it is not in the page when that is read anew.
"use strict";

const valueOf = {
  instant: (field) => new Date(field.value).getTime() / 1000,
  number: (field) => Number(field.value),
  days: (field) => Number(field.value) * 86400,
  cards: (field) => Math.round(Number(field.value) * 1000),
  words: (field) => field.value.split(/[\s,]+/).filter(Boolean),
  check: (field) => field.checked,
  chosen: (field) => Array.from(field.selectedOptions, (option) => option.value),
};

function bodyOf(form) {
  const body = {};
  for (const field of form.elements) {
    if (!field.name || field.dataset.path !== undefined || (!field.value && field.type !== "checkbox")) continue;
    const kind = field.dataset.kind || (field.type === "checkbox" ? "check" : "");
    body[field.name] = kind ? valueOf[kind](field) : field.value;
  }
  return body;
}

// A path may have the value of a field in it, as /api/v1/groups/{group}/members/{user}.
function pathOf(form) {
  return form.dataset.send.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(form.elements[name].value));
}

async function change(path, method, body) {
  const answer = await ask(path, { method, body: body === undefined ? undefined : JSON.stringify(body), headers: body === undefined ? {} : { "Content-Type": "application/json" } });
  if (!answer.ok) throw new Error(await troubleIn(answer));
  return answer.status === 204 ? {} : answer.json();
}

function showOnce(form, answer) {
  const place = document.querySelector(form.dataset.once || "[data-once]");
  const secret = answer.secret || answer.invitation;
  if (!place || !secret) return;
  place.querySelector("[data-secret]").textContent = secret;
  place.querySelector("[data-of]").textContent = answer.user?.name || answer.name || "";
  place.hidden = false;
  place.focus();
}

document.addEventListener("submit", async (submit) => {
  const form = submit.target.closest("form[data-send]");
  if (!form) return;
  submit.preventDefault();
  const trouble = form.querySelector("[data-trouble]"), release = hold(form.querySelector("button"));
  trouble.hidden = true;
  try {
    showOnce(form, await change(pathOf(form), form.dataset.method || "POST", bodyOf(form)));
    form.reset();
    await followChange();
    settleAll();
  } catch (error) { trouble.replaceChildren(...marked(error.message)); trouble.hidden = false; }
  finally { release(); }
});

document.addEventListener("answered", ({ target, detail }) => showOnce(target, detail));

// A test message is a delivery like others, and on the page as such; what comes of it is said when it is known.
document.addEventListener("click", async (click) => {
  const button = click.target.closest("button[data-test]");
  if (!button) return;
  const release = hold(button);
  try {
    let sent = await change(button.dataset.test, "POST");
    for (let looks = 0; sent.state === "waiting" && looks < 120; looks += 1) {
      if (looks === 0) await followChange();
      await wait(500);
      sent = await change(`/api/v1/webhooks/deliveries/${sent.id}`, "GET");
    }
    await followChange();
    if (sent.state === "delivered") inform(button.dataset.said); else if (sent.trouble) tell(`${sent.hook}: ${sent.trouble}`);
  } catch (error) { tell(error.message); }
  finally { release(); }
});
