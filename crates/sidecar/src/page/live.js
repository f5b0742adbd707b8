"use strict";
const every = 3000;
// The title and the icon of a tab in the background must not stay what they were.
const everyHidden = 30000;
const lost = document.getElementById("lost");
const icon = document.querySelector("link[rel=icon]");
const name = document.title.split(" ").slice(2).join(" ");
let seen = Date.now();
let tried = seen;
function age(milliseconds) {
  const seconds = Math.round(milliseconds / 1000);
  return seconds < 120 ? `${seconds} s` : `${Math.round(seconds / 60)} min`;
}
// Nothing is known now: neither the verdict nor the colours may say otherwise.
function showLost() {
  const last = `last seen ${age(Date.now() - seen)} ago`;
  lost.textContent = `Connection lost, ${last}: what you see is old.`;
  document.title = `? ${last} ${name}`;
  icon.href = icon.dataset.unknown;
  document.body.classList.add("unknown");
}
async function refresh() {
  if (document.hidden && Date.now() - tried < everyHidden) return;
  tried = Date.now();
  try {
    // Not "/": a proxy may have put the page below a path of its own, and something else at the root.
    const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(every) });
    if (!answer.ok) throw new Error(answer.status);
    // The policy of this page forbids the style of another one, and the console would say so each time.
    const text = (await answer.text()).replace(/<style.*?<\/style>/s, "");
    const next = new DOMParser().parseFromString(text, "text/html");
    const [old, fresh] = [document, next].map((page) => [...page.querySelectorAll("main > .live")]);
    if (!fresh.length || fresh.length !== old.length) throw new Error("another page");
    document.title = next.title;
    icon.href = next.querySelector("link[rel=icon]").href;
    old.forEach((part, at) => part.replaceWith(fresh[at]));
    document.body.dataset.refreshed = Number(document.body.dataset.refreshed || 0) + 1;
    document.body.classList.remove("unknown");
    lost.textContent = "";
    seen = Date.now();
  } catch {
    showLost();
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
