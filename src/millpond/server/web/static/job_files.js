// The output files of a job, of the attempt whose output is shown: read when the page is open, when the job's state
// changes, and while it runs and they are in view now and then, as a program that writes a file tells nobody.
"use strict";

const FILES_EACH_MS = 30000, FIRST_PAUSE_MS = 2000;

class OutputFiles {
  constructor(box) {
    this.box = box;
    this.run = document.getElementById("job-run");
    this.attempt = document.getElementById("log-attempt");
    this.serial = 0;
    this.attempt.addEventListener("change", () => this.load(true));
    new MutationObserver(() => this.load(false)).observe(this.run, { attributes: true });
    setInterval(() => { if (!this.isReading && this.isSeen()) this.load(false); }, FILES_EACH_MS);
    this.load(true);
  }

  isSeen() {
    const { top, bottom } = this.box.getBoundingClientRect();
    return this.run.dataset.ended === undefined && !document.hidden && top < innerHeight && bottom > 0;
  }

  // What was chosen by hand is shown at once; else rows stay where they are while somebody is at them.
  async load(isChosen) {
    const serial = ++this.serial;
    this.stop?.abort(); // an answer that is not wanted any more keeps none waiting
    this.stop = new AbortController();
    this.isReading = true; // a slow disk is not asked again before it has answered
    await this.read(serial, isChosen);
    if (serial === this.serial) this.isReading = false;
  }

  async read(serial, isChosen) {
    const query = this.attempt.value ? `?attempt=${this.attempt.value}` : "";
    for (let pause = FIRST_PAUSE_MS; serial === this.serial; pause = Math.min(pause * 2, FILES_EACH_MS)) {
      try {
        const answer = await ask(`${this.box.dataset.load}${query}`, { headers: { Accept: "text/html" }, signal: this.stop.signal });
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const found = page.getElementById("output-files");
        if (serial !== this.serial || answer.redirected) return;
        if (found) { this.show(found, isChosen); return; }
        if (answer.status < 500) { this.tellTrouble(page.querySelector("main h1")); return; }
      } catch { /* the server is away, or this was ended */ }
      await wait(pause);
    }
  }

  tellTrouble(title) {
    const first = this.box.querySelector("[role=status]");
    if (first && title) first.textContent = title.textContent;
  }

  show(found, isChosen) {
    const before = placeOfRows();
    if (isUsed(this.box) && !isChosen) takeSteadily(this.box, found); else takeWhole(this.box, found);
    showTimes(this.box);
    makeReachable();
    if (!isChosen) keepPlace(before);
  }
}

const filesBox = document.getElementById("output-files");
if (filesBox) new OutputFiles(filesBox);
