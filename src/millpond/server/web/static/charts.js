// Charts: the values under the cursor, by pointer or keyboard, and a span of them as the view, by the address.
"use strict";
(() => {
  const number = new Intl.NumberFormat(locale, { maximumSignificantDigits: 5 });
  const clock = new Intl.DateTimeFormat(locale, { hour: "2-digit", minute: "2-digit" });
  const day = new Intl.DateTimeFormat(locale, { month: "2-digit", day: "2-digit" });
  const whole = new Intl.DateTimeFormat(locale, { dateStyle: "short", timeStyle: "short" });

  function showTicks(within) {
    for (const svg of within.querySelectorAll(".plot > svg")) {
      const ticks = [...svg.querySelectorAll("text[data-at]")];
      const isShort = ticks.length < 2 || ticks.at(-1).dataset.at - ticks[0].dataset.at < 129600;
      for (const tick of ticks) {
        const text = (isShort ? clock : day).format(new Date(tick.dataset.at * 1000));
        if (tick.textContent !== text) tick.textContent = text;
      }
    }
  }

  const known = new WeakMap(); // what the text of a chart was read as
  function pointsOf(figure) {
    const text = figure.querySelector("script").textContent;
    const before = known.get(figure);
    if (before?.text === text) return before.points;
    const points = JSON.parse(text);
    known.set(figure, { text, points });
    return points;
  }

  function nearest(xs, x) {
    let low = 0, high = xs.length - 1;
    while (low < high) { const middle = (low + high) >> 1; if (xs[middle] < x) low = middle + 1; else high = middle; }
    return low > 0 && x - xs[low - 1] < xs[low] - x ? low - 1 : low;
  }

  function show(figure, x) {
    const points = pointsOf(figure);
    const longest = points.lines.reduce((best, line) => ((line.xs || points.xs).length > (best.xs || points.xs).length ? line : best));
    const xs = longest.xs || points.xs;
    if (!xs.length) return x;
    const at = xs[nearest(xs, x)];
    const place = Math.round(2000 * (at - points.begin) / (points.end - points.begin || 1));
    figure.querySelector(".cursor").setAttribute("d", `M${place},0v1000`);
    const shown = figure.querySelectorAll(".legend b");
    const values = points.lines.map((line, index) => {
      const y = line.ys[nearest(line.xs || points.xs, at)];
      const text = y === null || y === undefined ? "–" : number.format(y);
      if (shown[index]) shown[index].textContent = text;
      return `${line.name} ${text}`;
    });
    const instant = points.time ? whole.format(new Date(at * 1000)) : number.format(at);
    // Of many lines the legend alone has the values: a text of changing length would move what is below.
    figure.querySelector("output.values").textContent = values.length > 4 ? instant : `${instant}: ${values.join(" · ")}`;
    figure.dataset.at = at;
    return at;
  }

  function choose(figure, one, other) {
    const points = pointsOf(figure), span = points.end - points.begin || 1;
    const [begin, end] = one < other ? [one, other] : [other, one];
    const rect = figure.querySelector(".chosen");
    rect.setAttribute("x", Math.round(2000 * (begin - points.begin) / span));
    rect.setAttribute("width", Math.round(2000 * (end - begin) / span));
    return [begin, end];
  }

  function view(figure, [begin, end]) {
    if (!(end > begin) || figure.dataset.page === "#") return;
    const address = new URL(figure.dataset.page || location.href, location.href);
    if (!figure.dataset.page) address.searchParams.delete("back");
    const isWhole = pointsOf(figure).time;
    address.searchParams.set(figure.dataset.from, isWhole ? Math.floor(begin) : begin);
    address.searchParams.set(figure.dataset.to, isWhole ? Math.ceil(end) : end);
    location.assign(address);
  }

  const figureOf = (event) => event.target.closest?.(".plot")?.closest("figure.chart");
  function under(figure, event) {
    const box = figure.querySelector(".plot").getBoundingClientRect(), points = pointsOf(figure);
    const part = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
    return points.begin + part * (points.end - points.begin);
  }

  let drag = null, cost = 0;
  document.addEventListener("pointerdown", (event) => {
    const figure = figureOf(event);
    if (figure && event.button === 0 && event.pointerType === "mouse") drag = { figure, begin: under(figure, event), x: event.clientX };
  });
  document.addEventListener("pointermove", (event) => {
    const figure = drag ? drag.figure : figureOf(event);
    if (!figure) return;
    const x = under(figure, event);
    show(figure, x);
    if (drag) choose(figure, drag.begin, x);
  });
  document.addEventListener("pointerout", (event) => {
    const figure = figureOf(event);
    if (!figure || drag || event.relatedTarget?.closest?.("figure.chart") === figure) return;
    figure.querySelector(".cursor").setAttribute("d", "");
    figure.querySelector("output.values").textContent = "";
    for (const each of figure.querySelectorAll(".legend b")) each.textContent = each.dataset.last;
  });
  document.addEventListener("pointerup", (event) => {
    if (!drag) return;
    const { figure, begin, x } = drag;
    drag = null;
    if (Math.abs(event.clientX - x) > 8) view(figure, choose(figure, begin, under(figure, event)));
    else choose(figure, begin, begin);
  });
  document.addEventListener("keydown", (event) => {
    const figure = figureOf(event);
    if (!figure) return;
    const points = pointsOf(figure);
    const at = figure.dataset.at === undefined ? points.end : Number(figure.dataset.at);
    const step = (points.end - points.begin) / (event.shiftKey ? 10 : 100);
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      event.preventDefault();
      const wanted = at + (event.key === "ArrowLeft" ? -step : step);
      const shown = show(figure, Math.min(Math.max(wanted, points.begin), points.end));
      if (shown === at) figure.dataset.at = wanted; // points lie further apart than a step
      if (figure.dataset.mark) choose(figure, Number(figure.dataset.mark), Number(figure.dataset.at));
    } else if (event.key === "Enter") {
      if (figure.dataset.mark === undefined) figure.dataset.mark = at;
      else view(figure, choose(figure, Number(figure.dataset.mark), at));
    } else if (event.key === "Escape") {
      delete figure.dataset.mark;
      choose(figure, at, at);
    }
  });

  // What runs report does not change jobs, so the server's stream is silent about it: asked for while runs go on, and
  // the more seldom the longer an answer takes.
  (async () => {
    for (;;) {
      const live = document.querySelector("[data-every]");
      if (!live) return;
      await new Promise((done) => setTimeout(done, live.dataset.every * 1000 + 20 * cost));
      if (document.hidden || drag) continue;
      const asked = performance.now();
      await followChange();
      cost = performance.now() - asked;
    }
  })();

  showTicks(document);
  new MutationObserver(() => showTicks(document)).observe(document.getElementById("main"), { childList: true, subtree: true, attributes: true, attributeFilter: ["data-at"] });
})();
