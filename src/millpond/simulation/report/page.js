"use strict";
// Pointing at a chart shows the value of every curve at that place.
for (const figure of document.querySelectorAll("figure[data-across]")) {
  const svg = figure.querySelector("svg");
  const cursor = svg.querySelector(".cursor");
  const readout = figure.querySelector(".readout");
  const series = JSON.parse(figure.querySelector("script").textContent);
  const { low, high, kind, left, right } = svg.dataset;
  const log = kind === "log";
  const from = log ? Math.log(+low) : +low;
  const to = log ? Math.log(+high) : +high;

  const text = (value, form) => {
    if (form === "percent") return value.toFixed(1) + " %";
    if (form === "count") return value.toFixed(1);
    for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
      if (value >= 2 * size) return (value / size).toFixed(2) + " " + unit;
    }
    return value.toFixed(0) + " s";
  };
  const nearest = (points, wanted) => {
    let low = 0, high = points.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (points[middle][0] < wanted) low = middle + 1; else high = middle;
    }
    return points[low];
  };
  const hide = () => { cursor.setAttribute("visibility", "hidden"); readout.hidden = true; };

  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
    const part = (x - left) / (right - left);
    if (part < 0 || part > 1) { hide(); return; }
    const scaled = from + part * (to - from);
    const value = log ? Math.exp(scaled) : scaled;
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
    cursor.setAttribute("visibility", "visible");
    readout.replaceChildren();
    const head = document.createElement("b");
    head.textContent = text(value, figure.dataset.across);
    readout.append(head);
    for (const one of series) {
      if (!one.points.length) continue;
      const line = document.createElement("div");
      const swatch = document.createElement("span");
      swatch.className = "swatch s" + one.style;
      line.append(swatch, one.label + "  " + text(nearest(one.points, value)[1], figure.dataset.up));
      readout.append(line);
    }
    readout.hidden = false;
    const beside = (event.clientX - box.left) + 14;
    readout.style.left = Math.max(0, Math.min(beside, box.width - readout.offsetWidth)) + "px";
  });
  svg.addEventListener("pointerleave", hide);
}
