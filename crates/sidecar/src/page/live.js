"use strict";
const every = 3000;
const lost = document.getElementById("lost");
async function refresh() {
  if (document.hidden) return;
  try {
    // Not "/": a proxy may have put the page below a path of its own, and something else at the root.
    const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(every) });
    if (!answer.ok) throw new Error(answer.status);
    const next = new DOMParser().parseFromString(await answer.text(), "text/html");
    const [old, fresh] = [document, next].map((page) => [...page.querySelectorAll("main > .live")]);
    if (!fresh.length || fresh.length !== old.length) throw new Error("another page");
    document.title = next.title;
    document.querySelector("link[rel=icon]").href = next.querySelector("link[rel=icon]").href;
    old.forEach((part, at) => part.replaceWith(fresh[at]));
    document.body.dataset.refreshed = Number(document.body.dataset.refreshed || 0) + 1;
    lost.textContent = "";
  } catch {
    lost.textContent = "Connection lost: what you see is old.";
  }
}
setInterval(refresh, every);
document.getElementById("explain")?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = event.target, shown = document.getElementById("explanation");
  shown.hidden = false;
  try {
    const answer = await fetch(form.action + "?" + new URLSearchParams(new FormData(form)), { cache: "no-store" });
    shown.textContent = await answer.text();
  } catch {
    shown.textContent = "No answer.";
  }
});
