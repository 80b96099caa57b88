// Replaces the content of the page every two seconds, unless the user has paused it, is selecting text or is filling in
// a field. What has the focus, is scrolled or is open remains so.
"use strict";
const button = document.getElementById("refresh");
const lost = document.getElementById("lost");
let refreshes = true;

button.hidden = false;
button.addEventListener("click", () => {
  refreshes = !refreshes;
  button.textContent = refreshes ? "Pause" : "Resume";
});

function mayReplace(main) {
  return refreshes && !main.querySelector("input:focus") && document.getSelection().isCollapsed;
}

function describe(element) {
  return [element.tagName, element.id, element.getAttribute("href"), element.textContent].join();
}

function replace(main, replacement) {
  const active = main.contains(document.activeElement) ? document.activeElement : null;
  const scrolled = Array.from(main.querySelectorAll(".wide"), each => each.scrollLeft);
  const opened = Array.from(main.querySelectorAll("details[open]"), each => each.id);
  main.replaceWith(replacement);
  for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
  replacement.querySelectorAll(".wide").forEach((each, position) => { each.scrollLeft = scrolled[position] || 0; });
  if (active) {
    const same = active === main ? replacement
      : Array.from(replacement.querySelectorAll("a, button, summary, [tabindex]"))
        .find(each => describe(each) === describe(active) || (each.id && each.id === active.id));
    same?.focus({ preventScroll: true });
  }
}

async function refresh() {
  const main = document.getElementById("main");
  if (!document.hidden && mayReplace(main)) {
    try {
      const answer = await fetch(location.href, { credentials: "same-origin" });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const replacement = page.getElementById("main");
      if (answer.ok && replacement && mayReplace(main)) replace(main, document.adoptNode(replacement));
      lost.hidden = answer.ok;
    } catch {
      lost.hidden = false;
    }
    document.body.classList.toggle("lost", !lost.hidden);
  }
  setTimeout(refresh, 2000);
}
setTimeout(refresh, 2000);
