/* Light or dark theme, set before the first paint, so that nothing flashes. A plain script, because modules run too late. */
(function () {
  var choice = "";
  try {
    choice = localStorage.getItem("dragoman.theme") || "";
  } catch (_) {
    /* storage may be forbidden: the system's choice holds */
  }
  if (choice === "light" || choice === "dark") document.documentElement.dataset.theme = choice;
})();
