// Parts of a page that take a while to be made: they are asked for when the rest stands there.
"use strict";

for (const part of document.querySelectorAll("[data-load]")) {
  (async () => {
    try {
      const answer = await ask(part.dataset.load, { headers: { Accept: "text/html" } });
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      const wanted = fresh.getElementById(part.id) || fresh.querySelector("main");
      part.replaceChildren(...wanted.childNodes);
    } catch { part.textContent = said.saidLost; }
  })();
}
