// The output of a job as it is written: followed, searched, and led through from error to error. The newest lines are
// kept in view; `pond logs` has all of them.
"use strict";

const MOST_LINES = 5000, FIRST_LINES = 1000;
const looksWrong = /(error|exception|traceback|\bfatal|\bfailed|\bkilled|out of memory|segmentation fault|\bnan)\b/i;
const colours = /\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)/g;

class Output {
  constructor(box) {
    this.box = box;
    this.search = document.getElementById("log-search");
    this.follows = document.getElementById("log-follow");
    this.none = document.getElementById("log-none");
    this.open = new Map(); // by task and stream: the line that has no end yet
    this.tasks = new Set(); // those of which something has come
    this.serial = 0;
    this.search.addEventListener("input", () => this.filter());
    document.getElementById("log-task").addEventListener("change", () => this.begin());
    document.getElementById("log-attempt").addEventListener("change", () => this.begin());
    document.getElementById("log-error").addEventListener("click", () => this.nextError());
    this.follows.addEventListener("change", () => this.toEnd());
    box.addEventListener("scroll", () => {
      if (this.follows.checked && box.scrollTop + box.clientHeight < box.scrollHeight - 60) this.follows.checked = false;
    });
    this.begin();
  }

  async begin() {
    const serial = ++this.serial;
    this.stop?.abort();
    this.box.replaceChildren();
    this.open.clear();
    this.tasks.clear();
    this.isCut = this.wantsError = false;
    this.tellNone();
    const task = document.getElementById("log-task").value, attempt = document.getElementById("log-attempt").value;
    let cursor = "", pause = 500;
    while (serial === this.serial) {
      const query = new URLSearchParams({ follow: "true", tail: FIRST_LINES });
      if (task) query.set("task", task);
      if (attempt) query.set("attempt", attempt);
      if (cursor) query.set("cursor", cursor);
      this.stop = new AbortController();
      try {
        const answer = await ask(`${this.box.dataset.log}?${query}`, { signal: this.stop.signal });
        if (!answer.ok) { if (answer.status < 500) { this.note(await troubleIn(answer)); return; } throw new Error(); }
        pause = 500;
        const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        let rest = "", isOver = false;
        for (;;) {
          const { value, done } = await reader.read();
          if (done || serial !== this.serial) break;
          const lines = (rest + value).split("\n");
          rest = lines.pop();
          const chunks = lines.filter(Boolean).map((line) => JSON.parse(line));
          if (chunks.length) { cursor = chunks.at(-1).cursor; this.add(chunks); }
          isOver = isOver || chunks.some((chunk) => chunk.job_over || (attempt && chunk.attempt_over));
        }
        if (serial !== this.serial) return;
        if (isOver) { this.note(said.saidOver); return; }
      } catch { /* the server is away, or this was ended */ }
      if (serial !== this.serial) return;
      await wait(pause);
      pause = Math.min(pause * 2, 15000);
    }
  }

  add(chunks) {
    const fresh = document.createDocumentFragment();
    const several = Number(this.box.dataset.tasks) > 1;
    for (const chunk of chunks) {
      const key = `${chunk.task} ${chunk.stream}`;
      if (!this.tasks.has(chunk.task)) this.isCut ||= chunk.offset > 0;
      this.tasks.add(chunk.task);
      const pieces = chunk.data.replace(colours, "").split("\n");
      pieces.forEach((piece, index) => {
        let line = index === 0 ? this.open.get(key) : null;
        const isLast = index === pieces.length - 1;
        if (!line && !(isLast && piece === "")) {
          line = document.createElement("div");
          if (chunk.stream === "stderr") line.className = "err";
          if (several) line.dataset.task = chunk.task;
          fresh.append(line);
        }
        if (line) line.textContent = (line.textContent + piece).split("\r").filter(Boolean).at(-1) ?? "";
        if (isLast && piece !== "") this.open.set(key, line); else this.open.delete(key);
        if (isLast && piece === "" && index === 0 && line) this.open.set(key, line);
        if (line) this.judge(line);
      });
    }
    this.box.append(fresh);
    while (this.box.childElementCount > MOST_LINES) { this.isCut = true; this.box.firstElementChild.remove(); }
    if (this.isCut) {
      const first = this.box.firstElementChild;
      if (!first.classList.contains("note")) this.box.prepend(this.noteOf(said.saidCut));
    }
    this.tellNone();
    this.toEnd();
  }

  judge(line) {
    line.classList.toggle("wrong", looksWrong.test(line.textContent));
    line.hidden = !line.textContent.toLowerCase().includes(this.search.value.toLowerCase());
  }

  filter() {
    for (const line of this.box.children) this.judge(line);
    this.wantsError = false;
    this.tellNone();
    this.toEnd();
  }

  tellNone() {
    const wanted = this.wantsError ? ".wrong:not([hidden])" : "div:not(.note):not([hidden])";
    this.none.hidden = !(this.wantsError || this.search.value) || this.box.querySelector(wanted) !== null;
  }

  toEnd() { if (this.follows.checked) this.box.scrollTop = this.box.scrollHeight; }

  noteOf(text) { const note = document.createElement("div"); note.className = "note"; note.textContent = text; return note; }

  note(text) { this.box.append(this.noteOf(text)); this.toEnd(); }

  nextError() {
    const wrong = [...this.box.querySelectorAll(".wrong:not([hidden])")];
    this.wantsError = !wrong.length;
    this.tellNone();
    if (!wrong.length) return;
    this.follows.checked = false;
    const at = wrong.indexOf(this.box.querySelector(".here"));
    wrong[at]?.classList.remove("here");
    const next = wrong[(at + 1) % wrong.length];
    next.classList.add("here");
    next.scrollIntoView({ block: "center" });
  }
}

const logBox = document.getElementById("log-lines");
if (logBox) new Output(logBox);
