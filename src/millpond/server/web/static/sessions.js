// Sessions: started from a template, and opened in a window of their own that this page has no hold on.
"use strict";

async function startSession(button) {
  const options = document.getElementById("session-options");
  const body = JSON.stringify({ template: button.dataset.start, gpus: button.dataset.gpus, ...Object.fromEntries(new FormData(options)) });
  await send("/portal/sessions", body, "POST", keyOf(button, body));
  unanswered.delete(button);
  inform(options.dataset.saidStarting);
  await followChange();
  document.getElementById("sessions").scrollIntoView({ block: "nearest" });
}

async function openSession(button) {
  const link = await (await send(button.dataset.open)).json();
  window.open(link.open_url || link.open_path, "_blank", "noopener,noreferrer");
}

document.addEventListener("click", async (click) => {
  const button = click.target.closest("button[data-start], button[data-open]");
  if (!button) return;
  const release = hold(button);
  try { await (button.dataset.open ? openSession(button) : startSession(button)); } catch (error) { tell(error.message); }
  finally { release(); }
});

document.getElementById("session-options")?.addEventListener("submit", (submit) => submit.preventDefault());
