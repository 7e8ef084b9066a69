// What was written into the forms of a page is kept in its entry of the browser's history, and put back for the same user
// when they are there again: by the button back, by reading the page anew, or after they had to log in again. Fields of
// secrets are left out, those that are as the server made them, and filters, which are in the address.
"use strict";

const KEPT_ENTRY = "millpond-kept-entry";
const nameOf = (field) => field.name || field.dataset.channel || "";
const isKept = (field) => nameOf(field) && !field.form.matches(".filters[method=get]") && !["password", "file", "hidden", "submit", "button"].includes(field.type);

function writtenIn(field) {
  if (["checkbox", "radio"].includes(field.type)) return field.checked === field.defaultChecked ? null : field.checked;
  if (field.options) {
    const options = [...field.options], made = options.filter((option) => option.defaultSelected);
    if (!made.length && !field.multiple) made.push(options[0]);
    return options.every((option) => option.selected === made.includes(option)) ? null : [...field.selectedOptions].map((option) => option.value);
  }
  return field.value === field.defaultValue ? null : field.value;
}

const fieldsOf = (form) => [...form.elements].filter(isKept).map((field) => [nameOf(field), writtenIn(field)]);

function putBack(form, fields) {
  const present = [...form.elements].filter(isKept);
  if (present.length !== fields.length || present.some((field, place) => nameOf(field) !== fields[place][0])) return;
  fields.forEach(([, value], place) => {
    const field = present[place];
    if (typeof value === "boolean") field.checked = value;
    else if (Array.isArray(value)) for (const option of field.options) option.selected = value.includes(option.value);
    else if (value !== null) field.value = value;
  });
}

function keepForms() {
  history.replaceState({ ...history.state, written: { user: said.user, forms: [...document.forms].map(fieldsOf) } }, "");
}

// To log in, or to choose a language, leads on to another entry of the history.
function keepEntry() {
  keepForms();
  const address = location.pathname + location.search;
  try { sessionStorage.setItem(KEPT_ENTRY, JSON.stringify({ address, state: history.state })); } catch { /* not kept */ }
}

function takeEntry() {
  try {
    const kept = JSON.parse(sessionStorage.getItem(KEPT_ENTRY));
    const isOwn = kept.state.written.user === said.user, isHere = kept.address === location.pathname + location.search;
    if (isHere || !isOwn) sessionStorage.removeItem(KEPT_ENTRY); // else there is a page before it, as the one to log in at
    if (isHere && isOwn) history.replaceState({ ...history.state, ...kept.state }, "");
  } catch { /* nothing was kept */ }
}

if (said.user) { // else it is the page to log in at: what is kept is for the one behind it
  takeEntry();
  const written = history.state?.written;
  if (written?.user === said.user) [...document.forms].forEach((form, place) => { if (written.forms[place]) putBack(form, written.forms[place]); });
  for (const change of ["input", "change", "reset"]) addEventListener(change, ({ target }) => { if (target.form || target.elements) setTimeout(keepForms); });
  document.addEventListener("click", (click) => { if (click.target.closest("a[data-again], .languages a")) keepEntry(); });
}
