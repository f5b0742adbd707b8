
"use strict";
const every = 3000;
async function refresh() {
  if (document.hidden) return;
  try {
    const answer = await fetch("/", { cache: "no-store", signal: AbortSignal.timeout(every) });
    if (!answer.ok) throw new Error(answer.status);
    const next = new DOMParser().parseFromString(await answer.text(), "text/html");
    document.title = next.title;
    document.querySelector("main").replaceWith(next.querySelector("main"));
    document.body.dataset.refreshed = Number(document.body.dataset.refreshed || 0) + 1;
  } catch {
    document.getElementById("lost").textContent = ", connection lost";
  }
}
setInterval(refresh, every);
