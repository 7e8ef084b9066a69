// The answer to a what-if question: asked for when the page is open, with how long that takes, until it is cancelled.
"use strict";

async function play(box) {
  const playing = document.getElementById("playing");
  const bar = playing.querySelector("progress"), text = playing.querySelector("[data-seconds]");
  const begun = Date.now(), most = Number(box.dataset.within), stop = new AbortController();
  const show = () => {
    const seconds = Math.floor((Date.now() - begun) / 1000);
    bar.value = seconds;
    text.textContent = text.dataset.seconds.replace("{s}", seconds).replace("{most}", most);
  };
  show();
  const clock = setInterval(show, 1000);
  const cancel = document.getElementById("cancel");
  cancel.addEventListener("click", () => stop.abort());
  cancel.disabled = false;
  window.addEventListener("pagehide", () => stop.abort());
  try {
    const answer = await ask(box.dataset.load, { signal: stop.signal, headers: { Accept: "text/html" } });
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const found = fresh.getElementById("answer");
    if (found) { box.replaceChildren(...found.childNodes); showTimes(box); }
    else if (answer.redirected) { playing.remove(); logOut(); }
    else playing.textContent = fresh.querySelector("main h1")?.textContent ?? `${answer.status}`;
  } catch (error) {
    playing.textContent = error.name === "AbortError" ? box.dataset.saidGone : said.saidLost;
  } finally { clearInterval(clock); }
}

// Rows of queues: empty ones are left out of the address, whole, so that those that stay belong together.
const rows = () => [...document.querySelectorAll(".what-if [data-row]")];
document.getElementById("more-rows").addEventListener("click", () => {
  const fresh = rows().at(-1).cloneNode(true);
  for (const field of fresh.querySelectorAll("select, input")) field.value = field.name === "field" ? field.options[0].value : "";
  rows().at(-1).after(fresh);
  fresh.querySelector("select").focus();
});
document.querySelector(".what-if").addEventListener("submit", () => {
  for (const row of rows()) row.disabled = !row.querySelector("[name=queue]").value;
  setTimeout(() => { for (const row of rows()) row.disabled = false; });
});

const asked = document.querySelector("#answer[data-load]");
if (asked) play(asked);
