// What one is told of: forms whose answer changes the whole page, and the choice of events, which is sent as a whole.
"use strict";

const choice = document.getElementById("choice");

async function attempt(form, button, act) {
  const trouble = form.querySelector("[data-trouble]"), release = hold(button);
  trouble.hidden = true;
  try { await act(); } catch (error) { trouble.replaceChildren(...marked(error.message)); trouble.hidden = false; }
  finally { release(); }
}

function chosenRules() {
  return [...choice.querySelectorAll("tr[data-topic]")].map((row) => {
    const span = row.querySelector("[data-span]"), { topic, queue } = row.dataset;
    const channels = [...row.querySelectorAll("[data-channel]:checked")].map((box) => box.dataset.channel);
    return { topic, queue, channels, span_s: span ? Number(span.value) * 60 : null };
  }).filter((rule) => rule.channels.length);
}

document.addEventListener("submit", (submit) => {
  const form = submit.target.closest("form[data-notify]");
  if (!form) return;
  submit.preventDefault();
  attempt(form, form.querySelector("button"), async () => {
    await change(form.dataset.notify, form.dataset.method, bodyOf(form));
    location.reload();
  });
});

document.addEventListener("click", (click) => {
  const button = click.target.closest("button[data-call]");
  if (!button) return;
  attempt(button.form, button, async () => {
    await change(button.dataset.call, button.dataset.method);
    location.reload();
  });
});

choice?.addEventListener("submit", (submit) => {
  submit.preventDefault();
  attempt(choice, submit.submitter, async () => {
    await change("/api/v1/notifications/rules", "PUT", { rules: chosenRules(), language: choice.dataset.language });
    choice.querySelector("[data-saved]").hidden = false;
  });
});
choice?.addEventListener("input", () => { const saved = choice.querySelector("[data-saved]"); if (saved) saved.hidden = true; });

choice?.querySelector("[data-trial]")?.addEventListener("click", (click) => attempt(choice, click.target, async () => {
  const answer = await change("/api/v1/notifications/trial", "POST");
  const troubles = Object.entries(answer.troubles).map(([channel, trouble]) => `${channel}: ${trouble}`);
  if (troubles.length) throw new Error(troubles.join(" – "));
  inform(click.target.dataset.saidSent);
}));
