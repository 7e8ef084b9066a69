// The output of a job: its newest lines, as they are written, or those around a place, to which a search leads that the
// server makes through all of it.
"use strict";

const MOST_LINES = 5000, FIRST_LINES = 1000;
const MOST_CHARACTERS = 2e6, LONGEST_LINE = 32768; // a longer line goes on in the next
const TOGETHER_MS = 100; // what comes meanwhile is drawn at once
const BYTES_AROUND = 16384; // before a place, and behind it
// A page that is not seen takes none of the few connections that a browser has to one server.
async function seen() {
  while (document.hidden) await new Promise((turn) => document.addEventListener("visibilitychange", turn, { once: true }));
}
const turning = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g; // marks that turn the direction of writing
const visible = (text) => text.replace(turning, (mark) => `\\u${mark.charCodeAt(0).toString(16).padStart(4, "0")}`);
const colours = /\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)/g;

class Output {
  constructor(box) {
    this.box = box;
    this.search = document.getElementById("log-search");
    this.follows = document.getElementById("log-follow");
    this.told = document.getElementById("log-told");
    this.open = new Map(); // by task and stream: the line that has no end yet
    this.tasks = new Set(); // those of which something has come
    this.serial = this.searches = 0; // what is loaded and looked for now; what was asked for earlier counts no more
    this.looksWrong = new RegExp(box.dataset.wrong, "i");
    this.search.addEventListener("input", () => this.filter());
    this.search.addEventListener("keydown", (key) => {
      if (key.key === "Enter" && !key.isComposing) this.find("text", key.shiftKey);
    });
    document.getElementById("log-task").addEventListener("change", () => this.begin());
    document.getElementById("log-attempt").addEventListener("change", () => this.begin());
    for (const button of document.querySelectorAll("[data-find]")) {
      button.addEventListener("click", () => this.find(button.dataset.find, "back" in button.dataset));
    }
    document.addEventListener("visibilitychange", () => { if (document.hidden) this.stop?.abort(); });
    this.follows.addEventListener("change", () => { if (this.isPlace && this.follows.checked) this.begin(); else this.toEnd(); });
    box.addEventListener("scroll", () => {
      if (this.follows.checked && box.scrollTop + box.clientHeight < box.scrollHeight - 60) this.follows.checked = false;
    });
    this.begin();
  }

  empty() {
    this.stop?.abort();
    this.removeLines();
    this.tasks.clear();
    this.come = [];
    this.isCut = false;
  }

  removeLines() {
    this.box.replaceChildren();
    this.open.clear();
    this.characters = 0;
  }

  // The newest lines, and what comes.
  async begin() {
    const serial = ++this.serial;
    this.empty();
    this.searches += 1;
    this.isPlace = this.isAsked = false;
    this.hit = null;
    this.tellNone();
    const task = document.getElementById("log-task").value, attempt = document.getElementById("log-attempt").value;
    let cursor = "", pause = 500;
    while (serial === this.serial) {
      const query = new URLSearchParams({ follow: "true", tail: FIRST_LINES });
      if (task) query.set("task", task);
      if (attempt) query.set("attempt", attempt);
      if (cursor) query.set("cursor", cursor);
      await seen();
      if (serial !== this.serial) return;
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
          if (chunks.length) { cursor = chunks.at(-1).cursor; this.gather(chunks); }
          isOver = isOver || chunks.some((chunk) => chunk.job_over || (attempt && chunk.attempt_over));
        }
        if (serial !== this.serial) return;
        this.draw();
        if (isOver) { this.note(said.saidOver); return; }
      } catch { /* the server is away, or this was ended */ }
      if (serial !== this.serial) return;
      await wait(pause);
      pause = Math.min(pause * 2, 15000);
    }
  }

  gather(chunks) {
    if (!this.come.length) setTimeout(() => this.draw(), TOGETHER_MS);
    for (const chunk of chunks) this.come.push(chunk);
    if (this.come.length > MOST_LINES) this.come = this.latest(this.come);
  }

  draw() {
    const chunks = this.latest(this.come);
    this.come = [];
    if (chunks.length) this.add(chunks);
  }

  // Those with the lines that stay in view: of a program that writes fast, most would be removed as soon as they are there.
  latest(chunks) {
    let first = chunks.length, lines = 0, characters = 0;
    while (first && lines <= MOST_LINES && characters <= MOST_CHARACTERS) {
      const { data } = chunks[--first];
      lines += data.split("\n").length - 1;
      characters += data.length;
    }
    const left = new Map(); // by task and stream: what was left out last
    for (const chunk of chunks.slice(0, first)) left.set(`${chunk.task} ${chunk.stream}`, chunk.data);
    if (!left.size) return chunks;
    this.isCut = true;
    this.removeLines();
    return chunks.slice(first).map((chunk) => {
      const key = `${chunk.task} ${chunk.stream}`, before = left.get(key);
      left.delete(key);
      return before === undefined || before.endsWith("\n") ? chunk : { ...chunk, data: chunk.data.slice(chunk.data.indexOf("\n") + 1) };
    });
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
        if (line) {
          const before = line.written ?? "";
          line.written = (before + piece).split("\r").filter(Boolean).at(-1) ?? "";
          line.textContent = visible(line.written);
          this.characters += line.written.length - before.length;
        }
        const goesOn = isLast && piece !== "" && line.written.length < LONGEST_LINE;
        if (goesOn) this.open.set(key, line); else this.open.delete(key);
        if (isLast && piece === "" && index === 0 && line) this.open.set(key, line);
        if (line) this.judge(line);
      });
    }
    this.box.append(fresh);
    if (this.isPlace) return;
    while (this.box.childElementCount > MOST_LINES || this.characters > MOST_CHARACTERS) {
      const first = this.box.firstElementChild;
      this.isCut = true;
      this.characters -= first.written?.length ?? 0;
      first.remove();
    }
    if (this.isCut) {
      const first = this.box.firstElementChild;
      if (!first.classList.contains("note")) this.box.prepend(this.noteOf(said.saidCut));
    }
    this.tellNone();
    this.toEnd();
  }

  judge(line) {
    const text = this.search.value.toLowerCase();
    line.classList.toggle("wrong", this.looksWrong.test(line.written));
    line.hidden = !this.isPlace && ![line.written, line.textContent].some((each) => each.toLowerCase().includes(text));
  }

  filter() {
    this.searches += 1;
    this.isAsked = false;
    for (const line of this.box.children) if (!line.classList.contains("note")) this.judge(line);
    this.tellNone();
    this.toEnd();
  }

  // While a place is shown no line is hidden; what a search said stays until the next one.
  tellNone() {
    if (this.isAsked) return;
    const hasNone = !this.isPlace && this.search.value && !this.box.querySelector("div:not(.note):not([hidden])");
    this.say(hasNone ? this.told.dataset.none : "");
  }

  say(text) {
    this.told.textContent = text;
    this.told.hidden = !text;
  }

  toEnd() { if (this.follows.checked) this.box.scrollTop = this.box.scrollHeight; }

  noteOf(text) { const note = document.createElement("div"); note.className = "note"; note.textContent = text; return note; }

  note(text) { this.box.append(this.noteOf(text)); this.toEnd(); }

  // The next line of all the output with the text that is typed, or that looks like an error, and then around to the
  // other end. The server answers in pieces of a quarter of a second.
  async find(kind, isBack) {
    const text = this.search.value, serial = ++this.searches;
    if (kind === "text" && !text) { this.search.focus(); return; }
    this.isAsked = true;
    const task = document.getElementById("log-task").value;
    const attempt = this.hit?.attempt ?? document.getElementById("log-attempt").value;
    let place = this.hit && { at_task: this.hit.task, at_offset: isBack ? this.hit.offset : this.hit.next_offset };
    let isAround = false; // of a search that did not begin at an end
    const isWhole = !place;
    for (;;) {
      const query = new URLSearchParams({ backwards: isBack, ...(kind === "text" ? { text } : { errors: true }), ...place });
      if (task) query.set("task", task);
      if (attempt) query.set("attempt", attempt);
      let found;
      try { found = await (await send(`${this.box.dataset.log}/search?${query}`, undefined, "GET")).json(); }
      catch (error) { if (serial === this.searches) this.say(error.message); return; }
      if (serial !== this.searches) return;
      if (found.hit) {
        this.hit = { ...found.hit, attempt: found.attempt };
        this.say(isAround ? this.told.dataset.around : "");
        await this.show(this.hit, true);
        return;
      }
      if (found.over && (isWhole || isAround)) { this.say(this.told.dataset.nowhere); return; }
      if (found.over) isAround = true;
      place = found.over ? {} : { at_task: found.at_task, at_offset: found.at_offset };
      if (!found.over) this.say(`${this.told.dataset.searching} ${(found.at_offset / 1e6).toFixed(0)} MB`);
    }
  }

  // The lines around a place of one task's output.
  async show({ task, attempt, offset }, isHit) {
    const serial = ++this.serial;
    const begin = Math.max(offset - BYTES_AROUND, 0);
    let before, after;
    try {
      before = begin < offset ? await this.piece(task, attempt, begin, offset) : [];
      after = await this.piece(task, attempt, offset, offset + BYTES_AROUND);
    } catch (error) { if (serial === this.serial) this.say(error.message); return; }
    if (serial !== this.serial) return;
    this.empty();
    this.isPlace = true;
    this.follows.checked = false;
    this.add(before);
    const first = this.box.firstElementChild;
    if (begin && ![...this.open.values()].includes(first)) first?.remove(); // it may lack its beginning
    const last = this.box.lastElementChild;
    this.add(after);
    const here = last ? last.nextElementSibling ?? last : this.box.firstElementChild;
    if (isHit) here?.classList.add("here");
    const end = after.at(-1)?.next_offset ?? offset;
    if (begin) this.box.prepend(this.onwards(this.told.dataset.earlier, { task, attempt, offset: begin }));
    if (end >= offset + BYTES_AROUND - 4) this.box.append(this.onwards(this.told.dataset.later, { task, attempt, offset: end }));
    here?.scrollIntoView({ block: "center" });
    requestAnimationFrame(() => here?.scrollIntoView({ block: "center" })); // lines have their true heights once shown
  }

  onwards(text, place) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "note";
    button.textContent = text;
    button.addEventListener("click", async () => { await this.show(place, false); this.box.focus(); });
    return button;
  }

  async piece(task, attempt, offset, end) {
    const query = new URLSearchParams({ task, attempt, offset, end });
    const lines = (await (await send(`${this.box.dataset.log}?${query}`, undefined, "GET")).text()).split("\n");
    return lines.filter(Boolean).map((line) => JSON.parse(line)).filter((chunk) => chunk.data);
  }
}

const logBox = document.getElementById("log-lines");
if (logBox) new Output(logBox);
