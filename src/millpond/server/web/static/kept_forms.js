// What was written into a page whose login has ended: kept for this window while its user logs in again, and put back
// on the same page for the same user. Fields of secrets are left out.
"use strict";

const KEPT_FORMS = "millpond-kept-forms";
const nameOf = (field) => field.name || field.dataset.channel || "";
const isKept = (field) => nameOf(field) && !["password", "file", "hidden", "submit", "button"].includes(field.type);

function fieldsOf(form) {
  return [...form.elements].filter(isKept).map((field) => {
    if (["checkbox", "radio"].includes(field.type)) return [nameOf(field), field.checked];
    return [nameOf(field), field.multiple ? [...field.selectedOptions].map((option) => option.value) : field.value];
  });
}

function putBack(form, fields) {
  const present = [...form.elements].filter(isKept);
  if (present.length !== fields.length || present.some((field, place) => nameOf(field) !== fields[place][0])) return;
  fields.forEach(([, value], place) => {
    const field = present[place];
    if (typeof value === "boolean") field.checked = value;
    else if (field.multiple) for (const option of field.options) option.selected = value.includes(option.value);
    else field.value = value;
  });
}

function keepForms() {
  const address = location.pathname + location.search, forms = [...document.forms].map(fieldsOf);
  try { sessionStorage.setItem(KEPT_FORMS, JSON.stringify({ user: said.user, address, forms, state: history.state })); } catch { /* not kept */ }
}

function takeKeptForms() {
  if (!said.user) return; // the page to log in at: they are for the one behind it
  let kept;
  try {
    kept = JSON.parse(sessionStorage.getItem(KEPT_FORMS));
    sessionStorage.removeItem(KEPT_FORMS);
  } catch { return; }
  if (!kept || kept.user !== said.user || kept.address !== location.pathname + location.search) return;
  if (kept.state) history.replaceState({ ...history.state, ...kept.state }, "");
  [...document.forms].forEach((form, place) => { if (kept.forms[place]) putBack(form, kept.forms[place]); });
}

notice.addEventListener("click", (click) => { if (click.target.closest("a[data-again]")) keepForms(); });
takeKeptForms();
