// Instants in the reader's time zone and language; those that are shown as a distance from now are kept up to date.
"use strict";

const shownLocally = (element) => element.nodeName === "TIME";
const language = document.documentElement.lang;
// As the reader's browser writes it, where that speaks the language of the page: English is not always American.
const locale = navigator.languages.find((each) => each.split("-")[0] === language.split("-")[0]) ?? language;
const dates = new Intl.DateTimeFormat(locale, { dateStyle: "short", timeStyle: "medium" });
const distances = new Intl.RelativeTimeFormat(language, { numeric: "always", style: "short" });

function distance(seconds) {
  const size = Math.abs(seconds);
  if (size < 90) return distances.format(Math.round(seconds), "second");
  if (size < 5400) return distances.format(Math.round(seconds / 60), "minute");
  if (size < 129600) return distances.format(Math.round(seconds / 3600), "hour");
  return distances.format(Math.round(seconds / 86400), "day");
}

function showTimes(within) {
  for (const each of within.querySelectorAll("time")) {
    const at = new Date(each.dateTime);
    const whole = dates.format(at);
    const text = each.dataset.how === "ago" ? distance((at - Date.now()) / 1000) : whole;
    if (each.textContent !== text) each.textContent = text;
    if (each.title !== whole) each.title = whole;
  }
}

showTimes(document);
setInterval(() => showTimes(document), 10000);
