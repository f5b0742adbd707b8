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
    const main = next.querySelector("main");
    if (!main) throw new Error("another page");
    document.title = next.title;
    document.querySelector("main").replaceWith(main);
    document.body.dataset.refreshed = Number(document.body.dataset.refreshed || 0) + 1;
    lost.textContent = "";
  } catch {
    lost.textContent = "Connection lost: what you see is old.";
  }
}
setInterval(refresh, every);
