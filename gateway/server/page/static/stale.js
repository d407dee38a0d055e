/* Recovery when a file of the page is missing, as after an upgrade. Loaded first; a plain script, because a module may be missing. */
(function () {
  var KEY = "dragoman.stale";
  /** Pause in ms between automatic reloads: a page that stays broken must not reload for ever. */
  var PAUSE = 60000;
  /** Pause in ms between two questions whether the server is back. */
  var AGAIN = 1000;
  var handled = false;

  /** Returns whether an automatic reload is allowed. Without storage, the person decides. */
  function mayReload() {
    try {
      if (Date.now() - Number(sessionStorage.getItem(KEY)) < PAUSE) return false;
      sessionStorage.setItem(KEY, String(Date.now()));
      return true;
    } catch (_) {
      return false;
    }
  }

  function show() {
    var root = document.getElementById("app");
    if (!root) return void addEventListener("DOMContentLoaded", show);
    root.innerHTML =
      '<main class="signin" data-testid="stale"><div class="panel"><h1>The page did not load completely</h1>' +
      '<p role="alert">Dragoman was updated or did not answer meanwhile. What you wrote is kept.</p>' +
      '<button type="button" class="verb once">Reload the page</button></div></main>';
    root.querySelector("button").addEventListener("click", function () {
      location.reload();
    });
  }

  /** Returns whether the page is there, and lacks only what it loads later. */
  function runs() {
    var root = document.getElementById("app");
    return root !== null && root.firstChild !== null;
  }

  /** A page that runs stays until the server answers: a reload would show an error page. */
  function wait() {
    if (runs()) setTimeout(ask, AGAIN);
    else show();
  }

  /** A proxy answers 502 to 504 for a server that is away. A link's code works once: a reload would lose its sign-in. */
  function ask() {
    fetch(location.pathname, { cache: "no-store" }).then(function (answer) {
      if (document.documentElement.hasAttribute("data-signing-in")) setTimeout(ask, AGAIN / 10);
      else if (answer.status >= 500) wait();
      else if (answer.ok && mayReload()) location.reload();
      else show();
    }, wait);
  }

  function recover() {
    if (handled) return;
    handled = true;
    ask();
  }

  addEventListener(
    "error",
    function (event) {
      var file = event.target instanceof Element && /^(SCRIPT|LINK)$/.test(event.target.tagName) ? event.target : null;
      var from = file ? file.src || file.href : "";
      if (from.indexOf(location.origin + "/static/") === 0) recover();
    },
    true, // errors of files do not bubble
  );
  addEventListener("unhandledrejection", function (event) {
    // Each browser's error for a module that a running page could not load.
    if (event.reason instanceof TypeError && /module/i.test(event.reason.message)) recover();
  });
})();
