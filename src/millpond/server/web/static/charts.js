// Charts, drawn by uPlot: values under the cursor, by pointer or keyboard, and a span of them as the view, by the address.
"use strict";
(() => {
  const DAY = 86400, FEW = 4, MANY = 24; // of lines: above, their values stand in the legend alone; are not marked by points
  const number = new Intl.NumberFormat(locale, { maximumSignificantDigits: 5 });
  const compact = new Intl.NumberFormat(locale, { maximumSignificantDigits: 5, notation: "compact" });
  const clock = new Intl.DateTimeFormat(locale, { hour: "2-digit", minute: "2-digit" });
  const day = new Intl.DateTimeFormat(locale, { month: "2-digit", day: "2-digit" });
  const whole = new Intl.DateTimeFormat(locale, { dateStyle: "short", timeStyle: "short" });
  const within = (least, value, most) => Math.min(Math.max(value, least), most);

  const sheet = new CSSStyleSheet();
  const rules = [...document.querySelectorAll("link[data-charts]")].flatMap((link) => [...link.sheet.cssRules]);
  sheet.replaceSync(rules.map((rule) => rule.cssText).join("\n"));

  // A page that takes over what differs gives a chart new points; it leaves the shadow alone in which they are drawn.
  class LineChart extends HTMLElement {
    static observedAttributes = ["points"];

    connectedCallback() {
      if (!this.shadowRoot) this.build();
      this.figure = this.closest("figure");
      this.sizes.observe(this.box);
      this.legends.observe(this.figure, { childList: true, characterData: true, subtree: true });
    }

    disconnectedCallback() {
      this.sizes.disconnect();
      this.legends.disconnect();
      this.plot?.destroy();
      this.plot = null;
    }

    attributeChangedCallback() { if (this.plot) this.draw(); }

    build() {
      const root = this.attachShadow({ mode: "open" });
      root.adoptedStyleSheets = [sheet];
      this.box = document.createElement("div");
      this.box.className = "box";
      this.said = document.createElement("output");
      this.said.className = "values";
      root.append(this.box, this.said);
      this.sizes = new ResizeObserver(() => this.fit());
      this.legends = new MutationObserver(() => this.plot && this.show());
      this.addEventListener("keydown", (event) => this.press(event));
      this.box.addEventListener("pointermove", (event) => {
        if (event.pointerType !== "mouse") this.plot.setCursor({ left: event.clientX - this.plot.rect.left, top: 0 });
      });
    }

    fit() {
      const { clientWidth: width, clientHeight: height } = this.box;
      if (width && this.plot) this.plot.setSize({ width, height });
      else if (width) this.draw();
    }

    draw() {
      this.points = JSON.parse(this.getAttribute("points"));
      const swatches = [...this.figure.querySelectorAll(".swatch path")];
      this.looks = swatches.map((swatch) => getComputedStyle(swatch)); // they follow the theme by themselves
      const kind = [this.points.time, this.points.log, this.points.stepped, ...swatches.map((each) => each.classList.value)].join();
      const data = uPlot.join(this.points.tables);
      if (this.plot && this.kind === kind) { this.plot.setData(data); return; }
      this.kind = kind;
      this.plot?.destroy();
      this.plot = new uPlot(this.options(), data, this.box);
      const { canvas } = this.plot.ctx;
      canvas.role = "img";
      canvas.ariaLabel = this.figure.querySelector("figcaption").textContent;
    }

    options() {
      const { time, log, stepped } = this.points, own = getComputedStyle(this);
      const shared = { font: `11.5px ${own.fontFamily}`, stroke: () => own.getPropertyValue("--faint") };
      const grid = { stroke: () => own.getPropertyValue("--line"), width: 1 };
      const paths = stepped ? uPlot.paths.stepped({ align: 1 }) : undefined;
      return {
        width: this.box.clientWidth, height: this.box.clientHeight, padding: [8, 28, 0, 0], legend: { show: false },
        scales: {
          x: { time, range: () => [this.points.begin, this.points.end] },
          y: { distr: log ? 3 : 1, range: (_, low, high) => this.range(low, high) },
        },
        axes: [
          { ...shared, size: 24, space: 76, gap: 4, grid: { show: false }, ticks: { ...grid, size: 4 }, values: time ? timeLabels : labels },
          { ...shared, size: (_, texts) => 12 + 6.6 * Math.max(3, ...(texts ?? []).map((text) => text.length)), gap: 6, grid: { ...grid, filter: labelled }, ticks: { show: false }, values: labels },
        ],
        series: [{}, ...this.looks.map((look, index) => ({
          paths, width: parseFloat(look.strokeWidth), cap: "round", stroke: () => this.looks[index].stroke,
          dash: look.strokeDasharray.match(/[\d.]+/g)?.map(Number),
          points: { size: 5, fill: () => this.looks[index].stroke, filter: alone },
        }))],
        cursor: { y: false, move: snap, points: this.looks.length > MANY ? { show: false } : { size: 7 }, drag: { setScale: false, dist: 8 } },
        hooks: { setCursor: [() => this.show()], setSelect: [({ select }) => this.view(...[select.left, select.left + select.width].map((left) => this.plot.posToVal(left, "x")))] },
      };
    }

    range(low, high) {
      const { log, zero } = this.points;
      if (low === null) return [log ? 1 : 0, 10];
      if (log) return [uPlot.rangeLog(low, high, 10, false)[0], 1.1 * high];
      const least = zero ? Math.min(low, 0) : low;
      const room = high > least ? (high - least) / 25 : Math.abs(least) / 2 || 1;
      return [zero && least === 0 ? 0 : least - room, high + room];
    }

    show() {
      const { plot } = this, { idx, idxs, left } = plot.cursor, isIn = left >= 0 && idx !== null;
      const values = [...this.figure.querySelectorAll(".legend b")].map((value, index) => {
        const y = plot.data[index + 1]?.[idxs[index + 1]];
        const text = isIn ? (y == null ? "–" : number.format(y)) : value.dataset.last;
        if (value.textContent !== text) value.textContent = text;
        return `${value.previousElementSibling.textContent} ${text}`;
      });
      this.legends.takeRecords(); // of what was written here
      if (!isIn) { this.said.textContent = ""; return; }
      const at = plot.data[0][idx], list = document.createElement("span");
      list.textContent = `: ${values.join(" · ")}`;
      // Of many lines the legend has the values for the eye: a text of changing length would move what is below.
      list.className = values.length > FEW ? "unseen" : "";
      this.said.replaceChildren(this.points.time ? whole.format(at * 1000) : number.format(at), list);
    }

    press(event) {
      const { plot } = this, [xs] = plot.data, step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      const index = plot.cursor.idx ?? xs.length - (step ? 0 : 1);
      if (step) {
        event.preventDefault();
        const wanted = index + step * Math.max(1, Math.round(xs.length / (event.shiftKey ? 10 : 100)));
        const left = plot.valToPos(xs[within(0, wanted, xs.length - 1)], "x"), { clientWidth: width } = plot.over;
        plot.setCursor({ left: within(0, left, width), top: 0 });
        if (this.mark !== undefined) this.choose(this.mark, xs[plot.cursor.idx]);
      } else if (event.key === "Enter" && this.mark === undefined) this.mark = xs[index];
      else if (event.key === "Enter") this.view(this.mark, xs[index]);
      else if (event.key === "Escape") { this.mark = undefined; this.choose(0, 0); }
    }

    choose(one, other) {
      const [left, right] = [one, other].map((x) => this.plot.valToPos(x, "x")).sort((a, b) => a - b);
      this.plot.setSelect({ left, width: right - left, top: 0, height: this.plot.over.clientHeight }, false);
    }

    view(one, other) {
      const { from, to, page } = this.dataset, isWhole = this.points.time;
      if (one === other || page === "#") return;
      const address = new URL(page || location.href, location.href);
      if (!page) address.searchParams.delete("back");
      address.searchParams.set(from, isWhole ? Math.floor(Math.min(one, other)) : Math.min(one, other));
      address.searchParams.set(to, isWhole ? Math.ceil(Math.max(one, other)) : Math.max(one, other));
      location.assign(address);
    }
  }

  const labels = (_, splits) => splits.map((value) => (value === null ? "" : compact.format(value)));
  const labelled = (plot, splits, axis, ...rest) => plot.axes[axis].filter(plot, splits, axis, ...rest);
  const timeLabels = (_, splits, axis, space, step) => splits.map((at) => {
    const date = new Date(at * 1000), isDay = step >= DAY || date.getHours() + date.getMinutes() === 0;
    return at % 60 ? "" : (isDay ? day : clock).format(date);
  });

  function snap(plot, left, top) {
    const [xs] = plot.data, x = xs[plot.posToIdx(left)];
    return left < 0 || x === undefined ? [left, top] : [within(0, plot.valToPos(x, "x"), plot.over.clientWidth), top];
  }

  // A value with none beside it is no line, and shown as a point.
  function alone({ data }, series, isShown) {
    if (isShown) return null;
    const found = [];
    let count = 0, last = 0;
    for (const [index, y] of [...data[series], null].entries()) {
      if (y === null) { if (count === 1) found.push(last); count = 0; } else if (y !== undefined) { count += 1; last = index; }
    }
    return found;
  }

  customElements.define("line-chart", LineChart);

  const redraw = () => { for (const chart of document.querySelectorAll("line-chart")) chart.plot?.redraw(false); };
  for (const media of ["(prefers-color-scheme: dark)", "print"]) matchMedia(media).addEventListener("change", redraw);
  new MutationObserver(redraw).observe(document.documentElement, { attributeFilter: ["data-theme"] });

  // What runs report does not change jobs, so the server's stream is silent about it: asked for while runs go on, and
  // the more seldom the longer an answer takes.
  (async () => {
    let cost = 0;
    for (;;) {
      const live = document.querySelector("[data-every]");
      if (!live) return;
      await new Promise((done) => setTimeout(done, live.dataset.every * 1000 + 20 * cost));
      if (document.hidden || document.querySelector("line-chart:active")) continue;
      const asked = performance.now();
      await followChange();
      cost = performance.now() - asked;
    }
  })();
})();
