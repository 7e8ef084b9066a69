// The form that keeps the filters of a list of jobs under a name.
"use strict";

document.getElementById("keep").addEventListener("submit", async (submit) => {
  submit.preventDefault();
  const form = submit.target, { name, group } = Object.fromEntries(new FormData(form));
  try {
    const saved = await (await send("/api/v1/views", JSON.stringify({ name, group, query: form.dataset.query }))).json();
    location.assign(`/portal/views/${encodeURIComponent(saved.id)}`);
  } catch (error) { tell(error.message); }
});
