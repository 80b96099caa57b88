// Replaces the content of the page every two seconds, unless the user has paused it or is selecting text.
"use strict";
const button = document.getElementById("refresh");
const lost = document.getElementById("lost");
let refreshes = true;

button.hidden = false;
button.addEventListener("click", () => {
  refreshes = !refreshes;
  button.setAttribute("aria-pressed", String(refreshes));
  button.textContent = refreshes ? "Refreshing" : "Paused";
});

function mayReplace(main) {
  return refreshes && !main.contains(document.activeElement) && document.getSelection().isCollapsed;
}

async function refresh() {
  const main = document.getElementById("main");
  if (!document.hidden && mayReplace(main)) {
    try {
      const answer = await fetch(location.href, { credentials: "same-origin" });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const replacement = page.getElementById("main");
      if (answer.ok && replacement && mayReplace(main)) main.replaceWith(document.adoptNode(replacement));
      lost.hidden = answer.ok;
    } catch {
      lost.hidden = false;
    }
  }
  setTimeout(refresh, 2000);
}
setTimeout(refresh, 2000);
