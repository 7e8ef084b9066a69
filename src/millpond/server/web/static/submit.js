// A job is written: the form and the text beside it follow each other. The server reads and writes the text; here it is
// only kept. Whatever fails, what was written stays: in the page, and in its entry of the browser's history.
"use strict";

class JobDraft {
  constructor(page) {
    this.page = page;
    this.text = document.getElementById("job-text");
    this.fieldset = page.querySelector("fieldset");
    this.controls = new Map([...page.querySelectorAll("[data-field]")].map((each) => [each.dataset.field, each]));
    this.edits = new Map(); // what was written into the form and is not in the text yet
    this.values = {};
    this.document = "";
    this.seen = null; // what was sent last
    this.isLeaving = false; // to the page of the job that was made
    const kept = history.state?.draft;
    if (kept) {
      this.text.value = kept.text;
      for (const [field, value] of kept.edits) { this.edits.set(field, value); if (this.controls.has(field)) this.controls.get(field).value = value; }
    }
    this.key = kept?.key ?? newKey();
    this.listen();
    if (this.text.value || this.edits.size) this.settle();
  }

  listen() {
    this.text.addEventListener("input", () => this.changed());
    for (const [field, control] of this.controls) {
      control.addEventListener("input", () => { this.edits.set(field, control.value); this.changed(); });
      control.addEventListener("change", () => this.settle());
      control.addEventListener("blur", () => { if (!this.edits.has(field)) control.value = this.values[field] ?? ""; });
    }
    document.getElementById("job-form").addEventListener("submit", (submit) => submit.preventDefault());
    document.getElementById("show-plan").addEventListener("click", (click) => this.busy(click.target, () => this.plan()));
    document.getElementById("submit-job").addEventListener("click", (click) => this.busy(click.target, () => this.submit()));
    document.getElementById("plan").addEventListener("click", (click) => {
      const button = click.target.closest("[data-edit-field]");
      if (!button) return;
      this.edits.set(button.dataset.editField, button.dataset.editValue);
      this.busy(button, () => this.plan());
    });
  }

  changed() {
    this.document = "";
    this.key = newKey();
    this.keep();
    document.getElementById("plan").classList.add("stale");
    this.offer();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.settle(), 350);
  }

  keep() { history.replaceState({ ...history.state, draft: { text: this.text.value, edits: [...this.edits], key: this.key } }, ""); }

  // Everything that was written is in the text, and checked; one request at a time.
  settle() {
    clearTimeout(this.timer);
    this.settling ??= this.settled().finally(() => { this.settling = null; });
    return this.settling;
  }

  async settled() {
    for (let pause = 500; ;) {
      const text = this.text.value, edits = [...this.edits];
      const sent = JSON.stringify({ text, edits: edits.map(([field, value]) => ({ field, value })) });
      if (sent === this.seen) return;
      let answer;
      try {
        answer = await ask("/portal/submit/draft", { method: "POST", body: sent, headers: { "Content-Type": "application/json" } });
        if (answer.status >= 500) throw new Error(answer.statusText);
      } catch {
        this.say(this.page.dataset.saidAway);
        await wait(pause);
        pause = Math.min(pause * 2, 15000);
        continue;
      }
      pause = 500;
      if (!answer.ok) {
        if (answer.status === 401 || answer.status === 403) logOut(); else this.say(await troubleIn(answer));
        return;
      }
      const draft = await answer.json();
      if (this.text.value !== text) continue; // more was written meanwhile
      this.seen = sent;
      this.take(draft, edits);
      if (!this.edits.size) this.seen = JSON.stringify({ text: draft.text, edits: [] });
    }
  }

  take(draft, edits) {
    for (const [field, value] of edits) if (!draft.refused.includes(field) && this.edits.get(field) === value) this.edits.delete(field);
    if (this.text.value !== draft.text) { const top = this.text.scrollTop; this.text.value = draft.text; this.text.scrollTop = top; }
    this.document = draft.document;
    this.fieldset.disabled = draft.values === null;
    if (draft.values) {
      this.values = draft.values;
      for (const [field, control] of this.controls) {
        const value = draft.values[field] ?? "";
        if (!this.edits.has(field) && control !== document.activeElement && control.value !== value) control.value = value;
      }
    }
    this.showProblems(draft);
    this.keep();
    this.offer();
  }

  showProblems(draft) {
    const list = document.getElementById("job-problems");
    list.replaceChildren(...draft.problems.map((problem) => {
      const item = document.createElement("li"), button = document.createElement("button"), place = document.createElement("b");
      button.type = "button";
      const where = this.page.dataset.saidPlace.replace("LINE", problem.line).replace("COLUMN", problem.column);
      place.textContent = [problem.line ? where : "", problem.loc].filter(Boolean).join(" · ");
      button.append(place, place.textContent ? ": " : "", problem.message, problem.hint ? ` – ${problem.hint}` : "");
      button.addEventListener("click", () => this.goTo(problem));
      item.append(button);
      return item;
    }));
    for (const control of this.controls.values()) control.removeAttribute("aria-invalid");
    for (const { loc } of draft.problems) {
      for (let field = loc; field; field = field.includes(".") ? field.slice(0, field.lastIndexOf(".")) : "") {
        if (this.controls.has(field)) { this.controls.get(field).setAttribute("aria-invalid", "true"); break; }
      }
    }
    const many = draft.jobs > 1 ? this.page.dataset.saidMany.replace("COUNT", draft.jobs) : "";
    this.say(draft.values === null ? this.page.dataset.saidMend : draft.document ? [this.page.dataset.saidGood, many, ...draft.warnings].filter(Boolean).join(" ") : "");
  }

  goTo({ line, column, loc }) {
    if (!line) { this.controls.get(loc)?.focus(); return; }
    const lines = this.text.value.split("\n");
    const begin = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0) + column - 1;
    this.text.focus();
    this.text.setSelectionRange(begin, begin + Math.max((lines[line - 1] ?? "").length - column + 1, 0));
    this.text.scrollTop = (line - 4) * this.text.scrollHeight / lines.length;
  }

  say(text) { document.getElementById("job-said").replaceChildren(...marked(text)); }

  offer() { for (const id of ["show-plan", "submit-job"]) document.getElementById(id).disabled = this.isLeaving || !this.document; }

  async busy(button, act) {
    const release = hold(button);
    try { await act(); } catch (error) { tell(error.isAway ? this.page.dataset.saidAway : error.message); }
    finally { if (!this.isLeaving) release(); this.offer(); }
  }

  async plan() {
    await this.settle();
    if (!this.document) return;
    const shown = document.getElementById("plan");
    const body = JSON.stringify({ text: this.text.value });
    const answer = await ask("/portal/submit/plan", { method: "POST", body, headers: { "Content-Type": "application/json" } });
    if (!answer.ok) { shown.replaceChildren(...marked(await troubleIn(answer))); shown.classList.remove("stale"); return; }
    const made = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("plan-of-draft");
    shown.replaceChildren(...made.childNodes);
    shown.classList.remove("stale");
    showTimes(shown);
  }

  async submit() {
    await this.settle();
    if (!this.document) return;
    const old = this.page.dataset.instead;
    if (old && !(await this.waits(old))) throw new Error(this.page.dataset.saidStarted);
    const headers = { "Content-Type": "application/json" };
    if (!JSON.parse(this.document).idempotency_key) headers["Idempotency-Key"] = this.key; // sent twice, it is one job
    const answer = await ask("/api/v1/jobs", { method: "POST", body: this.document, headers });
    if (!answer.ok) throw new Error(await troubleIn(answer));
    const job = await answer.json();
    this.key = newKey();
    this.keep();
    if (old && await this.waits(old)) await send(`/api/v1/jobs/${encodeURIComponent(old)}/stop`);
    this.isLeaving = true;
    location.assign(`/portal/jobs/${encodeURIComponent(job.id)}`);
  }

  async waits(job) {
    const answer = await ask(`/api/v1/jobs/${encodeURIComponent(job)}`);
    if (!answer.ok) throw new Error(await troubleIn(answer));
    return (await answer.json()).state === "queued";
  }
}


new JobDraft(document.getElementById("submit"));
