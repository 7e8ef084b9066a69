// Before anything is drawn: light or dark as it was chosen in this browser, else as the system has it.
(() => {
  let chosen = "";
  try { chosen = localStorage.getItem("millpond-theme") || ""; } catch { /* a browser that keeps nothing */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
